"""Dropout as a function, without a layer and without variables."""

from keras import ops


def dropout(x, rate, rng, shared_axis=None):
    """Zeroes elements of `x` with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
        x: any shape.
        rate: probability, 0 <= rate < 1.
        rng: `Draws`, or None for inference, which returns `x` itself.
        shared_axis: an axis along which elements are zeroed together; None = each by itself.
    """
    if rng is None or rate == 0:
        return x
    shape = ops.shape(x)
    if shared_axis is None:
        return ops.where(rng.keep(shape, rate), x * (1 / (1 - rate)), 0)
    kept = rng.keep((*shape[:shared_axis], 1, *shape[shared_axis + 1 :]), rate)
    return x * (ops.cast(kept, x.dtype) * (1 / (1 - rate)))
