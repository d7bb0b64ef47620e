"""What a run reports: a line for people, `metrics.jsonl` and TensorBoard events for machines."""

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from official import atomic

# Marks a value as a scalar for TensorBoard; `tf.summary.scalar` would need that installed.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
)


class Reporter:
    """Writes the figures of a run; a silent one (not the chief's) writes nothing.

    Args:
      model_dir: where `metrics.jsonl` and the events go.
      total_steps: steps of the whole run.
      start_step: the step that the run goes on from; figures of later steps, which a killed run
        left in `metrics.jsonl`, are dropped, so that each step stands there once.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike,
        total_steps: int,
        start_step: int = 0,
        silent: bool = False,
    ):
        self.total_steps = total_steps
        self._silent = silent
        self._path = Path(model_dir) / "metrics.jsonl"
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._model_dir = Path(model_dir)
        self.started = False
        if not silent:
            atomic.make_folder(self._model_dir)
            if self._path.exists():
                self._drop_after(start_step)

    def start(self, step: int, loss: float) -> None:
        """Starts the clock, once the first step has been made and with it the graph."""
        self.started = True
        self._clock, self._clock_step = time.monotonic(), step
        self.say(f"step {step}: loss {loss:.4f}; the graph is made, training runs")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What is done in this block counts as no training in the speed figures."""
        since = time.monotonic()
        yield
        self._clock += time.monotonic() - since

    def train(self, step: int, figures: Mapping[str, float], tokens: float) -> None:
        """Reports means over the steps since the last report, and `tokens` a step (real ones)."""
        steps, seconds = step - self._clock_step, time.monotonic() - self._clock
        self._clock, self._clock_step = time.monotonic(), step
        terms = {name: value for name, value in figures.items() if name != "loss"}
        line = f"step {step}/{self.total_steps}  loss {figures['loss']:.4f}  ({_text(terms)})"
        if steps:
            rate = steps / seconds
            speed = {"steps_per_second": rate, "tokens_per_second": tokens * rate}
            figures = {**figures, **speed}
            left = duration((self.total_steps - step) / rate)
            line += f"  {rate:.3g} steps/s  {tokens * rate:,.0f} tokens/s  {left} left"
        self.say(line)
        self._write("train", step, figures)

    def evaluation(self, step: int, figures: Mapping[str, float], split: str, note: str) -> None:
        """Reports an evaluation of the weights at a step."""
        self.say(f"step {step}  {split}: {_text(figures)}{note}")
        self._write(split, step, figures)

    def say(self, text: str) -> None:
        """Prints a line."""
        if not self._silent:
            print(text, flush=True)

    def close(self) -> None:
        """Flushes the events."""
        with atomic.disk_errors(self._model_dir):
            for writer in self._writers.values():
                writer.close()

    def _write(self, split: str, step: int, figures: Mapping[str, float]) -> None:
        if self._silent:
            return
        # A figure that is not a number is not JSON either.
        plain = {k: (v if math.isfinite(v) else str(v)) for k, v in figures.items()}
        atomic.append(self._path, json.dumps({"step": step, "split": split, **plain}) + "\n")
        events = self._model_dir / split
        with atomic.disk_errors(events):
            if split not in self._writers:
                self._writers[split] = tf.summary.create_file_writer(str(events))
            with self._writers[split].as_default(step=step):
                for name, value in figures.items():
                    tf.summary.write(name, np.float32(value), metadata=_SCALAR)

    def _drop_after(self, step: int) -> None:
        kept = []
        for line in self._path.read_bytes().splitlines(keepends=True):
            try:
                known = json.loads(line)["step"] <= step
            except (ValueError, TypeError, KeyError):
                continue  # the process was killed while it wrote the line, or the line is damaged
            if known:
                kept.append(line)
        with atomic.file(self._path, "wb") as stream:
            stream.writelines(kept)


def duration(seconds: float) -> str:
    """A span of time for people: `45s`, `12m`, `3h 20m`."""
    if not math.isfinite(seconds):
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {seconds:02d}s" if minutes else f"{seconds}s"


def _text(figures: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
