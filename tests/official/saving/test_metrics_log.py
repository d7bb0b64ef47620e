"""The records of a run, and those of earlier versions, which had some metrics in percent."""

import json
import math

import pytest

from official.saving import metrics_log, task_file
from official.saving.metrics_log import Record
from official.tasks import Description, MixtureDescription
from official.training import reporting
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


SPAN = Description("squad2", "span", metrics=("f1", "exact_match"), no_answers=True)
NEWS = Description("news", "text_to_text", metrics=("rouge_1",), answers="generation")
QUESTIONS = Description("asked", "text_to_text", metrics=("f1",), answers="span")
PAIRS = Description("mrpc", "text_to_text", metrics=("accuracy", "f1"), answers="classification")
MIXTURE = MixtureDescription(("average",), {"asked": QUESTIONS, "mrpc": PAIRS, "news": NEWS})


@pytest.mark.parametrize(
    ("task", "old", "new"),
    [
        (None, {"loss": 3.0, "masked_lm_accuracy": 0.5}, {"loss": 3.0, "masked_lm_accuracy": 0.5}),
        (
            SPAN,
            {"loss": 3.0, "f1": 60.0, "best_f1": 80.0, "best_f1_threshold": 7.0,
             "no_answer_exact_match": 100.0, "span_answer_accuracy": 0.5},
            {"loss": 3.0, "f1": 0.6, "best_f1": 0.8, "best_f1_threshold": 7.0,
             "no_answer_exact_match": 1.0, "span_answer_accuracy": 0.5},
        ),
        (NEWS, {"rouge_1": 30.0, "exact_match": 0.25}, {"rouge_1": 0.3, "exact_match": 0.25}),
        (PAIRS, {"accuracy": 0.5, "f1": 0.4}, {"accuracy": 0.5, "f1": 0.4}),
        (
            MIXTURE,
            {"asked/f1": 60.0, "mrpc/accuracy": 0.8, "mrpc/f1": 0.7, "news/rouge_1": 10.0,
             "average": (60 + 0.8 + 10) / 3},
            {"asked/f1": 0.6, "mrpc/accuracy": 0.8, "mrpc/f1": 0.7, "news/rouge_1": 0.1,
             "average": (0.6 + 0.8 + 0.1) / 3},
        ),
    ],
)  # fmt: skip
def test_metrics_of_earlier_versions(task, old, new):
    assert metrics_log.fractions(old, task) == pytest.approx(new, abs=1e-12)


def test_a_state_of_an_earlier_version():
    best = {"step": 2, "metric": "f1", "value": 60.0}
    state = {"step": 4, "figures": {"f1": 50.0}, "best": best}
    assert metrics_log.rescaled_state(state, {}, SPAN) == {
        "step": 4, "figures": {"f1": 0.5}, "best": {"step": 2, "metric": "f1", "value": 0.6},
    }  # fmt: skip
    now = {"figures": {"f1": 0.5}, "best": {**best, "value": 0.6}, **metrics_log.SCALE}
    assert metrics_log.rescaled_state(now, {}, SPAN) == now
    # An average is made again from the best evaluation.
    best = {"step": 2, "metric": "average", "value": (60 + 0.8 + 10) / 3}
    found = {"asked/f1": 60.0, "mrpc/accuracy": 0.8, "news/rouge_1": 10.0, "average": 23.6}
    state = metrics_log.rescaled_state({"figures": {}, "best": best}, found, MIXTURE)
    assert state["best"]["value"] == pytest.approx(0.5)


def test_a_run_that_goes_on_has_one_scale(tmp_path):
    """The file of an earlier version is converted once, and read with the same values before."""
    (tmp_path / "task.json").write_text(
        json.dumps({"name": "squad2", "kind": "span", "metrics": ["f1"], "no_answers": True})
    )
    assert task_file.description(tmp_path).kind == "span"
    lines = [
        {"step": 2, "split": "train", "loss": 3.0},
        {"step": 2, "split": "validation", "f1": 60.0, "loss": "nan", "best_f1_threshold": 2.0},
        {"step": 4, "split": "validation", "f1": 70.0, "loss": 1.0},
    ]
    path = tmp_path / metrics_log.FILE
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [r.metrics.get("f1") for r in metrics_log.read(tmp_path)] == [None, 0.6, 0.7]
    for f1 in (0.71, 0.72):  # the second one is that of a run which was killed at step 2 again
        reporter = reporting.Reporter(tmp_path, 4, start_step=2)
        reporter.evaluation(4, {"f1": f1, "loss": 1.0}, "validation", "")
        reporter.close()
        first, old, new = map(json.loads, path.read_text().splitlines())
        assert first == lines[0] and old == {**lines[1], "scale": 1, "f1": 0.6}
        assert new == {**lines[2], "scale": 1, "f1": f1}
    assert [r.metrics.get("f1") for r in metrics_log.read(tmp_path)] == [None, 0.6, 0.72]
