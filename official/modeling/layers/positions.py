"""Positions: sinusoids of positions and of distances, rotations, and T5's bias of distances.

Shapes: B batch, T length or content rows, P query rows, M memory, S = M + T keys or slots of a
cache, R distances, N heads, H head size, D hidden, E embedding size, K buckets.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from official.modeling import masks
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import accurate, one_pass, take_rows, with_gradient
from official.modeling.types import DType, Size, Tensor


def sinusoids(positions: Tensor, size: int, dtype: DType, *, in_turn: bool = False) -> Tensor:
    """Returns the vectors of positions (Vaswani et al. 2017, section 3.5).

    The paper has sines and cosines in turn. In its release, and in Transformer-XL, all sines come
    first. That is the same up to a permutation of the columns, but the weights of a model fit one
    of the two only.

    Args:
        positions: numbers [B or 1, T].
        size: D, even.
        dtype: dtype of the result.
        in_turn: whether sines and cosines alternate; if not, the sines come first.

    Returns:
        [B or 1, T, D].
    """
    waves = _waves(ops.cast(positions, accurate(dtype)), size)
    if not in_turn:
        return ops.cast(ops.concatenate(waves, axis=-1), dtype)
    pairs = ops.stack(waves, axis=-1)  # [B or 1, T, D / 2, 2]
    return ops.cast(ops.reshape(pairs, (*ops.shape(pairs)[:-2], size)), dtype)


class Sinusoids(Layer):
    """The vectors of positions in turn (`sinusoids`), in the place of a table: no variables.

    Args:
        size: E, even.
        name: name of the layer.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(self, size, *, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.size = size

    def build(self, input_shape=None):
        """Creates nothing."""

    def call(self, positions: Tensor) -> Tensor:
        """Returns the vectors of positions [B or 1, T]: [B or 1, T, E]."""
        return sinusoids(positions, self.size, self.compute_dtype, in_turn=True)

    def first(self, length: Size, offset: int = 0) -> Tensor:
        """Returns the vectors of `length` positions from `offset` on: [length, E]."""
        return self(ops.arange(length, dtype="int32") + offset)


class Rotation(NamedTuple):
    """The rotary positions of a sequence (Su et al. 2021, section 3.2).

    Number i of a head and number i + H / 2 are a point, which turns by the angle
    p * theta^(-2 i / H) at position p. The product of a query and a key then depends on the
    difference of their positions only. (The paper turns numbers 2 i and 2 i + 1. That is the same
    up to a permutation of a head's numbers, but the weights of a model fit one of the two only.)

    Attributes:
        cosine: [B or 1, 1, T, H / 2], of each angle.
        sine: the same.
    """

    cosine: Any
    sine: Any

    @classmethod
    def of(cls, positions: Tensor, size: int, theta: float, dtype: DType) -> "Rotation":
        """Returns the rotation of positions; angles have at least the precision of float32.

        Args:
            positions: int [B or 1, T].
            size: H, even.
            theta: the longest wave is 2 pi theta positions long, or a little less.
            dtype: dtype of the sines and cosines.
        """
        numbers = ops.cast(ops.expand_dims(positions, 1), accurate(dtype))
        sine, cosine = _waves(numbers, size, theta)
        return cls(ops.cast(cosine, dtype), ops.cast(sine, dtype))

    def rows(self, positions: Tensor) -> "Rotation":
        """Returns the rotation of some positions of each sequence, int [B, P]."""
        return Rotation(*(masks.rows(wave, positions) for wave in self))

    def turn(self, x: Tensor) -> Tensor:
        """Turns queries or keys [B, N, T, H]."""
        return _turned(x, self.cosine, self.sine)


@with_gradient
def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    def backward(upstream):
        return _products(upstream, cosine, -sine), None, None  # turned back

    return _products(x, cosine, sine), backward


@one_pass
def _products(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    dtype = accurate(x.dtype)
    cosine, sine = ops.cast(cosine, dtype), ops.cast(sine, dtype)
    first, second = ops.split(ops.cast(x, dtype), 2, axis=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return ops.cast(ops.concatenate(turned, axis=-1), x.dtype)


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
        clamp: largest distance; longer ones are replaced by it. 0 = no limit.
        backward: whether to return the vectors of the negated distances as well.
        dtype: dtype of the result.

    Returns:
        [1, R, D], or [2, R, D] with the negated distances second.
    """
    steps = ops.arange(keys + (length if bidirectional else 1), dtype="int32")
    exact = accurate(dtype)
    distances = ops.cast(keys - steps, exact)
    if clamp:
        distances = ops.clip(distances, -clamp, clamp)
    sine, cosine = _waves(distances, size)
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
        # Each column is read at most once, so the gradient is a look-up as well, and not a sum.
        columns = ops.arange(distances, dtype="int32") - first[:, :, None]
        valid = ops.logical_and(columns >= 0, columns < keys)
        return ops.where(valid[:, None], _columns(upstream, columns, keys), 0), None

    wanted = first[:, :, None] + ops.arange(keys, dtype="int32")
    return _columns(scores, wanted, distances), backward


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


def buckets(relative, *, bidirectional: bool, num_buckets: int, max_distance: int):
    """Returns the bucket of each relative position (Raffel et al. 2020, section 2.1).

    Half of the buckets have one distance each. The others have ranges whose ends grow
    geometrically up to `max_distance`; the last bucket has all distances beyond it as well. If both
    directions count, each has half of the buckets, keys after the query the upper half. Otherwise
    keys after the query share bucket 0 with the query itself.

    Args:
        relative: numpy integers of any shape, the position of the key minus that of the query.
        bidirectional: whether keys after the query are told apart.
        num_buckets: K.
        max_distance: the distance at which the last bucket begins, or a little less.

    Returns:
        numpy int32, of the shape of `relative`.
    """
    relative = np.asarray(relative)
    first = np.zeros_like(relative)
    if bidirectional:
        num_buckets //= 2
        first = np.where(relative > 0, num_buckets, 0)
        distance = np.abs(relative)
    else:
        distance = np.maximum(-relative, 0)
    exact = num_buckets // 2
    growth = np.log(np.maximum(distance, 1) / exact) / np.log(max_distance / exact)
    ranges = exact + (growth * (num_buckets - exact)).astype(np.int64)
    inside = np.where(distance < exact, distance, np.minimum(ranges, num_buckets - 1))
    return (first + inside).astype(np.int32)


class RelativeBias(Layer):
    """Adds to scores a number for each head and bucket: the variable `table` [K, N]."""

    def __init__(
        self,
        num_heads,
        *,
        bidirectional,
        num_buckets,
        max_distance,
        initializer,
        name=None,
        dtype=None,
    ):
        """Describes the layer; see `buckets` for the arguments."""
        super().__init__(name=name, dtype=dtype)
        self.num_heads = num_heads
        self.rule = {
            "bidirectional": bidirectional,
            "num_buckets": num_buckets,
            "max_distance": max_distance,
        }
        self.initializer = initializer

    def build(self, input_shape=None):
        """Creates the variable."""
        shape = (self.rule["num_buckets"], self.num_heads)
        self.table = self.add_weight(shape, self.initializer, name="table", autocast=False)

    def scores(self, length: Size, keys: Size, slot: Size = 0) -> Tensor:
        """Returns the bias of `length` queries for `keys` keys: [1, N, T, S].

        Args:
            length: T, an int or a scalar tensor.
            keys: S, likewise.
            slot: int or scalar tensor, the key at the position of the first query.
        """
        # Distances from the largest on share a bucket. Lengths may be known at run time only.
        largest = self.rule["max_distance"]
        known = ops.convert_to_tensor(buckets(np.arange(-largest, largest + 1), **self.rule))
        relative = ops.arange(keys + length, dtype="int32") - length - slot  # [R]
        wanted = ops.take(known, ops.clip(relative, -largest, largest) + largest)
        table = ops.cast(self.table, accurate(self.compute_dtype))
        by_distance = ops.transpose(take_rows(table, wanted))[None, :, None]  # [1, N, 1, R]
        rows = ops.broadcast_to(by_distance, (1, self.num_heads, length, keys + length))
        return shift(rows, keys)


def _columns(x: Tensor, columns: Tensor, count: int):
    """Takes columns [B, P, C], clipped to valid ones, of x [B, N, P, `count`]."""
    columns = ops.clip(columns, 0, count - 1)
    return ops.take_along_axis(x, columns[:, None], axis=3)


def _waves(numbers: Tensor, size: int, theta: float = 10000.0):
    """Returns the sines and the cosines of numbers [...]: [..., size / 2] each."""
    frequencies = theta ** (-np.arange(0, size, 2) / size)
    angles = numbers[..., None] * ops.convert_to_tensor(frequencies, numbers.dtype)
    return ops.sin(angles), ops.cos(angles)
