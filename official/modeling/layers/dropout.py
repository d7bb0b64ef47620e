"""Dropout as functions, without a layer and without variables."""

from keras import ops

from official.modeling.layers.gradient import with_gradient
from official.modeling.layers.one_pass import one_pass
from official.modeling.layers.precision import accurate


def dropout(x, rate, rng, shared_axis=None):
    """Zeroes elements of `x` with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
        x: any shape.
        rate: probability, 0 <= rate < 1.
        rng: `Draws`, or None for inference, which returns `x` itself.
        shared_axis: an axis along which elements are zeroed together; None = each by itself.
    """
    kept = draw(ops.shape(x), rate, rng, shared_axis)
    return x if kept is None else _dropped(x, kept, scale=1 / (1 - rate))


def draw(shape, rate, rng, shared_axis=None):
    """Returns what dropout keeps: bool of `shape`, with size 1 at `shared_axis`; None = all."""
    if rng is None or rate == 0:
        return None
    if shared_axis is not None:
        shape = (*shape[:shared_axis], 1, *shape[shared_axis + 1 :])
    return rng.keep(shape, rate)


@with_gradient
def _dropped(x, kept, *, scale):
    return _scaled(x, kept, scale=scale), lambda upstream: (
        _scaled(upstream, kept, scale=scale),
        None,
    )


@one_pass
def _scaled(x, kept, *, scale):
    scaled = ops.cast(x, accurate(x.dtype)) * scale
    return ops.cast(ops.where(kept, scaled, 0), x.dtype)
