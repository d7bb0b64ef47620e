"""The records of a run."""

import math

import pytest

from official.saving import metrics_log
from official.saving.metrics_log import Record
from official.utils.errors import UserError


def write(folder, text):
    (folder / metrics_log.FILE).write_text(text)
    return folder


def test_records_are_read_in_the_order_of_their_steps(tmp_path):
    write(
        tmp_path,
        '{"step": 4, "split": "train", "loss": 2}\n'
        '{"step": 4, "split": "validation", "loss": "nan"}\n'
        '{"step": 2, "split": "train", "loss": 3.5}\n'
        '{"step": 4, "split": "train", "loss": 1}\n'
        '{"step": 6, "split": "tr',
    )
    *train, validation = sorted(metrics_log.read(tmp_path), key=lambda record: record.split)
    assert train == [Record(2, "train", {"loss": 3.5}), Record(4, "train", {"loss": 1.0})]
    assert validation[:2] == (4, "validation") and math.isnan(validation.metrics["loss"])
    assert [record.step for record in metrics_log.read(tmp_path)] == [2, 4, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "metrics.jsonl has no metrics yet: a run writes them after recipe.report_every steps"),
        ("[1]\n", "metrics.jsonl, line 1: a list, expected an object: the line is damaged"),
        ("{\n", r"line 1: not JSON .*: the line is damaged; remove it"),
        ('{"step": -1, "split": "train"}\n', "line 1: step: -1 is not a whole number from 0 on"),
        ('{"step": 1, "split": 2}\n', "line 1: split: 2 is not a name"),
        ('{"step": 1, "split": "train", "loss": "x"}\n', "line 1: loss: 'x' is not a number"),
    ],
)
def test_damaged_files_are_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        metrics_log.read(write(tmp_path, text))


def test_folders_without_metrics_are_refused(tmp_path):
    with pytest.raises(UserError, match="none: no such folder: give the model folder of a train"):
        metrics_log.read(tmp_path / "none")
    with pytest.raises(UserError, match="there is no metrics.jsonl in it"):
        metrics_log.read(tmp_path)


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        (
            {"loss": 2.5, "masked_lm": 2.5, "masked_lm_accuracy": 0.5},
            {"masked_lm": 2.5, "masked_lm_accuracy": 0.5},
        ),
        # The total of two terms is a figure of its own, and so is one of a weighted term.
        (
            {"loss": 3.0, "masked_lm": 2.5, "next_sentence": 0.5},
            {"loss": 3.0, "masked_lm": 2.5, "next_sentence": 0.5},
        ),
        ({"loss": 5.0, "bilm": 2.5}, {"loss": 5.0, "bilm": 2.5}),
        # The task measures what its objective measures.
        (
            {"loss": 0.2, "classification": 0.2, "classification_accuracy": 0.9, "accuracy": 0.9,
             "f1": 0.9},
            {"classification": 0.2, "accuracy": 0.9, "f1": 0.9},
        ),
        # Of several tasks, each by itself.
        (
            {"a/loss": 0.5, "a/classification": 0.5, "b/loss": 0.5, "b/regression": 0.5,
             "average": 0.7},
            {"a/classification": 0.5, "b/regression": 0.5, "average": 0.7},
        ),
        ({"accuracy": 1.0, "f1": 1.0}, {"accuracy": 1.0, "f1": 1.0}),
        ({}, {}),
    ],
)  # fmt: skip
def test_each_figure_is_shown_once(metrics, shown):
    assert list(metrics_log.figures(metrics).items()) == list(shown.items())
