"""Pools the states of a row's tokens to one vector, in training and in serving.

Poolings are named (`official.config.sentence_embedding.POOLINGS`): `mean` and `max` over the
tokens; `mean_sqrt_len`, the sum divided by the square root of their number; `weighted_mean`, the
mean with the weights 1, 2, ...; the `first` and the `last` token; and `pooled`, the output of the
pooler.

Shapes: B rows, T tokens, D hidden.
"""

import math
from collections.abc import Sequence

from keras import ops

from official.modeling.layers.kernels import accurate, take_positions
from official.modeling.types import Tensor


def pooled(
    states: Tensor,
    real: Tensor,
    poolings: Sequence[str],
    counted: Tensor | None = None,
    pooler: Tensor | None = None,
) -> Tensor:
    """Returns a vector for each row.

    Args:
        states: [B, T, ..., D].
        real: bool [B, T], False for padding.
        poolings: names of poolings.
        counted: bool [B, T], the tokens that are pooled; None = `real`. The mean over no tokens is
            0. `first` is always the first real token.
        pooler: the output of the pooler, [B, D].

    Returns:
        [B, ..., D * number of poolings], in float32, or float64 for float64 states.
    """
    dtype, sizes = accurate(states.dtype), states.shape[2:]
    states = ops.cast(states, dtype)
    if len(sizes) > 1:
        states = ops.reshape(states, (*ops.shape(states)[:2], math.prod(sizes)))
    real = ops.cast(real, "bool")
    counted = real if counted is None else counted
    weights = ops.cast(counted, dtype)
    number = ops.sum(weights, axis=1, keepdims=True)  # [B, 1]

    def total(weights):
        return ops.matmul(ops.expand_dims(weights, 1), states)[:, 0]

    def one(name):
        if name == "mean":
            return total(weights / ops.maximum(number, 1e-9))
        if name == "mean_sqrt_len":
            return total(weights / ops.sqrt(ops.maximum(number, 1e-9)))
        if name == "weighted_mean":
            places = ops.cumsum(ops.cast(real, dtype), axis=1) * weights
            return total(places / ops.maximum(ops.sum(places, axis=1, keepdims=True), 1e-9))
        if name == "max":
            return ops.max(ops.where(ops.expand_dims(counted, 2), states, -1e9), axis=1)
        if name == "pooled":
            return ops.cast(pooler, dtype)
        return take_positions(states, position(name, real))[:, 0]

    vectors = [one(name) for name in poolings]
    if len(sizes) > 1:
        vectors = [ops.reshape(each, (-1, *sizes)) for each in vectors]
    return ops.concatenate(vectors, axis=-1) if len(vectors) > 1 else vectors[0]


def position(name: str, real: Tensor) -> Tensor:
    """Returns the position of the `first` or the `last` real token of each row: int32 [B, 1].

    Args:
        name: the pooling.
        real: bool [B, T], False for padding.
    """
    real = ops.cast(real, "int32")
    if name == "first":
        return ops.expand_dims(ops.cast(ops.argmax(real, axis=1), "int32"), 1)
    columns = ops.arange(ops.shape(real)[1], dtype="int32")
    return ops.max(real * columns, axis=1, keepdims=True)


def counted(real: Tensor, skipped: int) -> Tensor:
    """Returns the tokens without the first `skipped` tokens of each row: bool [B, T]."""
    real = ops.cast(real, "bool")
    if not skipped:
        return real
    return ops.logical_and(real, ops.cumsum(ops.cast(real, "int32"), axis=1) > skipped)


def words(real: Tensor) -> Tensor:
    """Returns the tokens of an ELMo that are pooled, all but the two marks: bool [B, T].

    Args:
        real: bool [B, T], False for padding, which follows the last mark.
    """
    return ops.pad(ops.cast(real, "bool")[:, 2:], [[0, 0], [1, 1]], constant_values=False)


def normalized(vectors: Tensor) -> Tensor:
    """Returns vectors [..., D] divided by their lengths; a zero vector stays 0, with gradient 0."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))
