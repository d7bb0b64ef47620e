"""Computes metrics of fine-tuning tasks with scikit-learn and scipy.

These two are slow to import, so the functions that use them import them.

Shapes: B examples, C classes.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from official.tasks import Description, nearest
from official.tasks.kinds import KINDS, Kind
from official.tasks.text_to_text import WRONG
from official.utils.errors import UserError


def compute(
    names: Iterable[str],
    labels: np.ndarray,
    predictions: np.ndarray,
    num_classes: int | None = None,
) -> dict[str, float]:
    """Computes metrics of `official.tasks.METRICS`.

    A prediction that is none of the classes is always wrong, as in the release of T5. For F1 of two
    classes it counts as the opposite of the label. For F1 of more classes and for the correlation
    of Matthews it is a class of its own, which has no F1.

    Args:
      names: the names of the metrics.
      labels: class ids or scores [B]; of several labels, flags [B, C], as the predictions.
      predictions: probabilities [B, C] or class ids [B], -1 = none of the classes; scores [B] for
        a regression.
      num_classes: C of class ids; F1 is then a mean over all C classes. None = those that occur.

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
        raise UserError(
            f"the split has no labels of the task {task.name} to compare with: "
            "evaluate on a labelled one, or use --mode=predict"
        )
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
        """Computes F1 of several labels; one that no text has and none is given has 0."""
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
