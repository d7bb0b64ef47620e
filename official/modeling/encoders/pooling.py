"""Which positions of the last states are pooled.

Shapes: B batch, T length, D hidden, K places.
"""

from keras import ops

from official.modeling.layers import gather


def states(x, position, real=None, places=None):
    """The states that a pooler reads.

    Args:
        x: [B, T, D].
        position: 'first', or 'last' = the last real one of each row.
        real: bool [B, T], False for padding; None = there is none.
        places: int [B, K], positions to take in place of these; None = none.

    Returns:
        [B, D], or [B, K, D] with `places`.
    """
    if places is not None:
        return gather.each(x, places)
    if position == "first":
        return x[:, 0]
    if real is None:
        return x[:, -1]
    last = ops.max(ops.where(real, ops.arange(ops.shape(x)[1]), 0), axis=1)  # [B]
    return gather.positions(x, last[:, None])
