"""Norms of the column blocks of a variable.

Layers join matrices that read the same input by column: queries, keys and values of attention are
one kernel, and their biases one vector. The published systems have a variable for each. The layer
declares how many blocks of equal size the last axis of such a variable has
(`official.modeling.layers.linear`). Whatever an optimizer reads of a whole variable, it reads of
each block.

Shapes: C columns, K column blocks.
"""

import keras
import tensorflow as tf


def count(variable: keras.Variable) -> int:
    """Returns the number of column blocks that the layer of a variable has declared, or 1."""
    return getattr(variable, "column_blocks", 1)


def sums_of_squares(x: tf.Tensor, blocks: int) -> tf.Tensor:
    """Returns the sum of squares of each column block of x [..., C]: [K], or [] of one block."""
    if blocks == 1:
        return 2 * tf.nn.l2_loss(x)
    of_columns = tf.reduce_sum(tf.square(x), axis=list(range(x.shape.rank - 1)))  # [C]
    return tf.reduce_sum(tf.reshape(of_columns, (blocks, -1)), axis=1)


def by_column(values: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Returns a value of each column block of x [..., C] for each of its columns: [C].

    A scalar, the value of the only block, is returned as it is.
    """
    if values.shape.rank == 0:
        return values
    return tf.repeat(values, x.shape[-1] // values.shape[0])
