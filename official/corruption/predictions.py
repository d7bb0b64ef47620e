"""The list of what is to be predicted.

Shapes: B rows, T tokens with padding, P predictions (padded).
"""

import tensorflow as tf

GIVES = frozenset({"masked_positions", "masked_ids", "masked_weights"})


def listed(chosen: tf.Tensor, token_ids: tf.Tensor, most: int) -> dict[str, tf.Tensor]:
    """Lists the chosen positions of each row.

    Args:
      chosen: bool [B, T], at most P of a row.
      token_ids: what stands there, int32 [B, T].
      most: P.

    Returns:
      masked_positions int32 [B, P], ascending; masked_ids int32 [B, P]; masked_weights float32
      [B, P], 1 where there is a prediction. Elsewhere all three are 0.
    """
    cells = tf.where(chosen)  # [chosen tokens, 2], row by row
    rows, positions = cells[:, 0], tf.cast(cells[:, 1], tf.int32)
    shape = [chosen.shape[0], most]

    def padded(values):
        return tf.RaggedTensor.from_value_rowids(
            values, rows, tf.shape(chosen, tf.int64)[0], validate=False
        ).to_tensor(shape=shape)

    return {
        "masked_positions": padded(positions),
        "masked_ids": padded(tf.gather_nd(token_ids, cells)),
        "masked_weights": padded(tf.ones_like(positions, tf.float32)),
    }
