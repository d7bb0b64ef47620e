"""Reads `metrics.jsonl` of a model folder: the metrics of its training, one JSON object a line.

The best value of each metric is 1, but for losses and perplexities. Model folders of earlier
versions have exact match and F1 of answers, BLEU and ROUGE in percent, beside fractions. What is
written now has the entry `scale`, and what lacks it is converted.
"""

import json
import math
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from official.saving import task_file
from official.tasks import AVERAGE, Description, MixtureDescription
from official.utils import paths
from official.utils.errors import UserError

FILE = "metrics.jsonl"
_MAX_BYTES = 1 << 30
SCALE_KEY = "scale"
SCALE = {SCALE_KEY: 1}
_Task = Description | MixtureDescription | None
_WHICH = ("", "has_answer_", "no_answer_", "best_")
_PERCENT = {
    "span": tuple(f"{which}{name}" for which in _WHICH for name in ("exact_match", "f1")),
    "generation": ("bleu", "rouge_1", "rouge_2", "rouge_l"),
}


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
        marks = {"step": self.step, "split": self.split, **SCALE}
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
    task = task_file.description(model_dir)
    return [
        Record(record.step, record.split, fractions(record.metrics, task)) if record.old else record
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
        raise ValueError(f"a {type(values).__name__}, expected an object")
    step, split = values.pop("step", None), values.pop("split", None)
    old = values.pop(SCALE_KEY, None) is None and split != "train"
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


def percentages(task: _Task) -> Collection[str]:
    """Returns the names of the metrics of a task that earlier versions had in percent."""
    if isinstance(task, MixtureDescription):
        names = {f"{name}/{each}" for name, t in task.tasks.items() for each in percentages(t)}
        return names | {AVERAGE} if names else names
    return _PERCENT.get((task.answers or task.kind) if task else "", ())


def fractions(metrics: Mapping[str, float], task: _Task) -> dict[str, float]:
    """Returns metrics of an earlier version in today's scale.

    The average of several tasks is made again of the first metric of each, if all are given.
    """
    percent = percentages(task)
    rescaled = {name: v / 100 if name in percent else v for name, v in metrics.items()}
    if isinstance(task, MixtureDescription) and AVERAGE in percent and AVERAGE in metrics:
        firsts = [f"{name}/{each.metrics[0]}" for name, each in task.tasks.items()]
        whole = all(name in rescaled for name in firsts)
        rescaled[AVERAGE] = (
            sum(rescaled[name] for name in firsts) / len(firsts) if whole else metrics[AVERAGE]
        )
    return rescaled


def rescaled_state(
    state: Mapping[str, Any], best: Mapping[str, Any], task: _Task
) -> dict[str, Any]:
    """Returns the figures and the best evaluation of `state.json` in today's scale.

    Args:
      state: of a checkpoint of this or an earlier version, with `figures` and `best`.
      best: the figures of the best evaluation, as far as they are known.
      task: the task of the run.
    """
    if SCALE_KEY in state:
        return dict(state)
    record = state["best"]
    if record:
        metric = record["metric"]
        value = fractions({**best, metric: record["value"]}, task)[metric]
        record = {**record, "value": value}
    return {**state, "figures": fractions(state["figures"], task), "best": record}
