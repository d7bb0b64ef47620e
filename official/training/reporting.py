"""Reports the metrics of a run: lines to print, `metrics.jsonl` and TensorBoard events."""

import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from official.saving import metrics_log
from official.utils import atomic, paths, progress

# Marks a value as a scalar for TensorBoard; `tf.summary.scalar` would need that installed.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
)
_SECONDS_BETWEEN_COPIES = 120  # as TensorFlow writes events to a disk


def print_line(text: str) -> None:
    """Prints a line at once, for those who watch a file or a pipe."""
    print(text, flush=True)


class Reporter:
    """Writes the metrics of a run.

    Args:
      model_dir: the folder of `metrics.jsonl` and the events.
      total_steps: the number of steps of the run.
      start_step: the step that the run continues from. Metrics of later steps, which a killed run
        may leave in `metrics.jsonl` and in the events, are removed, so that each step is there
        once.
      silent: whether to write nothing, on workers that are not the chief.
      report: takes the lines to print.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike,
        total_steps: int,
        start_step: int = 0,
        silent: bool = False,
        report: Callable[[str], None] = print_line,
    ):
        self.total_steps = total_steps
        self._silent = silent
        self._report = report
        self._said = time.monotonic()
        self._path = paths.path(model_dir) / metrics_log.FILE
        self.started = False
        self._written: set[tuple[str, int]] = set()
        if not silent:
            atomic.make_folder(model_dir)
            self._events = Events(model_dir)
            self._events.drop_after(start_step)
            if self._path.exists():
                self._drop_after(start_step)

    def start(self, step: int, loss: float) -> None:
        """Starts the clock after the first step, which includes tracing the graph."""
        self.started = True
        self._clock, self._clock_step = time.monotonic(), step
        self.say(f"step {step}: loss {loss:.4f}; the graph is made, training runs")

    def first_step(self) -> contextlib.AbstractContextManager:
        """Says at intervals that the first step, whose graph is made, goes on; no other does."""
        report = None if self._silent or self.started else self.say
        return progress.signs("making the graph of a step", report)

    def sign(self, step: int) -> None:
        """Says how far the run is, if no line was reported for some seconds."""
        steps, now = step - self._clock_step, time.monotonic()
        if steps and now - self._said >= progress.SECONDS_BETWEEN_SIGNS:
            rate = steps / (now - self._clock)
            self.say(f"step {step}/{self.total_steps}{self._speed(step, rate)}")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time in this block from the speed metrics."""
        since = time.monotonic()
        yield
        self._clock += time.monotonic() - since

    def train(self, step: int, metrics: Mapping[str, float], tokens: float) -> None:
        """Reports means over the steps since the last report.

        Args:
          step: the current step.
          metrics: the means by name, `loss` first.
          tokens: the mean number of tokens of a step, without padding.
        """
        steps, seconds = step - self._clock_step, time.monotonic() - self._clock
        self._clock, self._clock_step = time.monotonic(), step
        (name, loss), *others = metrics_log.figures(metrics).items()
        line = f"step {step}/{self.total_steps}  {name} {loss:.4f}  ({_text(dict(others))})"
        if steps:
            rate = steps / seconds
            speed = {"steps_per_second": rate, "tokens_per_second": tokens * rate}
            metrics = {**metrics, **speed}
            line += self._speed(step, rate, f"  {tokens * rate:,.0f} tokens/s")
        self.say(line)
        self._write("train", step, metrics)

    def evaluation(self, step: int, metrics: Mapping[str, float], split: str, note: str) -> None:
        """Reports an evaluation of the weights at a step."""
        self.say(f"step {step}  {split}: {_text(metrics_log.figures(metrics))}{note}")
        self._write(split, step, metrics)

    def again(self, step: int, metrics: Mapping[str, float], split: str) -> None:
        """Reports an evaluation of an earlier start, unless that start did so before it ended."""
        if not self._silent and (split, step) not in self._written:
            self.evaluation(step, metrics, split, "")

    def say(self, text: str) -> None:
        """Reports a line."""
        self._said = time.monotonic()
        if not self._silent:
            self._report(text)

    def _speed(self, step: int, rate: float, tokens: str = "") -> str:
        """Returns the speed at a step, that of tokens, and how long the others take."""
        left = duration((self.total_steps - step) / rate)
        return f"  {rate:.3g} steps/s{tokens}  {left} left"

    def close(self) -> None:
        """Flushes the events."""
        if not self._silent:
            self._events.close()

    def _write(self, split: str, step: int, metrics: Mapping[str, float]) -> None:
        if self._silent:
            return
        atomic.append(self._path, metrics_log.Record(step, split, metrics).line())
        self._events.write(split, step, metrics)

    def _drop_after(self, step: int) -> None:
        kept: list[bytes] = []
        for line in self._path.read_bytes().splitlines(keepends=True):
            try:
                values = json.loads(line)
                known = values["step"] <= step
            except (ValueError, TypeError, KeyError):
                continue  # the line is incomplete, because the process was killed, or damaged
            if known:
                kept.append(line)
                self._written.add((values.get("split"), values["step"]))
        with atomic.file(self._path, "wb") as stream:
            stream.writelines(kept)


class Events:
    """Writes scalars to a folder of events for each split.

    Events are appended to a file, which few remote file systems allow. Those of a remote folder are
    written to a local one, and the whole files are copied every two minutes and at the end.

    Args:
      folder: the folder of the folders of events.
    """

    def __init__(self, folder: str | os.PathLike):
        self._folder = paths.path(folder)
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._local = None
        if paths.is_remote(folder):
            self._local = tempfile.TemporaryDirectory(prefix=atomic.PREFIX)
            self._copied = time.monotonic()

    def write(self, split: str, step: int, metrics: Mapping[str, float]) -> None:
        """Adds a value for each metric.

        Raises:
          UserError: the events cannot be written.
        """
        with atomic.disk_errors(self._folder / split):
            if split not in self._writers:
                folder = Path(self._local.name) if self._local else self._folder
                self._writers[split] = tf.summary.create_file_writer(str(folder / split))
            with self._writers[split].as_default(step=step):
                for name, value in metrics.items():
                    tf.summary.write(name, np.float32(value), metadata=_SCALAR)
        if self._local and time.monotonic() - self._copied > _SECONDS_BETWEEN_COPIES:
            self._copy()

    def drop_after(self, step: int) -> None:
        """Removes the events of later steps that an earlier run has left.

        Raises:
          UserError: the events cannot be written.
        """
        for path in self._folder.glob("*/events.out.tfevents.*"):
            with paths.local_copy(path) as local:
                events, later = _events_until(local, step)
            if later:
                with atomic.replacing(path) as temporary:
                    with tf.io.TFRecordWriter(str(temporary)) as writer:
                        for event in events:
                            writer.write(event)

    def close(self) -> None:
        """Writes what is left.

        Raises:
          UserError: the events cannot be written.
        """
        with atomic.disk_errors(self._folder):
            for writer in self._writers.values():
                writer.close()
        self._copy()
        if self._local is not None:
            self._local.cleanup()

    def _copy(self) -> None:
        """Copies the events to the model folder, if they are written elsewhere."""
        if self._local is None:
            return
        for split, writer in self._writers.items():
            writer.flush()
            for file in Path(self._local.name, split).iterdir():
                paths.copy(file, self._folder / split / file.name)
        self._copied = time.monotonic()


def _events_until(path: Path, step: int) -> tuple[list[bytes], bool]:
    """Returns the events of a file up to a step, and whether there are others.

    A killed process may leave half an event, with which the file ends.
    """
    events, later = [], False
    with contextlib.suppress(tf.errors.DataLossError):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            if event.HasField("summary") and event.step > step:
                later = True
            else:
                events.append(record)
    return events, later


def duration(seconds: float) -> str:
    """Formats a duration: `45s`, `12m 05s`, `3h 20m`."""
    if not math.isfinite(seconds):
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {seconds:02d}s" if minutes else f"{seconds}s"


def _text(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
