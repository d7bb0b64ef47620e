"""The key-value cache of a loop in a graph, written without a copy.

Shapes: B batch, N heads, T new positions, S slots, H head size.
"""

from collections.abc import Callable

import tensorflow as tf

from official.modeling.layers import cache


def write(slots: tf.Tensor, new: tf.Tensor, first: int | tf.Tensor) -> tf.Tensor:
    """Writes `new` [B, N, T, H] into slots [B, N, S, H], from slot `first` on.

    The result has the memory of `slots` if nothing else reads them, as in a loop that carries them.
    XLA cannot compile this function.
    """
    size = slots.shape[3]
    start, length = first * size, new.shape[2] * size
    # Rows of two axes are copied in one piece each.
    rows = tf.raw_ops.TensorStridedSliceUpdate(
        input=tf.reshape(slots, [-1, slots.shape[2] * size]),
        begin=tf.stack([0, start]),
        end=tf.stack([0, start + length]),
        strides=[1, 1],
        value=tf.reshape(new, [-1, length]),
        begin_mask=1,
        end_mask=1,
    )  # [B * N, S * H]
    return tf.reshape(rows, tf.shape(slots))


def graph(function: Callable) -> tf.types.experimental.PolymorphicFunction:
    """Returns the graph of a function, in which `cache.write` makes no copy."""

    def traced(*args, **kwargs):
        with cache.written_by(write):
            return function(*args, **kwargs)

    return tf.function(traced, autograph=False)
