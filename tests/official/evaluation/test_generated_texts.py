"""Metrics and files of generated texts, from token ids that are written by hand."""

import contextlib
import json

import numpy as np
import pytest
import sacrebleu

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.evaluation import generated_texts, notes
from official.tasks import text_to_text as forms
from official.training import run as training_run
from official.utils.errors import UserError
from tests import small
from tfrecords_tools.tasks import builder as task_builder

WORDS = "a good film bad not entailment neutral contradiction entail 0 1 2 3 5 . 8".split()
WORDS += ["equivalent", "not_equivalent", "unanswerable", "_"]
CONFIG = configs.from_dict(
    {"name": "x", "objectives": [{"type": "seq2seq_lm"}], "recipe": {"steps": 1}}
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tokenizers.load(small.tokenizer_folder(tmp_path_factory.mktemp("t") / "t", WORDS))


def _scorer(folder, task, tokenizer, split="validation", suffix="tsv", **contents):
    files = {}
    for name, content in contents.items():
        folder.mkdir(exist_ok=True)
        files[name] = folder / f"{name}.{suffix}"
        files[name].write_text(content)
    task_builder.build(task, files, tokenizer, folder / "out", 32, report=lambda line: None)
    return generated_texts.Scorer(CONFIG, ShardDataset(folder / "out", CONFIG, split))


def _outputs(tokenizer, texts, rows=None, length=6):
    """What an evaluation gives for texts, with a row of filler at the end."""
    ids = np.zeros((len(texts) + 1, length), np.int32)
    for row, text in enumerate(texts):
        pieces = [*tokenizer.encode([text])[0], tokenizer.sep_id][:length]
        ids[row, : len(pieces)] = pieces
    rows = np.arange(len(texts)) if rows is None else np.array(rows)
    return {
        "generated_ids": ids,
        "row": np.append(rows, 0),
        "example_weights": np.append(np.ones(len(texts)), 0),
    }


def test_an_answer_outside_the_labels_is_wrong(tmp_path, tokenizer):
    labels = ["entailment", "neutral", "contradiction", "neutral"]
    lines = ["sentence1\tsentence2\tgold_label", *(f"a\tfilm\t{label}" for label in labels)]
    task = forms.from_task(tasks.find("mnli"))
    scorer = _scorer(tmp_path, task, tokenizer, validation="\n".join(lines))
    for texts, accuracy in (
        (labels, 1.0),
        (["entailment", "entail", "contradiction", "not"], 0.5),
        (["entailment entailment", "neutral neutral", "", "neutral"], 0.25),
    ):
        assert scorer.metrics(_outputs(tokenizer, texts)) == {"accuracy": accuracy}, texts


def test_labels_of_a_vocabulary_that_spells_them_otherwise(tmp_path, tokenizer):
    """The tokenizer splits `not_equivalent` at its underscore, and decodes it with blanks."""
    lines = "Quality\t#1 String\t#2 String\n0\ta\tfilm\n1\ta\tfilm\n1\tgood\tbad\n"
    task = forms.from_task(tasks.find("mrpc"))
    scorer = _scorer(tmp_path, task, tokenizer, validation=lines)
    found = scorer.metrics(_outputs(tokenizer, ["not_equivalent", "equivalent", "film"]))
    # One of two positive rows is found, and nothing else is taken for positive.
    assert found == pytest.approx({"accuracy": 2 / 3, "f1": 2 / 3})


def test_scores_are_compared_with_the_exact_ones(tmp_path, tokenizer):
    scores = [3.75, 0.5, 2.0, 5.0]
    lines = ["sentence1\tsentence2\tscore", *(f"a\tfilm\t{score}" for score in scores)]
    task = forms.from_task(tasks.find("stsb"))
    scorer = _scorer(tmp_path, task, tokenizer, validation="\n".join(lines))
    # This tokenizer decodes "3.8" with blanks round the point.
    found = scorer.metrics(_outputs(tokenizer, ["3.8", "0.5", "good", "5.0"]))
    given = [3.8, 0.5, -1.0, 5.0]
    assert found["pearson"] == pytest.approx(np.corrcoef(scores, given)[0, 1], abs=1e-9)
    assert set(found) == {"pearson", "spearman"}


def test_questions_with_several_answers(tmp_path, tokenizer):
    asked = [
        {"id": "q1", "question": "a?", "answers": [
            {"text": "good film", "answer_start": 2}, {"text": "film", "answer_start": 7}]},
        {"id": "q2", "question": "bad?", "answers": [{"text": "a good", "answer_start": 0}]},
    ]  # fmt: skip
    content = {"data": [{"paragraphs": [{"context": "a good film.", "qas": asked}]}]}
    task = forms.from_task(tasks.find("squad1"))
    scorer = _scorer(tmp_path, task, tokenizer, suffix="json", validation=json.dumps(content))
    found = scorer.metrics(_outputs(tokenizer, ["film", "good bad"]))
    # Exact: the second answer counts. F1 of "good bad" and "good": precision 1/2, recall 1.
    assert found == pytest.approx({"f1": (1 + 2 / 3) / 2, "exact_match": 0.5})
    scorer.write(_outputs_without_filler(tokenizer, ["film", "bad"]), tmp_path / "p.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert lines == [
        {"row": 0, "id": "q1", "text": "film"}, {"row": 1, "id": "q2", "text": "bad"},
    ]  # fmt: skip


def test_questions_without_an_answer(tmp_path, tokenizer):
    asked = [
        {"id": "q1", "question": "a?", "answers": [], "is_impossible": True},
        {"id": "q2", "question": "bad?", "answers": [{"text": "good", "answer_start": 2}]},
    ]
    content = {"data": [{"paragraphs": [{"context": "a good film.", "qas": asked}]}]}
    task = forms.from_task(tasks.find("squad2"))
    scorer = _scorer(tmp_path, task, tokenizer, suffix="json", validation=json.dumps(content))
    found = scorer.metrics(_outputs(tokenizer, ["unanswerable", "unanswerable"]))
    assert (found["exact_match"], found["no_answer_f1"], found["has_answer_f1"]) == (0.5, 1, 0)


def test_exact_match_of_generated_texts(tmp_path, tokenizer):
    task = forms.generation("x", "y")
    lines = "x\ty\na\tgood film\nb\tBad film\nc\ta film\n"
    scorer = _scorer(tmp_path, task, tokenizer, validation=lines)
    # The vocabulary has lower case only, so the second target is "bad film".
    found = scorer.metrics(_outputs(tokenizer, ["good film", "bad film", "film a"]))
    assert found == {"exact_match": pytest.approx(2 / 3)}


def test_corpus_metrics_of_generated_texts(tmp_path, tokenizer):
    task = forms.generation("x", "y", metrics=["rouge_1", "bleu", "exact_match"])
    lines = "x\ty\na\ta good film\nb\ta bad film\n"
    scorer = _scorer(tmp_path, task, tokenizer, validation=lines)
    found = scorer.metrics(_outputs(tokenizer, ["a good film", "a good film"]))
    # The texts have no n-grams of four words, so the geometric mean is 0.
    assert list(found) == ["rouge_1", "bleu", "exact_match"]
    assert found["rouge_1"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["exact_match"] == 0.5
    assert found["bleu"] == 0
    with pytest.raises(UserError, match="texts have no metric 'accuracy'"):
        forms.generation("x", "y", metrics=["accuracy"])


def _outputs_without_filler(tokenizer, texts, rows=None):
    return {name: value[:-1] for name, value in _outputs(tokenizer, texts, rows).items()}


def test_files(tmp_path, tokenizer):
    task = forms.from_task(tasks.find("rte"))
    task = tasks.generic("classification", "x", label="y", labels=["good", "bad"])
    scorer = _scorer(
        tmp_path, forms.from_task(task), tokenizer, "test",
        train="x\ty\na\tgood\n", test="x\na film\nnot good\nbad\n",
    )  # fmt: skip
    outputs = _outputs_without_filler(tokenizer, ["good", "film film", "bad"], [2, 0, 1])
    scorer.write(outputs, tmp_path / "p.tsv")
    assert (tmp_path / "p.tsv").read_text() == (
        "row\ttext\tlabel\n0\tfilm film\t\n1\tbad\tbad\n2\tgood\tgood\n"
    )
    scorer.write(outputs, tmp_path / "p.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert lines[0] == {"row": 0, "text": "film film", "label": None}
    with pytest.raises(UserError, match=r"p.csv: predictions are written as .tsv or .jsonl"):
        scorer.check_output(tmp_path / "p.csv")
    with pytest.raises(UserError, match="the split has no answers to compare with"):
        scorer.metrics(_outputs(tokenizer, ["good", "good", "bad"]))


def test_classes_and_scores_for_a_submission(tmp_path, tokenizer):
    task = forms.from_task(tasks.find("rte"))
    scorer = _scorer(
        tmp_path / "a", task, tokenizer, "test",
        test="index\tsentence1\tsentence2\n0\ta\tfilm\n1\ta\tfilm\n2\ta\tfilm\n",
    )  # fmt: skip
    outputs = _outputs_without_filler(tokenizer, ["film", "not_entailment", "entailment"])
    found = scorer.classes_or_scores(outputs)["probabilities"]
    assert task.labels == ("entailment", "not_entailment")
    np.testing.assert_array_equal(found, [[0, 0], [0, 1], [1, 0]])
    task = forms.from_task(tasks.find("stsb"))
    scorer = _scorer(
        tmp_path / "b", task, tokenizer, "test", test="sentence1\tsentence2\na\tb\na\tb\n"
    )
    outputs = _outputs_without_filler(tokenizer, ["3.8", "film"])
    np.testing.assert_array_equal(scorer.classes_or_scores(outputs)["score"], [3.8, -1])


def test_decoded_ids(tokenizer):
    size, end = tokenizer.vocab_size, tokenizer.sep_id
    good, film = tokenizer.encode(["good film"])[0]
    for ids, wanted in (
        ([good, film, end, good], "good film"),
        ([good, 0, film], "good film"),
        ([end, good], ""),
        ([good, size + 3, end], "good [UNK]"),
    ):
        assert generated_texts.decoded(np.array(ids), tokenizer) == wanted


def test_a_metric_that_finds_nothing_does_not_pick_a_checkpoint(tmp_path, tokenizer):
    lines = "x\ty\na\t他在北京。\nb\t你在\n"
    folder = tmp_path / "a"
    task = forms.generation("x", "y", metrics=["bleu", "rouge_2"], rouge_words="unicode")
    _scorer(folder, task, tokenizer, train=lines, validation=lines)
    source = ShardDataset(folder / "out", CONFIG, "validation")
    assert source.task.bleu_tokenization == "intl" and source.task.rouge_words == "unicode"
    assert list(notes.of_source(source)) == [
        f"validation: bleu with the tokenization intl (sacrebleu {sacrebleu.__version__})",
        "validation: 100.0% of the right texts have less than 4 words by this rule, and bleu finds "
        "nothing in them",
        "validation: rouge_2 of unicode words",
    ]
    with pytest.raises(UserError, match="bleu with the tokenization intl .* is 0 for the right"):
        notes.check_best("bleu", source)
    notes.check_best("rouge_2", source)
    run = {
        "name": "x",
        "encoder": {"type": "encoder_decoder", "hidden_size": 8, "num_layers": 1, "num_heads": 2},
        "objectives": [{"type": "seq2seq_lm"}],
    }
    for best, refused in (("bleu", True), ("", True), ("rouge_2", False)):
        recipe = {"steps": 1, "batch_size": 2, "best_metric": best}
        config = configs.from_dict({**run, "recipe": recipe})
        with pytest.raises(UserError, match="is 0 for") if refused else contextlib.nullcontext():
            training_run.check(config, folder / "out", tmp_path / "model")
    with pytest.raises(UserError, match="no target has a letter a to z .*--rouge_words=unicode"):
        task = forms.generation("x", "y", metrics=["rouge_1"])
        _scorer(tmp_path / "b", task, tokenizer, validation=lines)
    with pytest.raises(UserError, match="--bleu_tokenization=zh is for the metric bleu: name it"):
        forms.generation("x", "y", metrics=["chrf"], bleu_tokenization="zh")
