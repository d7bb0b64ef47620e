"""Blocks: a row in parts of so many tokens, each of which sees those before it and none behind it.

The tokens that the next row of a stream goes on after are blocks of their own, so what an encoder
remembers of them has seen nothing of the rest of the row, which the next row asks for.

Shapes: B rows, T tokens with padding.
"""

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from official.config import Segments


def check(name: str, size: int, segments: "Segments") -> None:
    """Refuses blocks that do not fill a row, or that do not end where the next row goes on.

    Args:
      name: of the setting, for messages.
      size: tokens of a block.
      segments: `official.config.sections.Segments`.

    Raises:
      ValueError: with the arithmetic.
    """
    length = segments.max_length
    if reused := segments.reuse_length % size:
        # The next row's targets would be seen by what it remembers of this one.
        raise ValueError(
            f"{name}: blocks of {size} do not end where the next row goes on, after "
            f"reuse_length {segments.reuse_length} = {segments.reuse_length // size} × {size} + "
            f"{reused}: take a divisor of both reuse_length and max_length {length}"
        )
    if length % size:
        raise ValueError(
            f"{name}: blocks of {size} do not fill max_length {length}: {length} = "
            f"{length // size} × {size} + {length % size}; take a divisor"
        )


def numbers(token_ids: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the number of the block that each token [B, T] is in: int32 [B, T]."""
    shape = tf.shape(token_ids)
    ids = tf.broadcast_to(tf.range(shape[1]) // size, shape)
    return tf.ensure_shape(ids, token_ids.shape)
