"""Numbers the blocks of a row: its tokens attend to their own block and to earlier ones.

The reused tokens of a row, which the next row of a stream continues, are blocks of their own. So
the memory of these tokens contains nothing of the rest of the row, which the next row predicts.

Shapes: B rows, T tokens with padding.
"""

import tensorflow as tf


def numbers(token_ids: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the block number of each token [B, T], for blocks of `size` tokens: int32 [B, T]."""
    shape = tf.shape(token_ids)
    ids = tf.broadcast_to(tf.range(shape[1]) // size, shape)
    return tf.ensure_shape(ids, token_ids.shape)
