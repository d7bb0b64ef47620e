"""Lists the positions to predict.

Shapes: B rows, T tokens with padding, P predictions (padded).
"""

import tensorflow as tf

NAMES = ("masked_positions", "masked_ids", "masked_weights")
GIVES = frozenset(NAMES)


def listed(times: tf.Tensor, token_ids: tf.Tensor, max_predictions: int) -> dict[str, tf.Tensor]:
    """Lists the chosen positions of each row.

    Args:
      times: how often each position is chosen, int32 or bool [B, T]; at most P of a row are.
      token_ids: the tokens at the positions, int32 [B, T].
      max_predictions: P.

    Returns:
      masked_positions int32 [B, P], ascending; masked_ids int32 [B, P]; masked_weights float32
      [B, P], how often the position is chosen. All three are 0 after the last prediction.
    """
    cells = tf.where(tf.cast(times, tf.bool))  # [chosen tokens, 2], row by row
    rows, positions = cells[:, 0], tf.cast(cells[:, 1], tf.int32)
    shape = [times.shape[0], max_predictions]

    def padded(values):
        return tf.RaggedTensor.from_value_rowids(
            values, rows, tf.shape(times, tf.int64)[0], validate=False
        ).to_tensor(shape=shape)

    return {
        "masked_positions": padded(positions),
        "masked_ids": padded(tf.gather_nd(token_ids, cells)),
        "masked_weights": padded(tf.cast(tf.gather_nd(times, cells), tf.float32)),
    }
