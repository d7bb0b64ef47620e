"""Metrics and files of tasks with one prediction for each row: classes, scores, choices.

The metrics are those of scikit-learn and scipy. These two are slow to import, so the functions that
use them import them.

Shapes: B examples, C classes.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO

import numpy as np

from official import config as configs
from official.config.heads import MultiLabelConfig
from official.data import ShardDataset
from official.tasks import Description
from official.tasks.kinds import KINDS, Kind
from official.tasks.task import SEPARATOR
from official.tasks.text_to_text import WRONG
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath

SUFFIXES = (".tsv", ".jsonl")


class Scorer:
    """See `official.evaluation.evaluator.Scorer`."""

    def __init__(self, config: configs.ResolvedConfig, source: ShardDataset):
        self._config, self._source = config, source
        self.outputs = (KINDS[source.task.kind].output,)

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `evaluate`."""
        if (thresholds := self._thresholds()) is not None:
            flags = (outputs["probabilities"] >= thresholds).astype(np.int32)
            outputs = {**outputs, "probabilities": flags}
        return evaluate(self._source.task, outputs)

    def _thresholds(self) -> np.ndarray | None:
        """Returns the threshold of each label [C], of tasks with several labels for a text."""
        task = self._source.task
        if task.kind != "multi_label":
            return None
        heads = (o for o in self._config.objectives if isinstance(o, MultiLabelConfig))
        head = next(heads, MultiLabelConfig())
        return np.asarray(head.limits(len(task.labels)), np.float32)

    def check_output(self, output: AnyPath) -> None:
        """See `paths.check_suffix`."""
        paths.check_suffix(output, "predictions", SUFFIXES)

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath) -> None:
        """Writes a line for each row in the order of the source file."""
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
            mine = objective.task in ("", self._source.task_name)
            if mine and objective.labels:
                return list(objective.labels)
        return list(self._source.task.labels)


def nothing_to_compare(what: str) -> UserError:
    """Returns the error that a split has no right `what`."""
    return UserError(
        f"the split has no {what} to compare with: evaluate on a labeled one, or use --mode=predict"
    )


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

    def write_tsv(self, stream: IO[str]) -> None:
        """Writes a header and a line for each row."""
        if self.labels is None:
            stream.write("row\tscore\n")
            stream.writelines(
                f"{row}\t{score!s}\n" for row, score in zip(self.rows, self.values, strict=True)
            )
            return
        names = [
            "row",
            "label" if self.thresholds is None else "labels",
            *(f"probability:{label}" for label in self.labels),
        ]
        stream.write("\t".join(names) + "\n")
        for row, probabilities in zip(self.rows, self.values, strict=True):
            if self.thresholds is None:
                label = self.labels[int(probabilities.argmax())]
            else:
                label = SEPARATOR.join(_chosen(self.labels, probabilities >= self.thresholds))
            stream.write("\t".join([str(row), label, *map(str, probabilities)]) + "\n")

    def write_jsonl(self, stream: IO[str]) -> None:
        """Writes an object for each row."""
        for row, value in zip(self.rows.tolist(), self.values, strict=True):
            stream.write(json.dumps(self._object(row, value), ensure_ascii=False) + "\n")

    def _object(self, row: int, value: np.ndarray) -> dict[str, object]:
        # Through `str`, which gives the shortest number that is the same float32, as in TSV.
        if self.labels is None:
            return {"row": row, "score": float(str(value))}
        probabilities = [float(str(each)) for each in value]
        if self.thresholds is None:
            label: dict[str, object] = {"label": self.labels[int(value.argmax())]}
        else:
            label = {"labels": _chosen(self.labels, value >= self.thresholds)}
        return {
            "row": row,
            **label,
            "probabilities": dict(zip(self.labels, probabilities, strict=True)),
        }


def _chosen(labels: Sequence[str], flags: np.ndarray) -> list[str]:
    """Returns the labels whose flags [C] are true."""
    return [label for label, flag in zip(labels, flags, strict=True) if flag]


def compute(
    names: Iterable[str],
    labels: np.ndarray,
    predictions: np.ndarray,
    num_classes: int | None = None,
) -> dict[str, float]:
    """Computes metrics of `official.tasks.METRICS`.

    A prediction outside the classes (-1) is always wrong, as in the release of T5. For the F1 of
    two classes it counts as the opposite of the label. For the F1 of more classes and for the
    Matthews correlation it is an additional class, which has no F1.

    Args:
      names: the names of the metrics.
      labels: class ids or scores [B]; of several labels, flags [B, C], as the predictions.
      predictions: probabilities [B, C] or class ids [B], -1 = none of the classes; scores [B] for
        a regression.
      num_classes: C, if predictions are class ids; F1 is then a mean over all C classes. None = the
        classes that occur.

    Returns:
      The metrics by name, in the order of `names`.

    Raises:
      UserError: a name is unknown, there are no examples, or the lengths differ.
    """
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if len(labels) != len(predictions):
        raise UserError(
            f"{len(labels)} labels and {len(predictions)} predictions cannot be compared"
        )
    if not len(labels):
        raise UserError("there are no examples to compute metrics on")
    computed = {}
    for name in names:
        if name not in _FUNCTIONS:
            raise UserError(
                f"there is no metric {name!r}{nearest(name, _FUNCTIONS)}: "
                f"metrics are {', '.join(_FUNCTIONS)}"
            )
        more = (num_classes,) if name == "f1" else ()
        computed[name] = float(_FUNCTIONS[name](labels, predictions, *more))
    return computed


def target_name(kind: Kind) -> str:
    """Returns the name of a kind's first target in the outputs of an evaluation."""
    return f"true_{kind.targets[0]}"


def evaluate(task: Description, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Computes a task's own metrics.

    Args:
      task: the `task` of a manifest: its kind and metrics.
      outputs: those of all examples of a split, including filler: `example_weights` [B], the
        target [B] under its `target_name`, and the `output` of the kind, [B] or [B, C].

    Returns:
      The metrics by name.

    Raises:
      UserError: the split has no labels.
    """
    kind = KINDS[task.kind]
    target = target_name(kind)
    if target not in outputs:
        raise nothing_to_compare(f"labels of the task {task.name}")
    real = outputs["example_weights"] > 0
    return compute(task.metrics, outputs[target][real], outputs[kind.output][real])


def _classes(predictions: np.ndarray) -> np.ndarray:
    return predictions.argmax(-1) if predictions.ndim == 2 else predictions  # [B]


def _accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    return np.mean(labels == _classes(predictions))


def _f1(labels: np.ndarray, predictions: np.ndarray, num_classes: int | None) -> float:
    """Computes F1 of class 1 for two classes, as in GLUE; else the mean over the classes."""
    from sklearn import metrics

    classes = _classes(predictions)
    count = num_classes or (
        predictions.shape[1] if predictions.ndim == 2 else 1 + max(labels.max(), classes.max())
    )
    if count <= 2:
        ones = np.where(classes == WRONG, labels != 1, classes == 1)
        return metrics.f1_score(labels == 1, ones, zero_division=0)
    known = np.setdiff1d(np.union1d(labels, classes), [WRONG])
    known = known if num_classes is None else np.arange(num_classes)
    return metrics.f1_score(labels, classes, labels=known, average="macro", zero_division=0)


def _matthews_correlation(labels: np.ndarray, predictions: np.ndarray) -> float:
    from sklearn import metrics

    return metrics.matthews_corrcoef(labels, _classes(predictions))


def _correlation(name: str) -> Callable[[np.ndarray, np.ndarray], float]:
    """Returns a correlation; `name` is that of a function of `scipy.stats`."""

    def correlation(labels: np.ndarray, predictions: np.ndarray) -> float:
        """Returns 0 if one side is constant, because the correlation is then undefined."""
        from scipy import stats

        labels, predictions = labels.astype(np.float64), predictions.astype(np.float64)
        if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
            return 0.0
        return getattr(stats, name)(labels, predictions).statistic

    return correlation


def _f1_of_flags(average: str) -> Callable[[np.ndarray, np.ndarray], float]:
    def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
        """Computes F1 of several labels; a label that is never true and never predicted has 0."""
        from sklearn import metrics

        return metrics.f1_score(labels, predictions, average=average, zero_division=0)

    return f1


def _subset_accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the share of texts whose labels are all right."""
    return np.mean((labels == predictions).all(axis=-1))


_FUNCTIONS: dict[str, Callable[..., float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews_correlation": _matthews_correlation,
    "micro_f1": _f1_of_flags("micro"),
    "macro_f1": _f1_of_flags("macro"),
    "subset_accuracy": _subset_accuracy,
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
}
