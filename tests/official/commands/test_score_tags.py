"""F1 of two files of tags or spans, and of their surface forms."""

import json
import random

import pytest
from seqeval.metrics import sequence_labeling

from official.evaluation.tags import score_files
from official.tasks.named_tasks import CONLL_COLUMNS
from official.tasks.task import Columns
from official.utils.errors import UserError
from tests import commands

LABELS = ("O", "B-X", "B-Y", "I-X", "I-Y")


def score(tmp_path, gold, predicted, suffix="conll"):
    paths = [tmp_path / f"{name}.{suffix}" for name in ("gold", "predicted")]
    for path, text in zip(paths, (gold, predicted), strict=True):
        path.write_text(text)
    return score_files(*paths, CONLL_COLUMNS, CONLL_COLUMNS)


def conll(words, tags):
    return "".join(
        "".join(f"{w}\t{t}\n" for w, t in zip(*pair, strict=True)) + "\n"
        for pair in zip(words, tags, strict=True)
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_words_are_scored_as_seqeval_does(tmp_path):
    for seed in range(20):
        draw = random.Random(seed)
        words = [draw.choices("abc", k=draw.randint(1, 7)) for _ in range(6)]
        true = [[draw.choice(LABELS) for _ in text] for text in words]
        true[0][0] = "B-X"
        guess = [[t if draw.random() < 0.7 else draw.choice(LABELS) for t in x] for x in true]
        mine, count = score(tmp_path, conll(words, true), conll(words, guess))
        assert count == 6
        assert mine["f1"] == sequence_labeling.f1_score(true, guess)
        assert mine["accuracy"] == sequence_labeling.accuracy_score(true, guess)
        # The same entities as spans of texts.
        spans = []
        for tags in (true, guess):
            rows = []
            for text, row in zip(words, tags, strict=True):
                found = sequence_labeling.get_entities(row)
                each = [{"start": 2 * a, "end": 2 * b + 1, "type": kind} for kind, a, b in found]
                rows.append(json.dumps({"text": " ".join(text), "spans": each}) + "\n")
            spans.append("".join(rows))
        others, _ = score(tmp_path, *spans, suffix="jsonl")
        for name in others:
            assert others[name] == pytest.approx(mine[name], rel=1e-12), name


def test_surface_forms_are_counted_once(tmp_path):
    """Three forms are right; a b X is found once of twice, c Y at another place, d is missed."""
    words = [["a", "b", "x", "a", "b"], ["c", "x", "c"], ["d"]]
    true = [["B-X", "I-X", "O", "B-X", "I-X"], ["B-Y", "O", "O"], ["B-Y"]]
    guess = [["B-X", "I-X", "O", "O", "B-X"], ["O", "O", "B-Y"], ["O"]]
    mine, _ = score(tmp_path, conll(words, true), conll(words, guess))
    # True forms: a b (X), c (Y), d (Y). Found: a b (X), b (X), c (Y). Right in its place: a b (X).
    names = ("surface_precision", "surface_recall", "surface_f1")
    assert [mine[name] for name in names] == pytest.approx([1 / 3] * 3)
    assert (mine["precision"], mine["recall"]) == (1 / 3, 1 / 4)
    nothing, _ = score(tmp_path, "a O\n", "a O\n")
    assert nothing["f1"] == nothing["surface_f1"] == 0


def test_files_that_cannot_be_compared(tmp_path):
    with pytest.raises(UserError, match="has 1 texts and .* 2: give the predictions of all"):
        score(tmp_path, "a O\n", "a O\n\nb O\n")
    message = "gold.conll, line 1 and .*predicted.conll, line 1: the texts differ: 'b' beside 'c d'"
    with pytest.raises(UserError, match=message):
        score(tmp_path, "a O\nb O\n", "a O\nc O\nd O\n")
    rows = ['{"text": "a", "spans": []}', '{"tokens": ["a"], "tags": ["O"]}']
    with pytest.raises(UserError, match="a text beside words: give both files as words"):
        score(tmp_path, *rows, suffix="jsonl")


def test_columns_of_one_file(tmp_path):
    path = tmp_path / "both.conll"
    path.write_text("a B-X O\nb O B-X\nc B-Y B-Y\n")
    first, second = (Columns("0", None, column, header=False) for column in ("1", "2"))
    metrics, _ = score_files(path, path, first, second)
    assert (metrics["f1"], metrics["accuracy"]) == (0.5, 1 / 3)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    (tmp_path / "a.conll").write_text("a B-X\nb O\n")
    command = ["official.commands.score_tags", f"--gold={tmp_path}/a.conll"]
    said = commands.run(*command, f"--predicted={tmp_path}/a.conll", status=0).stdout
    assert said.splitlines()[0].split() == ["texts", "1"]
    assert dict(map(str.split, said.splitlines()))["surface_f1"] == "1.000000"


def test_files_in_different_spellings(tmp_path):
    """Gold in BILOU, predictions of a model that was trained on it in BIOES; and without types."""
    gold = "a B-X\nb L-X\nc U-Y\nd O\n"
    metrics, _ = score(tmp_path, gold, "a B-X\nb E-X\nc S-Y\nd O\n")
    assert metrics["f1"] == metrics["strict_f1"] == metrics["accuracy"] == 1
    metrics, _ = score(tmp_path, "a B\nb I\nc O\nd B\n", "a B\nb I\nc O\nd O\n")
    assert (metrics["precision"], metrics["recall"], metrics["f1__"]) == (1, 0.5, 2 / 3)
    metrics, _ = score(tmp_path, "a B\nb V\n", "a B\nb B\n")  # labels of words
    assert metrics["accuracy"] == 0.5 and "f1" not in metrics


def test_predictions_beside_conllu(tmp_path):
    lines = [(1, "Vado", "VERB"), ("2-3", "al", "_"), (2, "a", "ADP"), (3, "il", "DET")]
    gold, predicted = tmp_path / "gold.conllu", tmp_path / "predicted.conll"
    gold.write_text(
        "# text\n" + "".join(f"{i}\t{w}\t_\t{t}" + "\t_" * 6 + "\n" for i, w, t in lines)
    )
    predicted.write_text("Vado VERB\na ADP\nil NOUN\n")
    metrics, _ = score_files(gold, predicted, CONLL_COLUMNS, CONLL_COLUMNS)
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    predicted.write_text("Vado VERB\nal ADP+DET\n")
    metrics, _ = score_files(gold, predicted, CONLL_COLUMNS, CONLL_COLUMNS, (), "surface")
    assert metrics["accuracy"] == 1
