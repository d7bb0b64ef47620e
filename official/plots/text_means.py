"""Means of measurements of a model's layers over the tokens of texts.

Shapes: B texts of a batch, T tokens of the longest of them; `...` layers, heads or values.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official.modeling.layers import kernels
from official.modeling.model import Model
from official.tokenizers import Tokenizer
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError
from official.utils.progress import Progress, Report

# A function of a batch and the outputs of its encoder; returns sums over its tokens, not padding.
Measure = Callable[[Mapping[str, tf.Tensor], Mapping[str, Any]], tf.Tensor]


def packed(
    texts: Sequence[str] | tf.Tensor, tokenizer: Tokenizer, model: Model, max_length: int | None
) -> dict[str, tf.Tensor]:
    """Returns the batch of texts [B] that an encoder reads.

    Args:
      texts: the texts. They are cut to `max_length` tokens.
      tokenizer: the tokenizer of the model.
      model: the model. One with a decoder reads a text with its end token alone.
      max_length: includes the special tokens; None = the positions of the encoder.
    """
    config = model.encoder.config
    limit = max_length or config.max_positions
    return pack_texts([tf.convert_to_tensor(texts)], tokenizer, limit, config.text_layout)


def attentions(encoded: Mapping[str, Any], model: Model) -> Sequence[tf.Tensor]:
    """Returns the attention weights [B, N, T, T] of each layer.

    Raises:
      UserError: the encoder has no attention.
    """
    if "attentions" not in encoded:
        raise UserError(
            f"--model_dir: its encoder, {model.encoder.config.type}, has no attention: give the "
            "model folder of another encoder"
        )
    return encoded["attentions"]


def means(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    model: Model,
    measure: Measure,
    *,
    max_length: int | None = None,
    batch_size: int = 32,
    report: Report | None = None,
) -> np.ndarray:
    """Computes the mean of what a function measures, over all tokens of texts.

    Special tokens count, padding does not. Results for different batch sizes differ by rounding.

    Args:
      texts: the texts. Blank texts are skipped.
      tokenizer: the tokenizer of the model.
      model: the model.
      measure: is given a batch and the outputs of the encoder with all layers; returns the sums
        over the tokens of the batch, float64 [...].
      max_length: as for `packed`.
      batch_size: B. Texts of similar length share a batch.
      report: is called with lines of progress; None = there are none.

    Returns:
      float64 [...].

    Raises:
      UserError: there is no text.
    """
    # Sorted: a batch is padded to its longest text.
    texts = sorted((text for text in texts if text.strip()), key=len)
    if not texts:
        raise UserError("there is no text: give a text of a few words")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def sums(rows):
        batch = packed(rows, tokenizer, model, max_length)
        with kernels.using(gradients=False):
            encoded = model.encode(batch, output_all=True)
        return measure(batch, encoded), tf.math.count_nonzero(batch["padding_mask"])

    total, tokens = np.float64(0), 0
    progress = Progress(len(texts), report, unit="texts")
    for start in range(0, len(texts), batch_size):
        rows = texts[start : start + batch_size]
        values, count = sums(tf.constant(rows))
        total, tokens = total + values.numpy(), tokens + int(count)
        progress(len(rows))
    return np.asarray(total / tokens)
