"""Blocks: a row in parts of so many tokens, each of which sees those before it and none behind it.

The tokens that the next row of a stream goes on after are blocks of their own, so what an encoder
remembers of them has seen nothing of the rest of the row, which the next row asks for.

Shapes: B rows, T tokens with padding.
"""

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    pass


def numbers(token_ids: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the number of the block that each token [B, T] is in: int32 [B, T]."""
    shape = tf.shape(token_ids)
    ids = tf.broadcast_to(tf.range(shape[1]) // size, shape)
    return tf.ensure_shape(ids, token_ids.shape)
