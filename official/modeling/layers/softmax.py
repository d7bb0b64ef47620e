"""The softmax of attention scores.

Shapes: S keys.
"""

from keras import ops

from official.modeling.layers.gradient import with_gradient
from official.modeling.layers.one_pass import one_pass


@with_gradient
def softmax(scores):
    """Returns the softmax of scores [..., S] over the last axis: [..., S]."""
    weights = ops.softmax(scores)
    return weights, lambda upstream: _gradient(upstream, weights)


@one_pass
def _gradient(upstream, weights):
    mean = ops.sum(upstream * weights, axis=-1, keepdims=True)
    return (upstream - mean) * weights
