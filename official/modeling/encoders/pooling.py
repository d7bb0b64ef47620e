"""Selects the states that a pooler reads.

Shapes: B batch, T length, D hidden, K pooled positions.
"""

from keras import ops

from official.modeling.layers import gather


def states(x, position, real=None, positions=None):
    """Returns the states of the pooled positions.

    Args:
        x: [B, T, D].
        position: 'first', or 'last' for the last position of each row that is not padding.
        real: bool [B, T], False for padding; None = there is no padding.
        positions: int [B, K], positions to use instead; None = `position`.

    Returns:
        [B, D], or [B, K, D] with `positions`.
    """
    if positions is not None:
        return gather.each(x, positions)
    if position == "first":
        return x[:, 0]
    if real is None:
        return x[:, -1]
    last = ops.max(ops.where(real, ops.arange(ops.shape(x)[1]), 0), axis=1)  # [B]
    return gather.positions(x, last[:, None])
