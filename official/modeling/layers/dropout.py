"""Dropout as a function, without a layer and without variables."""

from keras import ops


def dropout(x, rate, rng):
    """Zeroes elements of `x` with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
        x: any shape.
        rate: probability, 0 <= rate < 1.
        rng: `Draws`, or None for inference, which returns `x` itself.
    """
    if rng is None or rate == 0:
        return x
    return ops.where(rng.keep(ops.shape(x), rate), x * (1 / (1 - rate)), 0)
