"""Reads `metrics.jsonl` of a model folder: the metrics of its training, one JSON object a line."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from official.saving import scale
from official.utils import paths
from official.utils.errors import UserError

FILE = "metrics.jsonl"
_MAX_BYTES = 1 << 30


class Record(NamedTuple):
    """One report of a run.

    Attributes:
      step: the number of updates so far.
      split: `train` or `validation`.
      metrics: values by name.
      old: whether an earlier version wrote it, with some metrics in percent.
    """

    step: int
    split: str
    metrics: Mapping[str, float]
    old: bool = False

    def line(self) -> str:
        """Returns the line of the record."""
        # JSON has no NaN and no infinity.
        plain = {k: (v if math.isfinite(v) else str(v)) for k, v in self.metrics.items()}
        marks = {"step": self.step, "split": self.split, **scale.SCALE}
        return json.dumps({**marks, **plain}) + "\n"


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
    return sorted(renewed(model_dir, records.values()), key=lambda record: record.step)


def renewed(model_dir: str | os.PathLike, records: Iterable[Record]) -> list[Record]:
    """Returns records of a model folder with all metrics in today's scale."""
    records = list(records)
    if not any(record.old for record in records):
        return records
    # Only here, because it imports TensorFlow and plots do without.
    from official.saving import model_folder

    task = model_folder.task_description(model_dir)
    return [
        Record(record.step, record.split, scale.fractions(record.metrics, task))
        if record.old
        else record
        for record in records
    ]


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
        raise ValueError(f"a {type(values).__name__} where an object is wanted")
    step, split = values.pop("step", None), values.pop("split", None)
    old = values.pop(scale.KEY, None) is None and split != "train"
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
    return Record(step, split, metrics, old)
