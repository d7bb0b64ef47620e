"""Metrics and files of one prediction a row: classes, scores, choices.

Shapes: B examples, C classes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from official import config as configs
from official.data import ShardDataset
from official.evaluation import task_metrics
from official.utils import atomic
from official.utils.errors import UserError

SUFFIXES = (".tsv", ".jsonl")


class Scorer:
    """See `official.evaluation.evaluator.Scorer`."""

    def __init__(self, config: configs.Config, source: ShardDataset):
        self._config, self._source = config, source
        kind = source.manifest.task.kind
        self.outputs = (task_metrics.OUTPUTS[kind][1],)

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `task_metrics.evaluate`."""
        return task_metrics.evaluate(self._source.manifest.task, outputs)

    def check_output(self, output: Path, top: int) -> None:
        """Refuses other files than `SUFFIXES`."""
        if top:
            raise UserError(f"--top_k={top}: is of rankings, and this is no ranking: leave it out")
        if output.suffix not in SUFFIXES:
            raise UserError(
                f"{output}: predictions are written as {' or '.join(SUFFIXES)}: name one"
            )

    def write(self, outputs: Mapping[str, np.ndarray], output: Path, top: int) -> None:
        """Writes a line for each row, in the order of the file that they are of."""
        del top
        rows, outputs = in_order(outputs, self._source)
        write = _write_tsv if output.suffix == ".tsv" else _write_jsonl
        with atomic.file(output) as stream:
            write(stream, rows, outputs, self._labels())

    def _labels(self) -> list[str]:
        """The names of the classes: the model's own, or those of the data."""
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
      source: of all the rows.

    Returns:
      The numbers, rising, and the predictions in that order.

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


def _write_tsv(
    stream: TextIO, rows: np.ndarray, outputs: Mapping[str, np.ndarray], labels: Sequence[str]
) -> None:
    if "score" in outputs:
        stream.write("row\tscore\n")
        stream.writelines(
            f"{row}\t{score!s}\n" for row, score in zip(rows, outputs["score"], strict=True)
        )
        return
    stream.write("\t".join(["row", "label", *(f"probability:{label}" for label in labels)]) + "\n")
    for row, probabilities in zip(rows, outputs["probabilities"], strict=True):
        label = labels[int(probabilities.argmax())]
        stream.write("\t".join([str(row), label, *map(str, probabilities)]) + "\n")


def _write_jsonl(
    stream: TextIO, rows: np.ndarray, outputs: Mapping[str, np.ndarray], labels: Sequence[str]
) -> None:
    def line(row: int, values: np.ndarray) -> dict:
        # By way of text: the shortest that gives the same float32 again, as in TSV.
        if "score" in outputs:
            return {"row": row, "score": float(str(values))}
        numbers = [float(str(value)) for value in values]
        return {
            "row": row,
            "label": labels[int(values.argmax())],
            "probabilities": dict(zip(labels, numbers, strict=True)),
        }

    (values,) = outputs.values()
    for row, value in zip(rows.tolist(), values, strict=True):
        stream.write(json.dumps(line(row, value), ensure_ascii=False) + "\n")
