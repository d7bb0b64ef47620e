"""Finds the tokens beside each hidden span, for the span boundary objective.

Shapes: B rows, T tokens with padding, P predictions (padded).
"""

from collections.abc import Mapping

import tensorflow as tf

from official.corruption.units import maskable_tokens, numbered, sum_at
from official.corruption.vocabulary import Vocabulary

GIVES = frozenset({"span_left", "span_right", "span_offset", "span_weights"})


def boundaries(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Finds the tokens beside each span (SpanBERT, section 3.2).

    A span is a maximal sequence of hidden tokens, so its neighbours are not hidden. If a neighbour
    is a special token or missing, the span has the weight 0.

        tokens            [CLS] an  [M] [M] red [M] [SEP]
        masked_positions         2   3       5
        span_left                1   1       4
        span_right               4   4       6
        span_offset              0   1       0
        span_weights             1   1       0

    Args:
      vocabulary: the vocabulary of the tokens.
      batch: has token_ids int32 [B, T], before or after masking, padding_mask bool [B, T],
        masked_positions int32 [B, P] ascending, and masked_weights float32 [B, P].

    Returns:
      span_left and span_right int32 [B, P], the positions of the neighbours; span_offset int32
      [B, P], the offset in the span from 0; span_weights float32 [B, P]. The first three are 0
      where the weight is 0.
    """
    positions, real = batch["masked_positions"], batch["masked_weights"] > 0
    before = tf.pad(positions[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    begins = real & (positions != before + 1)
    begins |= real & (tf.range(tf.shape(positions)[1]) == 0)
    spans = numbered(begins, real)  # [B, P]
    starts = sum_at(spans, tf.where(begins, positions, 0))  # [B, P], by span
    sizes = sum_at(spans, tf.ones_like(spans))
    start = tf.gather(starts, tf.maximum(spans, 0), batch_dims=1)  # [B, P], by prediction
    left = start - 1
    right = start + tf.gather(sizes, tf.maximum(spans, 0), batch_dims=1)
    text = maskable_tokens(vocabulary, batch)  # [B, T]
    last = tf.shape(text)[1] - 1
    inner = real & (left >= 0) & (right <= last)
    inner &= tf.gather(text, tf.maximum(left, 0), batch_dims=1)
    inner &= tf.gather(text, tf.minimum(right, last), batch_dims=1)
    return {
        "span_left": tf.where(inner, left, 0),
        "span_right": tf.where(inner, right, 0),
        "span_offset": tf.where(inner, positions - start, 0),
        "span_weights": tf.cast(inner, tf.float32),
    }
