"""The softmax of attention scores, with dropout.

Shapes: S keys.
"""

from keras import ops

from official.modeling.layers.gradient import with_gradient
from official.modeling.layers.one_pass import one_pass


def softmax(scores, dtype=None, kept=None, rate=0.0):
    """Returns the softmax over the last axis, [..., S].

    Args:
        scores: [..., S].
        dtype: of the result; None = that of the scores.
        kept: what dropout keeps of the result, broadcastable to its shape; None = all.
        rate: that of dropout.
    """
    dtype = dtype or scores.dtype
    if kept is None:
        return _softmax(scores, dtype=dtype, scale=1.0)
    return _softmax(scores, kept, dtype=dtype, scale=1 / (1 - rate))


@with_gradient
def _softmax(scores, *kept, dtype, scale):
    # Keras warns of a softmax over one key, such as that of an empty text in cross-attention.
    weights = ops.softmax(scores) if scores.shape[-1] != 1 else ops.ones_like(scores)

    def backward(upstream):
        return _gradient(upstream, weights, *kept, scale=scale), *[None for _ in kept]

    value = _kept(weights, *kept, dtype=dtype, scale=scale) if kept else ops.cast(weights, dtype)
    return value, backward


@one_pass
def _kept(weights, kept, *, dtype, scale):
    return ops.cast(ops.where(kept, weights * scale, 0), dtype)


@one_pass
def _gradient(upstream, weights, *kept, scale):
    upstream = ops.cast(upstream, weights.dtype)
    if kept:
        upstream = ops.where(kept[0], upstream * scale, 0)
    mean = ops.sum(upstream * weights, axis=-1, keepdims=True)
    return (upstream - mean) * weights
