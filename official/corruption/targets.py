"""The list of what is to be predicted.

Shapes: B rows, T tokens with padding, P predictions (padded).
"""

import tensorflow as tf

GIVES = frozenset({"masked_positions", "masked_ids", "masked_weights"})


def listed(times: tf.Tensor, token_ids: tf.Tensor, most: int) -> dict[str, tf.Tensor]:
    """Lists the chosen positions of each row.

    Args:
      times: how often each position is chosen, int32 or bool [B, T]; at most P of a row are.
      token_ids: what stands there, int32 [B, T].
      most: P.

    Returns:
      masked_positions int32 [B, P], ascending; masked_ids int32 [B, P]; masked_weights float32
      [B, P], how often the position is chosen. Where there is no prediction all three are 0.
    """
    cells = tf.where(tf.cast(times, tf.bool))  # [chosen tokens, 2], row by row
    rows, positions = cells[:, 0], tf.cast(cells[:, 1], tf.int32)
    shape = [times.shape[0], most]

    def padded(values):
        return tf.RaggedTensor.from_value_rowids(
            values, rows, tf.shape(times, tf.int64)[0], validate=False
        ).to_tensor(shape=shape)

    return {
        "masked_positions": padded(positions),
        "masked_ids": padded(tf.gather_nd(token_ids, cells)),
        "masked_weights": padded(tf.cast(tf.gather_nd(times, cells), tf.float32)),
    }
