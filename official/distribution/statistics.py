"""Packs the losses and metrics of a step for the sum over replicas, and computes their means.

Shapes: K statistics of a step.
"""

from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from keras import ops


class Statistics:
    """The names of the entries of the vector that a step returns, set while the step is traced.

    The sums over replicas come first: `loss/…`, `loss_weight/…`, `metric/…`, `metric_weight/…`,
    `tokens`, which are those of the encoder and of the decoder. A metric that is a pair of
    histograms (`official.modeling.objectives.base`) has an entry for each bin, such as
    `positive/NAME/0`.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def pack(
        self, losses: Mapping, loss_weights: Mapping, metrics: Mapping, batch: Mapping
    ) -> tf.Tensor:
        """Returns the sums of a replica as one vector [K]."""
        entries = {f"loss/{name}": value for name, value in losses.items()}
        entries |= {f"loss_weight/{name}": loss_weights[name] for name in losses}
        for name, (total, weight) in metrics.items():
            histograms = tf.convert_to_tensor(total).shape.rank > 0
            kinds = ("positive", "negative") if histograms else ("metric", "metric_weight")
            entries |= {f"{kinds[0]}/{name}": total, f"{kinds[1]}/{name}": weight}
        weights = batch["example_weights"]
        entries["tokens"] = 0.0
        for mask in [
            m for m in ("padding_mask", "target_mask") if m in batch
        ]:  # an encoder's, a decoder's
            # An example may have several sequences.
            real = ops.reshape(ops.cast(batch[mask], "float32"), (ops.shape(weights)[0], -1))
            entries["tokens"] += ops.sum(real * weights[:, None])
        self.names, parts = [], []
        for name, value in entries.items():
            part = tf.cast(value, keras.config.floatx())
            self.names += (
                [f"{name}/{i}" for i in range(part.shape[0])] if part.shape.rank else [name]
            )
            parts.append(tf.reshape(part, [-1]))
        return tf.concat(parts, axis=0)

    def summarize(self, rows: np.ndarray, term_weights: Mapping[str, float]) -> dict[str, float]:
        """Returns means over steps: `loss`, each term, and each metric.

        There is no `loss` without a term: rankings are evaluated by their metrics only.

        Args:
          rows: vectors of the steps, [steps, K].
          term_weights: factor of each term in the loss.
        """
        sums = dict(zip(self.names, np.asarray(rows, np.float64).sum(axis=0), strict=False))
        summary = {"loss": 0.0} if any(name.startswith("loss/") for name in sums) else {}
        histograms: dict[str, dict[str, list[float]]] = {}
        for name, value in sums.items():
            kind, _, key = name.partition("/")
            if kind in ("positive", "negative"):
                both = histograms.setdefault(key.rpartition("/")[0], {})
                both.setdefault(kind, []).append(value)
            if kind in ("loss", "metric"):
                weight = sums[f"{kind}_weight/{key}"]
                summary[key] = float(value / weight) if weight else 0.0
            if kind == "loss":
                summary["loss"] += term_weights[key] * summary[key]
        return summary | {name: area_under_curve(**both) for name, both in histograms.items()}


def area_under_curve(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Returns the probability that a positive has a higher score than a negative.

    Ties count half.

    Args:
      positive: weights of the positives in bins of rising score.
      negative: weights of the negatives in the same bins.

    Returns:
      The area under the ROC curve, or 0.5 if a class has no weight.
    """
    positives, negatives = np.asarray(positive, np.float64), np.asarray(negative, np.float64)
    pairs = positives.sum() * negatives.sum()
    below = np.cumsum(negatives) - negatives / 2
    return float((positives * below).sum() / pairs) if pairs else 0.5
