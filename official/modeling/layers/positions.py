"""Sinusoids of positions and distances, and conversion of scores by distance to scores by key.

Shapes: B batch, T length or content rows, P query rows, M memory, S = M + T keys or slots of a
cache, R distances, N heads, H head size, D hidden, E embedding size.
"""

import numpy as np
from keras import ops

from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import accurate, with_gradient
from official.modeling.types import DType, Size, Tensor


def sinusoids(positions: Tensor, size: int, dtype: DType, *, in_turn: bool = False) -> Tensor:
    """Returns the vectors of positions (Vaswani et al. 2017, section 3.5).

    In the paper, sines and cosines alternate. In its release, and in Transformer-XL, all sines come
    first. The two differ by a permutation of the columns, but the weights of a model fit only one
    of them.

    Args:
        positions: numbers [B or 1, T].
        size: D, even.
        dtype: dtype of the result.
        in_turn: whether sines and cosines alternate; if not, the sines come first.

    Returns:
        [B or 1, T, D].
    """
    both = waves(ops.cast(positions, accurate(dtype)), size)
    if not in_turn:
        return ops.cast(ops.concatenate(both, axis=-1), dtype)
    pairs = ops.stack(both, axis=-1)  # [B or 1, T, D / 2, 2]
    return ops.cast(ops.reshape(pairs, (*ops.shape(pairs)[:-2], size)), dtype)


class Sinusoids(Layer):
    """The vectors of positions with alternating sines and cosines (`sinusoids`); no variables.

    Args:
        size: E, even.
        name: name of the layer.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(self, size, *, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.size = size

    def build(self, input_shape=None):
        """Creates no variables."""

    def call(self, positions: Tensor) -> Tensor:
        """Returns the vectors of positions [B or 1, T]: [B or 1, T, E]."""
        return sinusoids(positions, self.size, self.compute_dtype, in_turn=True)

    def first(self, length: Size, offset: int = 0) -> Tensor:
        """Returns the vectors of `length` positions from `offset` on: [length, E]."""
        return self(ops.arange(length, dtype="int32") + offset)


def distance_vectors(
    length: Size,
    keys: Size,
    size: int,
    *,
    bidirectional: bool,
    clamp: int = 0,
    backward: bool = False,
    dtype: DType,
) -> Tensor:
    """Returns the sinusoids of all distances from a query to a key (Dai et al. 2019, section 3.3).

    Column c is for the distance S - c: the key is S - c positions before the query. Distance S has
    no key; `shift` needs its column.

    Args:
        length: T.
        keys: S.
        size: D, even.
        bidirectional: whether keys may come after a query. R is then S + T, otherwise S + 1.
        clamp: the largest distance; longer distances are replaced by it. 0 = no limit.
        backward: whether to return also the vectors of the negated distances.
        dtype: dtype of the result.

    Returns:
        [1, R, D], or [2, R, D] with the negated distances second.
    """
    steps = ops.arange(keys + (length if bidirectional else 1), dtype="int32")
    exact = accurate(dtype)
    distances = ops.cast(keys - steps, exact)
    if clamp:
        distances = ops.clip(distances, -clamp, clamp)
    sine, cosine = waves(distances, size)
    vectors = [ops.concatenate([sine, cosine], axis=-1)]
    if backward:
        vectors.append(ops.concatenate([-sine, cosine], axis=-1))
    return ops.cast(ops.stack(vectors), dtype)


def shift(scores: Tensor, keys: Size) -> Tensor:
    """Converts scores by distance to scores by key, for the content rows in order.

    In row i, the score of key j is in column T - i + j. In the flattened scores, row i begins at
    i * R, so that key j is at i * (R - 1) + T + j. Without the first T numbers, these are rows of
    length R - 1.

    Args:
        scores: [B, N, T, R], in the order of `distance_vectors`.
        keys: S.

    Returns:
        [B, N, T, S]. With one-sided distances, the scores of keys after the query are undefined.
    """
    batch, heads, length, distances = ops.shape(scores)
    line = ops.reshape(scores, (batch, heads, length * distances))
    line = ops.slice(line, (0, 0, length), (batch, heads, length * (distances - 1)))
    rows = ops.reshape(line, (batch, heads, length, distances - 1))
    return ops.slice(rows, (0, 0, 0, 0), (batch, heads, length, keys))


@with_gradient
def shift_to(scores: Tensor, first: Tensor, *, keys: Size) -> Tensor:
    """Converts scores by distance to scores by key, for rows at any positions.

    Args:
        scores: [B, N, P, R].
        first: int [B, P], the column of key 0: see `AttentionStream`.
        keys: S.

    Returns:
        [B, N, P, S].
    """
    distances = ops.shape(scores)[3]

    def backward(upstream):
        # Each column is read at most once, so the gradient is also a lookup, and not a sum.
        columns = ops.arange(distances, dtype="int32") - first[:, :, None]
        valid = ops.logical_and(columns >= 0, columns < keys)
        return ops.where(valid[:, None], _columns(upstream, columns, keys), 0), None

    wanted = first[:, :, None] + ops.arange(keys, dtype="int32")
    return _columns(scores, wanted, distances), backward


def shift_queries(by_distance: Tensor, keys: Size, positions: Tensor | None) -> Tensor:
    """Converts the scores of queries by distance to scores by key: [B, N, T or P, S].

    Args:
        by_distance: [B, N, T, R], or [B, N, P, R] with `positions`, from distance S down.
        keys: S.
        positions: int [B, P], the positions of the queries; None = all.
    """
    if positions is None:
        return shift(by_distance, keys)
    return shift_to(by_distance, keys - ops.cast(positions, "int32"), keys=keys)


def shift_keys(by_distance: Tensor, length: Size, positions: Tensor | None) -> Tensor:
    """Converts the scores of keys by distance to scores by query and key: [B, N, T or P, T].

    Args:
        by_distance: [B, N, T, R], from distance -T up.
        length: T.
        positions: int [B, P], the positions of the queries; None = all.
    """
    by_query = ops.transpose(shift(by_distance, length), (0, 1, 3, 2))
    if positions is None:
        return by_query
    return ops.take_along_axis(by_query, ops.expand_dims(positions, (1, 3)), axis=2)


def from_slot(distance_key: Tensor, slot: Size, length: Size) -> Tensor:
    """Returns the keys of the distances that `shift` needs for rows from a slot on.

    Args:
        distance_key: [1, N, H, 2 S], for distances from S down.
        slot: int, the slot of the first row.
        length: T, the number of rows.

    Returns:
        [1, N, H, S + T], for distances from `slot` + T down, as if these rows were the last ones.
    """
    *sizes, count = ops.shape(distance_key)
    last = count // 2
    return ops.slice(distance_key, (0, 0, 0, last - slot - length), (*sizes, last + length))


def _columns(x: Tensor, columns: Tensor, count: int):
    """Takes columns [B, P, C], clipped to valid ones, of x [B, N, P, `count`]."""
    columns = ops.clip(columns, 0, count - 1)
    return ops.take_along_axis(x, columns[:, None], axis=3)


def waves(numbers: Tensor, size: int, theta: float = 10000.0):
    """Returns the sines and the cosines of numbers [...]: [..., size / 2] each."""
    frequencies = theta ** (-np.arange(0, size, 2) / size)
    angles = numbers[..., None] * ops.convert_to_tensor(frequencies, numbers.dtype)
    return ops.sin(angles), ops.cos(angles)
