"""Disentangled attention: scores of content and of distances (He et al. 2021, section 3.1).

The score of a query i and a key j is

    (q_i k_j + q_i kr_(i-j) + k_j qr_(i-j)) / sqrt(3 H)

where kr and qr are the key and the query of a distance. (The paper prints qr_(j-i). The released
models have qr_(i-j).)

Both terms are first computed for all distances, and then shifted to the keys, without a lookup for
each pair of positions.

Shapes: B batch, T length, S key length, P positions, N heads, H head size, D hidden, R rows of the
table, K rows that a length needs.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops
from typing_extensions import override

from official.modeling.layers import schemes
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import dropout, take_rows
from official.modeling.layers.norm import LayerNorm
from official.modeling.layers.positions import shift_keys, shift_queries
from official.modeling.layers.random import Draws
from official.modeling.types import Initializer, Size, Tensor


class Distances(NamedTuple):
    """The vectors of the distances in a sequence, before dropout.

    Attributes:
        vectors: [K, D].
        of_query: int [2 T], the row of each distance from a query to a key, T to 1 - T. A distance
            is the position of the query minus that of the key.
        of_key: int [2 T], the row of each distance from a key to the queries, -T to T - 1.
    """

    vectors: Any
    of_query: Any
    of_key: Any


def log_buckets(distances, *, buckets: int, max_distance: int) -> np.ndarray:
    """Returns the bucket of each distance, as in the release of DeBERTa-v2.

    Each distance up to `buckets` / 2 has its own bucket. The buckets of longer distances have
    ranges that grow geometrically. Distances from `max_distance` - 1 on share the last bucket.

    Args:
        distances: integers of any shape.
        buckets: the number of buckets in each direction.
        max_distance: from `max_distance` - 1 on, all distances share a bucket.

    Returns:
        int64, of the same shape, with the sign of the distance.
    """
    last, middle = max_distance - 1, buckets // 2
    distances = np.clip(distances, -last, last)
    size = np.maximum(np.abs(distances), middle)
    growth = np.log(size / middle) / np.log(last / middle)
    far = middle + np.ceil(growth * (middle - 1)).astype(np.int64)
    return np.where(size == middle, distances, np.sign(distances) * far)


def table_rows(distances, *, buckets: int, max_distance: int) -> np.ndarray:
    """Returns the row of the table for each distance; without buckets, each distance has a row.

    Returns:
        int32, of the shape of `distances`, from 0 to R - 1.
    """
    half = buckets or max_distance
    if buckets:
        distances = log_buckets(distances, buckets=buckets, max_distance=max_distance)
    return np.clip(np.asarray(distances) + half, 0, 2 * half - 1).astype(np.int32)


class DistanceTable(Layer):
    """The vectors of distances that all layers of an encoder share: `table` [R, D], and a norm."""

    def __init__(
        self, size, *, buckets, max_distance, norm, epsilon, initializer, name=None, dtype=None
    ):
        """Describes the table.

        Args:
            size: D.
            buckets: see `official.config.blocks.Disentangled`.
            max_distance: likewise.
            norm: whether a layer norm follows the table.
            epsilon: epsilon of the norm.
            initializer: initializer of the table.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.size = size
        self.rule = {"buckets": buckets, "max_distance": max_distance}
        self.initializer = initializer
        self.norm = LayerNorm(size, epsilon=epsilon, name="norm", dtype=dtype) if norm else None

    @override
    def build(self, input_shape=None):
        count = 2 * (self.rule["buckets"] or self.rule["max_distance"])
        self.table = self.add_weight(
            (count, self.size), self.initializer, name="table", autocast=False
        )
        if self.norm is not None:
            self.norm.build()

    def read(self, length: Size) -> Distances:
        """Returns the distances in sequences of `length` tokens, an int or a scalar tensor.

        The rows that are read are contiguous; norm and projection skip all others.
        """
        longest = self.rule["max_distance"]  # all longer distances share its row
        known = table_rows(np.arange(-longest, longest + 1), **self.rule)
        if isinstance(length, int):
            place = min(length, longest)
            first, last = int(known[longest - place]), int(known[longest + place])
            steps = np.arange(2 * length)
            rows = [known[self._places(steps, length, sign)] for sign in (-1, 1)]
            vectors = self.table[first : last + 1]
        else:
            known, steps = ops.convert_to_tensor(known), ops.arange(2 * length, dtype="int32")
            place = ops.minimum(length, longest)
            first, last = ops.take(known, longest - place), ops.take(known, longest + place)
            rows = [ops.take(known, self._places(steps, length, sign)) for sign in (-1, 1)]
            vectors = ops.slice(self.table, (first, 0), (last - first + 1, self.size))
        vectors = ops.cast(vectors, self.compute_dtype)
        vectors = vectors if self.norm is None else self.norm(vectors)
        return Distances(vectors, *(ops.convert_to_tensor(each - first) for each in rows))

    def _places(self, steps: Any, length: Size, sign: int) -> Any:
        """Returns the indices of the distances from T down, or from -T up, among the rows read."""
        longest = self.rule["max_distance"]
        clip = np.clip if isinstance(steps, np.ndarray) else ops.clip
        return clip(sign * (steps - length), -longest, longest) + longest


class Scheme(schemes.Scheme):
    """Adds both terms of distances to the scores; `prepare` returns `Distances`.

    Without separate projections, an attention layer projects the vectors of distances by the
    kernels of its queries and keys.
    """

    terms = 3

    def __init__(self, part: Any):
        super().__init__(part)
        self.key_bias = not part.own_projections

    def of_encoder(self, encoder: Any, initializer: Initializer) -> dict[str, Layer]:
        """Makes the table of distances."""
        table = DistanceTable(
            encoder.parts.size,
            buckets=self.part.buckets,
            max_distance=self.part.max_distance,
            norm=self.part.norm,
            epsilon=encoder.parts.norm.epsilon,
            initializer=initializer,
            name="distance_table",
            dtype=encoder.dtype_policy,
        )
        return {"distance_table": table}

    def of_attention(self, attention: Any, initializer: Initializer) -> dict[str, Layer]:
        """Makes the projections of distances, if they are separate."""
        del initializer
        if not self.part.own_projections:
            return {}
        return {
            "distance_key": attention.projection("distance_key", use_bias=False),
            "distance_query": attention.projection("distance_query"),
        }

    @override
    def prepare(self, encoder: Any, rows: schemes.Rows) -> Distances:
        return encoder.distance_table.read(rows.length)

    @override
    def scores(
        self,
        attention: Any,
        query: Tensor,
        key: Tensor,
        prepared: Any,
        positions: Tensor | None,
        rng: Draws | None,
    ) -> Tensor:
        """See the base class; all rows of the batch have the same dropout of the vectors."""
        distances = Distances(*prepared)
        rng = None if rng is None else rng.shared()
        vectors = dropout(distances.vectors, attention.parts.dropout, rng)
        if self.part.own_projections:
            of_query, of_key = attention.distance_query(vectors), attention.distance_key(vectors)
        else:
            size = attention.inner_size
            (both,) = attention.query_key_value.by_columns([vectors], [2 * size, size])
            of_query, of_key = ops.split(both, 2, axis=-1)
        of_query, of_key = of_query * attention.factor, of_key * attention.factor
        return distance_scores(
            query, key, of_key, of_query, distances.of_query, distances.of_key, positions
        )


def distance_scores(
    query: Tensor,
    key: Tensor,
    distance_key: Tensor,
    distance_query: Tensor,
    of_query: Tensor,
    of_key: Tensor,
    positions: Tensor | None = None,
) -> Tensor:
    """Returns the sum of both terms of distances.

    Args:
        query: [B, N, T, H], or [B, N, P, H] with `positions`.
        key: [B, N, T, H].
        distance_key: [K, N H], with the factor of the scores.
        distance_query: [K, N H], likewise.
        of_query: int [2 T]; see `Distances`.
        of_key: int [2 T].
        positions: int [B, P], the positions of the queries; None = all.

    Returns:
        [B, N, T, T], or [B, N, P, T].
    """
    by_query = _products(query, take_rows(distance_key, of_query))  # [B, N, T or P, 2 T]
    by_key = _products(key, take_rows(distance_query, of_key))  # [B, N, T, 2 T]
    length = ops.shape(key)[2]
    return shift_queries(by_query, length, positions) + shift_keys(by_key, length, positions)


def _products(x: Tensor, vectors: Tensor) -> Tensor:
    """Returns the products of x [B, N, T, H] with vectors [C, N H] of each head: [B, N, T, C]."""
    _, heads, _, size = ops.shape(x)
    vectors = ops.reshape(vectors, (-1, heads, size))
    return ops.matmul(x, ops.transpose(vectors, (1, 2, 0)))
