"""Windows are joined to the tags of words, and seqeval scores them."""

import json
import random
import types

import numpy as np
import pytest
from seqeval.metrics import sequence_labeling
from seqeval.scheme import IOB2, IOBES
from sklearn.metrics import accuracy_score, f1_score

from official.evaluation import tags
from official.shards.side_texts import TaggedText
from official.utils.errors import UserError

LABELS = ("O", "B-X", "B-Y", "I-X", "I-Y")


def scorer(texts, labels=LABELS):
    result = object.__new__(tags.Scorer)
    result.texts, result._labels = texts, labels
    return result


def windows(predicted, rng, width=4):
    """Outputs of windows of two own words each, in any order, with values without a meaning."""
    rows = []
    for row, text in enumerate(predicted):
        for first in range(0, max(1, len(text)), 2):
            ids, numbers = np.full(width, -1), np.array([rng.randrange(5) for _ in range(width)])
            for k, word in enumerate(range(first, min(first + 2, len(text)))):
                ids[k + 1], numbers[k + 1] = word, LABELS.index(text[word])
            rows.append((row, ids, numbers))
    rng.shuffle(rows)
    return {
        "row": np.array([row for row, _, _ in rows] + [0]),
        "word_ids": np.array([ids for _, ids, _ in rows] + [np.arange(width)]),
        "tags": np.array([numbers for _, _, numbers in rows] + [np.zeros(width, int)]),
        "tag_probabilities": np.full((len(rows) + 1, width), 0.5),
        "example_weights": np.array([1.0] * len(rows) + [0.0]),  # the last is filler
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_metrics_are_those_of_seqeval_on_500_files():
    for seed in range(500):
        rng = random.Random(seed)
        texts = [[rng.choice(LABELS) for _ in range(rng.randint(1, 7))] for _ in range(4)]
        texts[0][0] = "B-X"
        guess = [[t if rng.random() < 0.7 else rng.choice(LABELS) for t in text] for text in texts]
        tagged = [TaggedText(tuple("w" * len(text)), tuple(text)) for text in texts]
        mine = scorer(tagged).metrics(windows(guess, rng))
        how = {"average": "micro", "zero_division": 0}
        assert mine["f1"] == sequence_labeling.f1_score(texts, guess)
        assert mine["precision"] == sequence_labeling.precision_score(texts, guess)
        assert mine["recall"] == sequence_labeling.recall_score(texts, guess)
        assert mine["accuracy"] == sequence_labeling.accuracy_score(texts, guess)
        macro = sequence_labeling.f1_score(texts, guess, average="macro", zero_division=0)
        assert mine["macro_f1"] == macro
        strict = sequence_labeling.f1_score(texts, guess, mode="strict", scheme=IOB2, **how)
        assert mine["strict_f1"] == strict


def test_strict_metrics_of_bioes_and_of_no_entity():
    true, guess = [["B-X", "E-X", "O", "S-X"]], [["B-X", "I-X", "O", "S-X"]]
    mine = tags.compute(true, guess)
    assert (mine["f1"], mine["strict_f1"]) == (1.0, 2 / 3)
    expected = sequence_labeling.f1_score(true, guess, mode="strict", scheme=IOBES)
    assert mine["strict_f1"] == expected
    assert mine["f1_X"] == 1.0
    nothing = tags.compute([["O"]], [["O"]])
    assert (nothing["f1"], nothing["strict_f1"], nothing["accuracy"]) == (0.0, 0.0, 1.0)
    assert nothing["macro_f1"] == 0.0  # seqeval's mean of no type is NaN


def test_files(tmp_path):
    texts = [TaggedText(("ab", "\u200b", "cd"), None), TaggedText(("ef",), None)]
    outputs = {
        "row": np.array([1, 0, 0]),
        "word_ids": np.array([[-1, 0], [0, -1], [-1, 2]]),
        "tags": np.array([[3, 0], [1, 4], [4, 3]]),
        "tag_probabilities": np.array([[0.1, 0.9], [0.8, 0.1], [0.2, 0.6]]),
    }
    mine = scorer(texts)
    mine.write(outputs, tmp_path / "a.conll")
    assert (tmp_path / "a.conll").read_text() == "ab B-X\n\u200b O\ncd I-X\n\nef O\n\n"
    mine.write(outputs, tmp_path / "a.jsonl")
    first = json.loads((tmp_path / "a.jsonl").read_text().split("\n")[0])
    assert first["tags"] == ["B-X", "O", "I-X"]
    assert first["entities"] == [
        {"type": "X", "text": "ab", "start": 0, "end": 1, "score": 0.8},
        {"type": "X", "text": "cd", "start": 2, "end": 3, "score": 0.6},
    ]
    with pytest.raises(UserError, match="has no tags to compare with"):
        mine.metrics({**outputs, "example_weights": np.ones(3)})


def test_entities_are_parts_of_the_text(tmp_path):
    text = "(Ada  Lovelace) and Ye\u0301 👍🏽 York"
    places = ((0, 1), (1, 4), (6, 14), (14, 15), (16, 19), (20, 23), (24, 26), (27, 31))
    words = tuple(text[a:b] for a, b in places)
    mine = scorer([TaggedText(words, None, text, places)])
    outputs = {
        "row": np.array([0]),
        "word_ids": np.array([range(8)]),
        "tags": np.array([[0, 1, 3, 0, 0, 0, 2, 4]]),
        "tag_probabilities": np.full((1, 8), 0.5),
    }
    mine.write(outputs, tmp_path / "a.jsonl")
    record = json.loads((tmp_path / "a.jsonl").read_text())
    assert record["text"] == text and record["words"] == list(words)
    found = [(each["text"], each["start"], each["end"]) for each in record["entities"]]
    assert found == [("Ada  Lovelace", 1, 14), ("👍🏽 York", 24, 31)]
    assert all(text[start:end] == part for part, start, end in found)


def test_words_with_blanks_are_separated_by_tabs(tmp_path):
    outputs = {
        "row": np.array([0]), "word_ids": np.array([[0, 1]]), "tags": np.array([[1, 0]]),
        "tag_probabilities": np.ones((1, 2)),
    }  # fmt: skip
    scorer([TaggedText(("New York", "is"), None)]).write(outputs, tmp_path / "a.conll")
    assert (tmp_path / "a.conll").read_text() == "New York\tB-X\nis\tO\n\n"


def test_other_files_are_refused(tmp_path):
    mine = types.SimpleNamespace()
    with pytest.raises(UserError, match="tags are written as .conll or .jsonl"):
        tags.Scorer.check_output(mine, tmp_path / "a.tsv")


def test_metrics_of_tags_that_mark_no_entities():
    """Those of scikit-learn; a word without a token is O, which is always wrong."""
    labels = ("DET", "NOUN", "VERB")
    rng = random.Random(0)
    true = [[rng.choice(labels) for _ in range(rng.randint(1, 7))] for _ in range(20)]
    guess = [[t if rng.random() < 0.6 else rng.choice((*labels, "O")) for t in r] for r in true]
    mine = tags.compute(true, guess)
    flat = [sum(rows, []) for rows in (true, guess)]
    assert mine["accuracy"] == pytest.approx(accuracy_score(*flat))
    assert mine["macro_f1"] == pytest.approx(f1_score(*flat, average="macro", labels=labels))
    each = f1_score(*flat, average=None, labels=labels)
    assert [mine[f"f1_{label}"] for label in labels] == pytest.approx(each.tolist())
    assert set(mine) == {"accuracy", "macro_f1", *(f"f1_{label}" for label in labels)}


def test_gold_spans_that_are_widened_in_tags_are_missed():
    """The words are those of the text, and the first entity ends inside of its word."""
    text, places = "abcd ef gh", ((0, 4), (5, 7), (8, 10))
    gold = ("B-X", "B-Y", "O")
    widened = TaggedText(("abcd", "ef", "gh"), gold, text, places, ((0, 2, "X"), (5, 7, "Y")))
    outputs = {
        "row": np.array([0]),
        "word_ids": np.array([range(3)]),
        "tags": np.array([[1, 2, 0]]),
        "tag_probabilities": np.full((1, 3), 0.5),
        "example_weights": np.ones(1),
    }
    metrics = scorer([widened]).metrics(outputs)
    assert (metrics["f1"], metrics["precision"], metrics["recall"]) == (0.5, 0.5, 0.5)
    assert (metrics["f1_X"], metrics["f1_Y"], metrics["macro_f1"]) == (0, 1, 0.5)
    assert metrics["strict_f1"] == metrics["surface_f1"] == 0.5 and metrics["accuracy"] == 1
    assert scorer([widened._replace(spans=None)]).metrics(outputs)["f1"] == 1
    outputs["tags"] = np.array([[0, 4, 0]])  # I-Y begins an entity, but not in strict mode
    metrics = scorer([widened]).metrics(outputs)
    assert (metrics["precision"], metrics["recall"], metrics["strict_f1"]) == (1, 0.5, 0)
