"""Reads `metrics.jsonl` of a model folder: the metrics of its training, one JSON object a line.

The best value of each metric is 1, but for losses and perplexities, as the entry `scale` says.
"""

import json
import math
import os
from collections.abc import Mapping
from typing import NamedTuple

from official.utils import paths
from official.utils.errors import UserError

FILE = "metrics.jsonl"
_MAX_BYTES = 1 << 30
SCALE_KEY = "scale"
SCALE = {SCALE_KEY: 1}


class Record(NamedTuple):
    """One report of a run.

    Attributes:
      step: the number of updates so far.
      split: `train` or `validation`.
      metrics: values by name.
    """

    step: int
    split: str
    metrics: Mapping[str, float]

    def line(self) -> str:
        """Returns the line of the record."""
        # JSON has no NaN and no infinity.
        plain = {k: (v if math.isfinite(v) else str(v)) for k, v in self.metrics.items()}
        marks = {"step": self.step, "split": self.split, **SCALE}
        return json.dumps({**marks, **plain}) + "\n"


def figures(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns metrics as they are printed, each figure under one name.

    A loss that is one of its terms is left out, and so is a measure of an objective, such as
    `classification_accuracy`, where the task has the same, `accuracy`.

    Args:
      metrics: the values by name; those of one of several tasks are named `TASK/NAME`.
    """

    def is_another(name: str, value: float) -> bool:
        task, slash, own = name.rpartition("/")
        same = [n for n, v in metrics.items() if v == value and n.startswith(f"{task}{slash}")]
        others = [n for n in same if n != name]
        return bool(others) if own == "loss" else any(name.endswith(f"_{n}") for n in others)

    return {name: value for name, value in metrics.items() if not is_another(name, value)}


def read(model_dir: str | os.PathLike) -> list[Record]:
    """Reads the records of a run in the order of their steps.

    If two records have the same step and split, the later one counts. An incomplete last line,
    which a killed run may leave, is skipped.

    Raises:
      UserError: the folder has no metrics, or a line is damaged.
    """
    path = paths.path(model_dir) / FILE
    if not path.exists() and not path.parent.is_dir():
        raise UserError(f"{model_dir}: no such folder: give the model folder of a training run")
    if not path.exists():
        raise UserError(
            f"{model_dir}: there is no {FILE} in it: give the model folder of a training run "
            "(for a sweep, the folders of its runs)"
        )
    *lines, last = paths.read_bytes(path, _MAX_BYTES).split(b"\n")
    records = {}
    for number, line in enumerate(lines, 1):
        try:
            record = parse(line)
        except ValueError as error:
            raise UserError(
                f"{path}, line {number}: {error}: the line is damaged; remove it"
            ) from None
        records[record.split, record.step] = record
    if last:  # a complete line ends with a newline
        try:
            record = parse(last)
            records[record.split, record.step] = record
        except ValueError:
            pass
    if not records:
        raise UserError(
            f"{path} has no metrics yet: a run writes them after recipe.report_every steps"
        )
    return sorted(records.values(), key=lambda record: record.step)


def parse(line: bytes) -> Record:
    """Parses a line.

    Raises:
      ValueError: the line is not one that a run writes; the message says why.
    """
    try:
        values = json.loads(line.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"a {type(values).__name__}, expected an object")
    step, split = values.pop("step", None), values.pop("split", None)
    values.pop(SCALE_KEY, None)
    if type(step) is not int or step < 0:
        raise ValueError(f"step: {step!r} is not a whole number from 0 on")
    if not isinstance(split, str):
        raise ValueError(f"split: {split!r} is not a name")
    metrics = {}
    for name, value in values.items():
        # JSON has no NaN and no infinity, so they are written as strings.
        if type(value) not in (int, float) and value not in ("nan", "inf", "-inf"):
            raise ValueError(f"{name}: {value!r} is not a number")
        metrics[name] = float(value)
    return Record(step, split, metrics)
