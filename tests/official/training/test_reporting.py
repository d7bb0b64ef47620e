import json
import os
import threading
import time

import pytest
import tensorflow as tf

from official.training import reporting
from official.utils import progress
from official.utils.errors import UserError
from tests import limits


def steps_of_events(folder):
    found = []
    for path in sorted(folder.glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            found += [event.step] if event.HasField("summary") else []
    return found


@pytest.mark.parametrize("cut", [0, 9])
def test_a_run_that_goes_on_has_each_step_once(tmp_path, cut):
    """In the events as in `metrics.jsonl`; the killed run has left half of its last event."""
    for start in (0, 2):
        reporter = reporting.Reporter(tmp_path, 6, start)
        for step in range(start + 1, 5):
            reporter.evaluation(step, {"loss": 1.0}, "validation", "")
        reporter.close()
        if not start:
            (path,) = (tmp_path / "validation").glob("events*")
            os.truncate(path, path.stat().st_size - cut)
    assert sorted(steps_of_events(tmp_path / "validation")) == [1, 2, 3, 4]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


def test_figures_reach_the_file_the_events_and_the_screen(tmp_path, capsys):
    reporter = reporting.Reporter(tmp_path, total_steps=100)
    reporter.start(1, 9.5)
    reporter.train(11, {"loss": 2.0, "masked_lm": 1.5}, tokens=50.0)
    reporter.evaluation(11, {"loss": 1.0}, "validation", "  (best so far)")
    reporter.close()
    out = capsys.readouterr().out
    assert "step 11/100  loss 2.0000  (masked_lm 1.5)" in out and "left" in out
    assert "step 11  validation: loss 1  (best so far)" in out
    train, validation = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert train["loss"] == 2.0 and train["split"] == "train" and train["step"] == 11
    assert train["tokens_per_second"] == pytest.approx(50 * train["steps_per_second"])
    assert validation == {"step": 11, "split": "validation", "scale": 1, "loss": 1.0}
    (events,) = (tmp_path / "train").glob("events*")
    actual = {}
    for record in tf.data.TFRecordDataset(str(events)):
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            actual[value.tag] = float(tf.make_ndarray(value.tensor))
    assert actual["loss"] == 2.0 and actual["masked_lm"] == 1.5


def test_lines_have_each_figure_once_and_the_file_all_keys(tmp_path, capsys):
    """A single term of weight 1 is the loss, and is printed as such."""
    metrics = {"loss": 2.0, "causal_lm": 2.0, "causal_lm_bits_per_byte": 1.5}
    reporter = reporting.Reporter(tmp_path, total_steps=100)
    reporter.start(1, 9.5)
    reporter.train(11, {**metrics, "gradient_norm": 0.5}, tokens=50.0)
    reporter.evaluation(11, metrics, "validation", "  (best so far)")
    reporter.close()
    _, train, validation = capsys.readouterr().out.splitlines()
    assert train.startswith(
        "step 11/100  causal_lm 2.0000  (causal_lm_bits_per_byte 1.5  gradient_norm 0.5)  "
    )
    assert validation == (
        "step 11  validation: causal_lm 2  causal_lm_bits_per_byte 1.5  (best so far)"
    )
    numbers = [word for word in validation.split() if word[0].isdigit()]
    assert numbers == ["11", "2", "1.5"]
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        assert metrics.items() <= json.loads(line).items()


def test_time_for_evaluation_is_no_training(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(reporting.time, "monotonic", lambda: now[0])
    reporter = reporting.Reporter(tmp_path, total_steps=10)
    reporter.start(0, 1.0)
    with reporter.paused():
        now[0] = 30.0
    now[0] = 32.0
    reporter.train(4, {"loss": 1.0}, tokens=10.0)
    record = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert record["steps_per_second"] == 2.0 and record["tokens_per_second"] == 20.0


def test_a_run_says_how_far_it_is_every_ten_seconds(tmp_path, monkeypatch, capsys):
    """Between the reports of metrics, which may be far from one another."""
    now = [0.0]
    monkeypatch.setattr(reporting.time, "monotonic", lambda: now[0])
    reporter = reporting.Reporter(tmp_path, total_steps=100)
    reporter.start(1, 1.0)
    for step, now[0] in ((2, 5.0), (3, 9.9), (4, 12.0), (5, 20.0), (6, 22.5)):
        reporter.sign(step)
    reporter.train(7, {"loss": 1.0}, tokens=10.0)
    now[0] = 40.0
    reporter.sign(7)  # no step since the report
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines[0] == "step 4/100  0.25 steps/s  6m 24s left"
    assert lines[1] == "step 6/100  0.222 steps/s  7m 03s left"
    assert len(lines) == 3 and lines[2].startswith("step 7/100  loss 1.0000")
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1


def test_a_long_first_step_gives_signs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_SIGNS", 0.01)
    for silent in (False, True):
        reporter = reporting.Reporter(tmp_path, total_steps=100, silent=silent)
        with reporter.first_step():
            time.sleep(0.1)
    lines = capsys.readouterr().out.splitlines()
    assert lines and set(lines) == {"making the graph of a step: 0 s so far"}
    threads = [thread.name for thread in threading.enumerate()]
    with progress.signs("work", None):
        assert [thread.name for thread in threading.enumerate()] == threads


def test_lines_of_steps_that_were_lost_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": s}) + "\n" for s in (1, 2, 3)) + '{"step": 4, "lo')
    reporting.Reporter(tmp_path, total_steps=9, start_step=2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_an_evaluation_is_reported_once(tmp_path):
    """A process may end between the checkpoint with the metrics and the line with them."""
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "split": "train", "loss": 1.5}\n')
    for _ in range(2):
        reporter = reporting.Reporter(tmp_path, total_steps=9, start_step=2)
        reporter.again(2, {"loss": 1.0}, "validation")
    silent = reporting.Reporter(tmp_path, total_steps=9, start_step=2, silent=True)
    silent.again(2, {"loss": 1.0}, "validation")
    _, *lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    (line,) = map(json.loads, lines)
    assert line == {"step": 2, "split": "validation", "scale": 1, "loss": 1.0}


def test_damaged_lines_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"stfp": 1}\n{"step": "\xe9"}\n{"step": []}\n7\n{"step": 2}\n')
    reporting.Reporter(tmp_path, total_steps=9, start_step=2)
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def _report(folder):
    reporter = reporting.Reporter(folder, total_steps=9)
    reporter.start(1, 1.0)
    reporter.train(2, {"loss": 1.0, **{f"metric_{i}": 1.0 for i in range(9)}}, tokens=1.0)
    reporter.close()


@pytest.mark.parametrize(("room", "full"), [(100, "metrics.jsonl"), (500, "train")])
def test_a_full_disk_is_told_in_words(tmp_path, room, full):
    # 500 bytes are enough for the line, and not for the events.
    with pytest.raises(UserError, match=f"no room to write {tmp_path / full} .File too large"):
        limits.run(room, _report, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == (room == 500)


def test_only_the_chief_writes(tmp_path, capsys):
    reporter = reporting.Reporter(tmp_path / "m", total_steps=9, silent=True)
    reporter.start(1, 1.0)
    reporter.train(2, {"loss": 1.0}, tokens=1.0)
    assert capsys.readouterr().out == "" and not (tmp_path / "m").exists()


def test_figures_that_are_no_numbers_stay_readable(tmp_path):
    reporter = reporting.Reporter(tmp_path, total_steps=9)
    reporter.evaluation(1, {"loss": float("nan")}, "validation", "")
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["loss"] == "nan"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59, "59s"), (61, "1m 01s"), (3600 * 3 + 1200, "3h 20m"), (float("inf"), "?")],
)
def test_duration(seconds, text):
    assert reporting.duration(seconds) == text
