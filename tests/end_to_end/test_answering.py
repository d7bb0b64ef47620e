"""Questions from JSON to answers: trained, evaluated, predicted and served, and always the same."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)

from official import config as configs
from official import tokenizers
from official.data import ShardDataset
from official.distribution import strategies
from official.evaluation import squad_metrics
from official.evaluation.evaluator import Evaluator
from official.evaluation.run import write_predictions
from official.saving import model_folder, task_file
from official.saving.served_model import ServedModel
from official.serving.compute import length_groups
from official.serving.compute.precision import Weights
from official.serving.export import saved_model
from official.serving.signatures import inputs, span_answer
from official.shards import side_texts
from official.training import resolve
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import GOLDEN, small, squads

SIZES = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 24}
BERT = {"type": "transformer", **SIZES, "max_positions": 32, "initializer_range": 0.3}
XLNET = {"type": "transformer_xl", **SIZES, "initializer_range": 0.3}
# The encoder, the form, whether some questions have no answer, and the tokenizer.
CASES = {
    "bert": (BERT, {"form": "independent"}, True, None),
    "xlnet": (XLNET, {"form": "conditional"}, True, None),
    "bytes": (BERT, {"form": "independent", "candidates": "row"}, False, "byte_bpe"),
}


def byte_bpe():
    golden = json.loads((GOLDEN / "byte_bpe.json").read_text())
    merges = [tuple(line.split(" ")) for line in golden["merges.txt"].splitlines()[1:]]
    return tokenizers.ByteBPE(golden["vocab.json"], merges)


@pytest.fixture(
    scope="module",
    params=["bert", *(pytest.param(name, marks=pytest.mark.long) for name in ("xlnet", "bytes"))],
)
def trained(request, tmp_path_factory):
    """A model folder after a few steps, its data, and the figures on the validation split."""
    encoder, objective, no_answers, tokenizer = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    shards = squads.shard_folder(
        folder / "shards", no_answers, tokenizer=byte_bpe() if tokenizer else None
    )
    recipe = {
        "steps": 40, "batch_size": 8, "report_every": 20, "optimizer": {"learning_rate": 5e-3},
    }  # fmt: skip
    if request.param != "bert":  # CI's case has the graphs of one length.
        recipe["bucket_lengths"] = [24]
    raw = {
        "name": "answers",
        "encoder": encoder,
        "objectives": [{"type": "span_answer", "n_best": 6, "max_answer_length": 5, **objective}],
        "recipe": recipe,
    }
    config = configs.from_dict(raw)
    train = ShardDataset(shards, config, "train", training=True)
    config = resolve.fill_in(config, train.tokenizer.vocab_size)
    train.check(config)
    validation = ShardDataset(shards, config, "validation")
    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    model_dir = folder / "model"
    evaluator = Evaluator(config, model, strategy)
    before = evaluator.run(ShardDataset(shards, config, "train"))
    trainer = Trainer(config, model, train, strategy, model_dir)
    figures = trainer.train(validation)
    configs.save(config, model_dir / "config.yaml")
    train.tokenizer.save(model_dir / "tokenizer")
    task_file.save(train.manifest, model_dir)
    after = evaluator.run(ShardDataset(shards, config, "train"))
    assert after["span_answer"] < 0.9 * before["span_answer"]
    output = folder / "answers"
    count = write_predictions(evaluator, validation, output)
    return {
        "config": config, "model_dir": model_dir, "shards": shards, "figures": figures,
        "source": validation, "output": output, "count": count, "model": model,
        "no_answers": no_answers,
    }  # fmt: skip


def files(trained):
    names = ["predictions.json", "nbest.json"] + ["null_odds.json"] * trained["no_answers"]
    assert sorted(path.name for path in trained["output"].iterdir()) == sorted(names)
    return [json.loads((trained["output"] / name).read_text()) for name in names]


@pytest.mark.slow
@pytest.mark.long
def test_answers_are_slices_and_figures_those_of_the_files(trained):
    source = trained["source"]
    asked = list(
        side_texts.read_questions(trained["shards"], "validation", source.manifest).values()
    )
    answers, best, *odds = files(trained)
    assert list(answers) == [question.id for question in asked]
    assert trained["count"] == len(asked) < source.num_examples
    (objective,) = trained["config"].objectives
    for question in asked:
        ranked = best[question.id]
        spans = [span for span in ranked if span["text"]]
        assert 1 <= len(spans) <= 6
        texts = [span["text"] for span in ranked]
        assert len(set(texts)) == len(texts)
        for span in spans:
            assert question.context[span["start"] : span["end"]] == span["text"]
            ids = source.tokenizer.encode([span["text"]])[0]
            assert objective.form != "independent" or len(ids) <= 6
        scores = np.array([span["score"] for span in ranked])
        assert (np.diff(scores) <= 0).all()
        chances = np.exp(scores) / np.exp(scores).sum()
        assert [span["probability"] for span in ranked] == pytest.approx(list(chances), abs=1e-6)
        if trained["no_answers"]:
            against = odds[0][question.id]
            assert answers[question.id] == ("" if against > 0 else spans[0]["text"])
            if objective.form == "independent":
                (null,) = [span["score"] for span in ranked if not span["text"]]
                assert against == pytest.approx(null - spans[0]["score"], abs=1e-4)
        else:
            assert answers[question.id] == spans[0]["text"] == ranked[0]["text"]
    # The same figures as of the file, by which no answer is an answer like any other.
    right = {question.id: question.answers for question in asked}
    figures = squad_metrics.evaluate(answers, right, trained["no_answers"])
    for name, value in figures.items():
        assert trained["figures"][name] == pytest.approx(value, abs=1e-9), name
    if trained["no_answers"]:
        threshold = trained["figures"]["best_f1_threshold"]
        decided = {
            question.id: ""
            if odds[0][question.id] > threshold
            else next(span["text"] for span in best[question.id] if span["text"])
            for question in asked
        }
        if threshold == 0:  # the search begins with no answer at all, and calls that 0
            decided = dict.fromkeys(right, "")
        figures = squad_metrics.evaluate(decided, right, True)
        assert trained["figures"]["best_f1"] == pytest.approx(figures["f1"], abs=1e-9)
        assert trained["figures"]["best_f1"] >= trained["figures"]["f1"]


@pytest.mark.slow
@pytest.mark.long
def test_served_answers_are_those_of_prediction(trained, tmp_path):
    saved = tmp_path / "saved"
    assert saved_model.export(trained["model_dir"], saved, "last") == ("answer", 32)
    served = tf.saved_model.load(str(saved)).signatures
    kinds = {"answer", "serving_default"}
    if trained["config"].objectives[0].form == "independent":
        kinds |= {"tokens", "serve", "serve_examples"}
    assert set(served) == kinds
    manifest = trained["source"].manifest
    asked = list(side_texts.read_questions(trained["shards"], "validation", manifest).values())
    answers, best, *odds = files(trained)
    actual = served["serving_default"](
        question=tf.constant([question.text for question in asked]),
        context=tf.constant([question.context for question in asked]),
    )
    for i, question in enumerate(asked):
        text = actual["answer"][i].numpy().decode()
        start, end = int(actual["start"][i]), int(actual["end"][i])
        span = next(span for span in best[question.id] if span["text"])
        assert text == answers[question.id] == question.context[start:end]
        assert float(actual["score"][i]) == pytest.approx(span["score"], abs=1e-5)
        if trained["no_answers"]:
            assert float(actual["null_odds"][i]) == pytest.approx(odds[0][question.id], abs=1e-5)
        if text:
            assert (start, end) == (span["start"], span["end"])
    # What else may come to the door: nothing, blanks, bytes that are no text, a very long context.
    long = " ".join(small.WORDS[i % 60] for i in range(700))
    contexts = [b"", b" ", b"ba \xff\xfe be", long.encode(), b"b\xc3 \xed\xa0 x"]
    actual = served["answer"](
        question=tf.constant([b"ba", b"", b"\xff", b"be", b"bi"]), context=tf.constant(contexts)
    )
    for i, context in enumerate(contexts):
        start, end = int(actual["start"][i]), int(actual["end"][i])
        text = context.decode(errors="replace")
        assert actual["answer"][i].numpy().decode() == text[start:end]
    assert all(np.isfinite(actual["score"][2:]))
    empty = served["answer"](
        question=tf.constant([], tf.string), context=tf.constant([], tf.string)
    )
    assert empty["answer"].shape == (0,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="different numbers of texts"):
        served["answer"](question=tf.constant(["a"]), context=tf.constant(["a", "b"]))
    if "tokens" in kinds:
        ids = np.array([[2, 9, 3, 7, 8, 3]], np.int32)
        mask, types = np.ones_like(ids), np.array([[0, 0, 0, 1, 1, 1]], np.int32)
        logits = served["tokens"](input_word_ids=ids, input_mask=mask, input_type_ids=types)
        model = trained["model"]
        batch = {"token_ids": ids, "padding_mask": mask > 0, "segment_ids": types}
        states = model.encode(batch)["sequence_output"]
        expected = model.objectives[0].boundary_logits(states)
        for name, values in zip(("start_logits", "end_logits"), expected, strict=True):
            assert np.allclose(logits[name], values, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_long_context_is_read_a_few_windows_at_a_time(trained, monkeypatch):
    config, tokenizer, model = model_folder.restore(trained["model_dir"], "last")
    task = task_file.read(trained["model_dir"])
    weights = Weights([model.encoder, model.objectives[0]])
    source = ServedModel(config, tokenizer, model, 32, task)
    parts = inputs.ServingContext(**vars(source), weights=weights, head=model.objectives[0])
    answerer = span_answer.Answerer(parts)
    words = [small.WORDS[i % 60] for i in range(150)]
    texts = tf.constant(["ba", "be"]), tf.constant([" ".join(words), " ".join(words[:31])])
    many = answerer.answer(*texts)
    monkeypatch.setattr(length_groups, "POSITIONS", 100)
    few = answerer.answer(*texts)
    for name, value in many.items():
        value, other = value.numpy(), few[name].numpy()
        same = np.array_equal if value.dtype.kind != "f" else np.allclose
        assert same(value, other), name
    # The same as with windows of one question at a time.
    alone = answerer.answer(texts[0][1:], texts[1][1:])
    assert few["answer"][1] == alone["answer"][0]


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["bert"], indirect=True)
def test_refusals(trained, tmp_path):
    strategy = tf.distribute.get_strategy()
    parts = Evaluator(trained["config"], trained["model"], strategy), trained["source"]
    with pytest.raises(
        UserError, match="answers: is there already: answers are written into a new"
    ):
        write_predictions(*parts, trained["output"])
    with pytest.raises(UserError, match="a.tsv: is the name of a file"):
        write_predictions(*parts, tmp_path / "a.tsv")
    with pytest.raises(UserError, match="--inputs=pair: not supported for this model, whose"):
        saved_model.export(trained["model_dir"], tmp_path / "saved", "last", inputs="pair")
    with pytest.raises(UserError, match="max_length: 9 has no room for a question"):
        saved_model.export(trained["model_dir"], tmp_path / "saved", "last", max_length=9)
    other = configs.from_dict(
        {
            "name": "x",
            "encoder": BERT,
            "objectives": [{"type": "regression"}],
            "recipe": {"steps": 1},
        }
    )
    with pytest.raises(UserError, match="no objective span_answer: its objectives are regression"):
        write_predictions(
            Evaluator(other, trained["model"], strategy), trained["source"], tmp_path / "new"
        )
