"""Perplexity and bits per byte of language models.

The perplexity is exp(mean loss of a token), so it depends on the tokenizer. The bits per byte are
the loss of all tokens in bits, divided by the bytes of their text, and compare models with
different tokenizers. The losses of special tokens count, and they have no bytes; see
`official.tokenizers.Tokenizer.piece_bytes`.
"""

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from official.modeling.model import Model


def byte_metrics(
    model: Model, losses: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor], sizes: np.ndarray
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Returns the bits per byte of the language models among the objectives of a model.

    Args:
      model: the model.
      losses: the sums of its losses.
      batch: the prepared batch.
      sizes: the bytes of each vocabulary entry.

    Returns:
      {metric: (bits, bytes)}.
    """
    metrics = {}
    for objective in model.objectives:
        for name, (ids, weights) in objective.text_targets(batch).items():
            if name not in losses:
                continue
            lengths = tf.cast(tf.gather(tf.constant(sizes), ids), losses[name].dtype)
            count = tf.reduce_sum(lengths * tf.cast(weights, losses[name].dtype))
            metrics[f"{name}_bits_per_byte"] = (losses[name] / math.log(2), count)
    return metrics


def perplexities(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the perplexity of each loss in `metrics` that has bits per byte."""
    names = (name.removesuffix("_bits_per_byte") for name in metrics if name.endswith("_per_byte"))
    return {f"{name}_perplexity": float(np.exp(metrics[name])) for name in names}
