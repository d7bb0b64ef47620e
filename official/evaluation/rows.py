"""Metrics and files of tasks with one prediction for each row: classes, scores, choices.

Shapes: B examples, C classes.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TextIO

import numpy as np

from official import config as configs
from official.data import ShardDataset
from official.evaluation import task_metrics
from official.tasks.kinds import KINDS
from official.tasks.task import SEPARATOR
from official.utils import atomic
from official.utils.errors import UserError
from official.utils.paths import AnyPath

SUFFIXES = (".tsv", ".jsonl")


class Scorer:
    """See `official.evaluation.evaluator.Scorer`."""

    def __init__(self, config: configs.Config, source: ShardDataset):
        self._config, self._source = config, source
        self.outputs = (KINDS[source.manifest.task.kind].output,)

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `task_metrics.evaluate`."""
        task = self._source.manifest.task
        if (thresholds := self._thresholds()) is not None:
            flags = (outputs["probabilities"] >= thresholds).astype(np.int32)
            outputs = {**outputs, "probabilities": flags}
        return task_metrics.evaluate(task, outputs)

    def _thresholds(self) -> np.ndarray | None:
        """Returns the threshold of each label [C], of tasks with several labels for a text."""
        if self._source.manifest.task.kind != "multi_label":
            return None
        count = len(self._source.manifest.task.labels)
        given = [o.thresholds for o in self._config.objectives if o.type == "multi_label"]
        return np.float32(given[0] if given and given[0] else np.full(count, 0.5))

    def check_output(self, output: AnyPath, top: int) -> None:
        """Refuses a file with another suffix than `SUFFIXES`."""
        if top:
            raise UserError(f"--top_k={top}: is of rankings, and this is no ranking: leave it out")
        if output.suffix not in SUFFIXES:
            raise UserError(
                f"{output}: predictions are written as {' or '.join(SUFFIXES)}: name one"
            )

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath, top: int) -> None:
        """Writes a line for each row in the order of the source file."""
        del top
        rows, outputs = in_order(outputs, self._source)
        (values,) = outputs.values()
        labels = None if "score" in outputs else self._labels()
        predictions = _Predictions(rows, values, labels, self._thresholds())
        with atomic.file(output) as stream:
            if output.suffix == ".tsv":
                predictions.write_tsv(stream)
            else:
                predictions.write_jsonl(stream)

    def _labels(self) -> list[str]:
        """Returns the names of the classes, from the model or else from the data."""
        for objective in self._config.objectives:
            mine = getattr(objective, "task", "") in ("", self._source.task_name)
            if mine and (labels := getattr(objective, "labels", ())):
                return list(labels)
        return list(self._source.manifest.task.labels)


def in_order(
    outputs: Mapping[str, np.ndarray], source: ShardDataset
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Sorts predictions by the numbers of their rows.

    Args:
      outputs: `row` [B] and predictions [B, ...].
      source: the examples of all rows.

    Returns:
      The numbers in ascending order, and the predictions in this order.

    Raises:
      UserError: two rows have the same number.
    """
    rows, order = np.unique(outputs["row"], return_index=True)
    if len(rows) != source.num_examples:
        raise UserError(
            f"{len(rows):,} predictions for the {source.num_examples:,} examples of the "
            f"{source.split} split: rows are numbered twice; give one shard folder, made by "
            "build_task_shards"
        )
    return rows, {name: values[order] for name, values in outputs.items() if name != "row"}


@dataclasses.dataclass(frozen=True)
class _Predictions:
    """The predictions of a split.

    Attributes:
      rows: the numbers of the rows [B].
      values: probabilities [B, C], or scores [B].
      labels: the names of the classes; None for scores.
      thresholds: where a row may have several labels, the least probability of each [C].
    """

    rows: np.ndarray
    values: np.ndarray
    labels: Sequence[str] | None
    thresholds: np.ndarray | None = None

    def _several(self, probabilities: np.ndarray) -> list[str]:
        """Returns the labels of a row that may have several."""
        return [self.labels[i] for i in np.flatnonzero(probabilities >= self.thresholds)]

    def write_tsv(self, stream: TextIO) -> None:
        """Writes a header and a line for each row."""
        if self.labels is None:
            stream.write("row\tscore\n")
            stream.writelines(
                f"{row}\t{score!s}\n" for row, score in zip(self.rows, self.values, strict=True)
            )
            return
        several = self.thresholds is not None
        names = [
            "row",
            "labels" if several else "label",
            *(f"probability:{label}" for label in self.labels),
        ]
        stream.write("\t".join(names) + "\n")
        for row, probabilities in zip(self.rows, self.values, strict=True):
            label = self.labels[int(probabilities.argmax())]
            if several:
                label = SEPARATOR.join(self._several(probabilities))
            stream.write("\t".join([str(row), label, *map(str, probabilities)]) + "\n")

    def write_jsonl(self, stream: TextIO) -> None:
        """Writes an object for each row."""
        for row, value in zip(self.rows.tolist(), self.values, strict=True):
            stream.write(json.dumps(self._object(row, value), ensure_ascii=False) + "\n")

    def _object(self, row: int, value: np.ndarray) -> dict[str, object]:
        # Through `str`, which gives the shortest number that is the same float32, as in TSV.
        if self.labels is None:
            return {"row": row, "score": float(str(value))}
        probabilities = [float(str(each)) for each in value]
        if self.thresholds is None:
            found = {"label": self.labels[int(value.argmax())]}
        else:
            found = {"labels": self._several(value)}
        return {
            "row": row,
            **found,
            "probabilities": dict(zip(self.labels, probabilities, strict=True)),
        }
