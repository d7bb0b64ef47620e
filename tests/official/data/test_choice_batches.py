"""Batches of questions with choices, and what is trained, predicted and served from them."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import TransformerXLConfig
from official.config.heads import ClassificationConfig
from official.data import ShardDataset
from official.distribution import strategies
from official.evaluation.evaluator import Evaluator
from official.evaluation.run import write_predictions
from official.saving import task_file
from official.serving.export import saved_model
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import choices, small
from tests.official.commands.test_export import ask

PAD, CLS, SEP = 0, 2, 3
QUESTIONS = choices.rows(11, longest=24)
T = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return choices.shards(
        tmp_path_factory.mktemp("choices") / "shards", train=QUESTIONS, validation=QUESTIONS[:7]
    )


def packed(tokenizer, question):
    """The sequences of a question, by hand."""
    result = []
    for choice in question["choices"]:
        context, asked = tokenizer.encode([question["context"], f"{question['question']} {choice}"])
        context = context[: T - 3 - len(asked)]
        result.append(([CLS, *context, SEP], [*asked, SEP]))
    return result


def arrays(batches):
    return [{name: value.numpy() for name, value in batch.items()} for batch in batches]


def check_rows(batch, tokenizer, layout="cls_first"):
    """Every sequence of a batch is the one of its row's question and choice."""
    places = batch["token_ids"].shape[2]
    for i, row in enumerate(batch["row"]):
        for j, (first, second) in enumerate(packed(tokenizer, QUESTIONS[row])):
            ids, segments = [*first, *second], [0] * len(first) + [1] * len(second)
            fill = places - len(ids)
            if layout == "cls_last":
                ids = [PAD] * fill + ids[1:] + [CLS]
                segments = [4] * fill + segments[1:] + [2]
                mask = [False] * fill + [True] * (places - fill)
            else:
                mask = [True] * len(ids) + [False] * fill
                ids, segments = ids + [PAD] * fill, segments + [0] * fill
            assert batch["token_ids"][i, j].tolist() == ids
            assert batch["segment_ids"][i, j].tolist() == segments
            assert batch["padding_mask"][i, j].tolist() == mask
            assert batch["text_mask"][i, j].sum() == len(first) + len(second) - 3
        assert batch["answer"][i] == QUESTIONS[row]["answer"]


def test_a_pass_in_order_with_filler(folder):
    source = ShardDataset(folder, choices.config(), "train")
    batches = arrays(source.dataset(4))
    assert set(batches[0]) == source.fields
    assert [batch["token_ids"].shape for batch in batches] == [(4, 3, T)] * 3
    for batch in batches:
        check_rows(batch, source.tokenizer)
    rows = np.concatenate([batch["row"] for batch in batches])
    assert sorted(rows[:11]) == list(range(11)) and rows[11] == rows[8]
    weights = np.concatenate([batch["example_weights"] for batch in batches])
    assert weights.tolist() == [1.0] * 11 + [0.0]
    # Two workers with two replicas each read the same rows.
    parts = [
        arrays(source.dataset(4, workers=2, worker=worker, replicas_per_worker=2))
        for worker in range(2)
    ]
    for n, whole in enumerate(batches):
        shares = [parts[worker][2 * n + i] for worker in range(2) for i in range(2)]
        for name in whole:
            np.testing.assert_array_equal(
                np.concatenate([share[name] for share in shares]), whole[name], name
            )


def test_the_layout_of_xlnet(folder):
    encoder = TransformerXLConfig(
        vocab_size=200, hidden_size=8, num_layers=1, num_heads=1, intermediate_size=8
    )
    config = dataclasses.replace(choices.config(), encoder=encoder)
    source = ShardDataset(folder, config, "train")
    for batch in arrays(source.dataset(4)):
        check_rows(batch, source.tokenizer, "cls_last")


def test_buckets_go_by_the_longest_choice(folder):
    config = small.replace(choices.config(), bucket_lengths=(14, 18, T))
    source = ShardDataset(folder, config, "train")
    longest = [
        max(len(a) + len(b) for a, b in packed(source.tokenizer, question))
        for question in QUESTIONS
    ]
    widths = set()
    for batch in arrays(source.dataset(2)):
        check_rows(batch, source.tokenizer)
        width = batch["token_ids"].shape[2]
        for row in batch["row"]:
            assert width == min(bound for bound in (14, 18, T) if longest[row] <= bound)
        widths.add(width)
    assert len(widths) > 1


def test_shapes_are_static(folder):
    source = ShardDataset(folder, choices.config(), training=True)
    spec = source.dataset(8, workers=2, replicas_per_worker=2).element_spec
    assert {name: tuple(value.shape) for name, value in spec.items()} == {
        "token_ids": (2, 3, T), "segment_ids": (2, 3, T), "padding_mask": (2, 3, T),
        "text_mask": (2, 3, T), "row": (2,),
        "answer": (2,), "example_weights": (2,),
    }  # fmt: skip


def test_objectives_and_data_that_do_not_fit(folder, tmp_path):
    config = choices.config()
    classes = dataclasses.replace(config, objectives=(ClassificationConfig(num_labels=3),))
    source = ShardDataset(folder, classes, "validation")
    for predicting in (False, True):
        with pytest.raises(UserError, match="does not give label, which classification needs"):
            source.check(classes, predicting=predicting)
    # A test split without answers is there to be predicted.
    rows = [{k: v for k, v in question.items() if k != "answer"} for question in QUESTIONS]
    other = choices.shards(tmp_path / "other", train=QUESTIONS, test=rows)
    source = ShardDataset(other, config, "test")
    assert "answer" not in source.fields
    with pytest.raises(UserError, match="does not give answer, which multiple_choice needs"):
        source.check(config)
    source.check(config, predicting=True)
    assert config.objectives[0].needs() == {"answer"}


def still(**recipe):
    config = choices.config(encoder__dropout=0.0, encoder__attention_dropout=0.0)
    config = dataclasses.replace(
        config, objectives=tuple(dataclasses.replace(o, dropout=0.0) for o in config.objectives)
    )
    return small.replace(config, **{"steps": 5, "report_every": 1, **recipe})


def run(config, folder, model_dir, strategy=None):
    strategy = strategy or tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    source = ShardDataset(folder, config, "train", training=True)
    source.check(config, strategy.num_replicas_in_sync)
    Trainer(config, model, source, strategy, model_dir).train()
    return model, source


def losses(model_dir):
    lines = (model_dir / "metrics.jsonl").read_text().splitlines()
    return [r["loss"] for r in map(json.loads, lines) if r["split"] == "train"]


@pytest.mark.slow
@pytest.mark.long
def test_replicas_accumulation_and_buckets_change_nothing(folder, tmp_path, mirrored):
    run(still(), folder, tmp_path / "one")
    run(still(accumulation=2), folder, tmp_path / "two", mirrored(2))
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-5)
    actual = [
        Evaluator(config, strategies.build_model(config, strategy), strategy).run(
            ShardDataset(folder, config, "validation")
        )
        for config, strategy in (
            (still(), tf.distribute.get_strategy()),
            (still(eval_batch_size=4, bucket_lengths=(14, 18)), mirrored(2)),
        )
    ]
    assert actual[0].keys() == actual[1].keys() >= {"loss", "accuracy", "multiple_choice_accuracy"}
    for name, value in actual[0].items():
        np.testing.assert_allclose(actual[1][name], value, rtol=1e-5, err_msg=name)
    assert actual[0]["accuracy"] == pytest.approx(actual[0]["multiple_choice_accuracy"])


@pytest.mark.slow
@pytest.mark.long
def test_learned_predicted_and_served(tmp_path):
    train, test = choices.rows(160, seed=1), choices.rows(23, seed=2)
    # As odd as a server may get them: nothing left of the context, and much too much of it.
    test[3]["context"], test[4]["context"] = "\u00ad", "bada " * 90
    test[5]["question"], test[6]["choices"][0] = "", "ünïcødé 猫 😀"
    folder = choices.shards(tmp_path / "shards", train=train, test=test)
    config = small.replace(still(), steps=60, batch_size=16, report_every=30)
    model_dir = tmp_path / "model"
    model, source = run(config, folder, model_dir)
    configs.save(config, model_dir / "config.yaml")
    source.tokenizer.save(model_dir / "tokenizer")
    task_file.save(source.manifest, model_dir)

    strategy = tf.distribute.get_strategy()
    held_out = ShardDataset(folder, config, "test")
    evaluator = Evaluator(config, model, strategy)
    figures = evaluator.run(held_out)
    assert write_predictions(evaluator, held_out, tmp_path / "p.jsonl") == 23
    predicted = [json.loads(line) for line in (tmp_path / "p.jsonl").open()]
    truth = ["ABC"[row["answer"]] for row in test]
    hits = [line["label"] == letter for line, letter in zip(predicted, truth, strict=True)]
    assert figures["accuracy"] == pytest.approx(np.mean(hits))
    assert figures["accuracy"] > 0.8
    write_predictions(evaluator, held_out, tmp_path / "p.tsv")
    header, first, *_ = (tmp_path / "p.tsv").read_text().splitlines()
    assert header == "row\tlabel\tprobability:A\tprobability:B\tprobability:C"
    assert first.split("\t")[:2] == ["0", predicted[0]["label"]]

    assert saved_model.export(model_dir, tmp_path / "saved", "last") == ("choose", T)
    with pytest.raises(
        UserError,
        match="--inputs=pair: not supported for this model, whose signature `choose`",
    ):
        saved_model.export(model_dir, tmp_path / "again", "last", inputs="pair")
    requests = [
        (
            "serving_default",
            {
                name: [row[name] for row in test[start : start + size]]
                for name in ("context", "question", "choices")
            },
        )
        for size in (1, 6)
        for start in range(0, 23, size)
    ]
    broken = [b"bada \xff\xfe\x00", b"\xf0\x9f"]
    requests.append(
        ("serving_default", {"context": broken, "question": broken, "choices": [broken, broken]})
    )
    by_hand = packed(source.tokenizer, test[7])
    longest = max(len(first) + len(second) for first, second in by_hand)
    fill = [[0] * (longest - len(first) - len(second)) for first, second in by_hand]
    fields = [
        [[*first, *second, *rest] for (first, second), rest in zip(by_hand, fill, strict=True)],
        [[1] * (longest - len(rest)) + rest for rest in fill],
        [
            [0] * len(first) + [1] * len(second) + rest
            for (first, second), rest in zip(by_hand, fill, strict=True)
        ],
    ]
    names = ("input_word_ids", "input_mask", "input_type_ids")
    requests.append(("tokens", {name: [v] for name, v in zip(names, fields, strict=True)}))
    answers = ask(tmp_path / "saved", requests, tmp_path)
    expected = np.array([[line["probabilities"][name] for name in "ABC"] for line in predicted])
    for part in (answers[:23], answers[23:27]):
        actual = np.concatenate([answer["probabilities"] for answer in part])
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
        index = np.concatenate([answer["index"] for answer in part])
        assert index.tolist() == ["ABC".index(line["label"]) for line in predicted]
        chosen = [text.decode() for answer in part for text in answer["choice"]]
        assert chosen == [row["choices"][i] for row, i in zip(test, index, strict=True)]
    np.testing.assert_allclose(answers[27]["probabilities"].sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(answers[28]["probabilities"], expected[7:8], rtol=0, atol=1e-5)

    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    nothing = tf.zeros([0], tf.string)
    answer = serve(context=nothing, question=nothing, choices=tf.zeros([0, 2], tf.string))
    assert answer["probabilities"].shape == (0, 2) and answer["choice"].shape == (0,)
    one, two = tf.constant(["a"]), tf.constant([["a", "b"]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have the same number of rows"):
        serve(context=one, question=nothing, choices=two)
    with pytest.raises(tf.errors.InvalidArgumentError, match="each question needs at least one"):
        serve(context=one, question=one, choices=tf.zeros([1, 0], tf.string))
