"""Selects the states that a pooler reads.

Shapes: B batch, T length, D hidden, K pooled positions.
"""

from keras import ops

from official.modeling.layers import gather


def states(x, position, real=None, given=None):
    """Returns the states of the pooled positions.

    Args:
        x: [B, T, D].
        position: 'first', or 'last' for the last position of each row that is not padding.
        real: bool [B, T], False for padding; None = there is no padding.
        given: int [B, K], positions to use instead; None = `position`.

    Returns:
        [B, D], or [B, K, D] with `given`.
    """
    if given is not None:
        return gather.each(x, given)
    if position == "first":
        return x[:, 0]
    return gather.positions(x, positions(x, position, real))


def positions(x, position, real=None, given=None):
    """Returns the pooled positions: int [B, K], or [B, 1]; the arguments are those of `states`."""
    if given is not None:
        return given
    batch, length, _ = ops.shape(x)
    if position == "first":
        return ops.zeros((batch, 1), "int32")
    if real is None:
        return ops.full((batch, 1), length - 1, "int32")
    last = ops.where(real, ops.arange(length, dtype="int32"), 0)
    return ops.max(last, axis=1, keepdims=True)
