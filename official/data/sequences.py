"""Examples of several sequences: a query with documents, a text with choices.

On disk such an example is one list of tokens, with the length of each sequence in
`sequence_lengths`. In a batch the sequences have an axis of their own. All sequences have the same
number of segments.

Shapes: B examples, C sequences of each, N = B * C, T tokens with padding.
"""

from collections.abc import Mapping

import tensorflow as tf

# Batch fields with the axis of sequences.
FIELDS = ("token_ids", "segment_ids", "padding_mask", "text_mask")


def split_sequences(parsed: Mapping[str, tf.RaggedTensor], rows: int) -> dict[str, tf.RaggedTensor]:
    """Splits examples into rows of one sequence each.

    Args:
      parsed: token_ids, segment_lengths and sequence_lengths [B, None], from `parsing.parse`.
      rows: N.

    Returns:
      token_ids and segment_lengths [N, None].
    """
    lengths = parsed["sequence_lengths"].flat_values  # [N]
    segments = tf.reshape(parsed["segment_lengths"].flat_values, [rows, -1])
    return {
        "token_ids": tf.RaggedTensor.from_row_lengths(parsed["token_ids"].flat_values, lengths),
        "segment_lengths": tf.RaggedTensor.from_tensor(segments),
    }


def text_mask(
    token_ids: tf.Tensor, padding_mask: tf.Tensor, special_ids: tuple[int, ...]
) -> tf.Tensor:
    """Returns bool of the shape of `token_ids`, False at special tokens and padding."""
    special = tf.reduce_any(
        tf.expand_dims(token_ids, -1) == tf.constant(special_ids, tf.int32), axis=-1
    )
    return tf.cast(padding_mask, tf.bool) & ~special


def add_sequence_axis(
    batch: Mapping[str, tf.Tensor], rows: int, count: int
) -> dict[str, tf.Tensor]:
    """Reshapes fields [N, T] to [B, C, T], where B is `rows` and C is `count`."""
    reshaped = {}
    for name, value in batch.items():
        shape = tf.stack([rows, count, tf.shape(value)[1]])
        reshaped[name] = tf.ensure_shape(tf.reshape(value, shape), [rows, count, value.shape[1]])
    return reshaped
