"""Relative keys: a vector for each distance, which is multiplied with queries and keys.

The score of a query i and a key j is (q_i k_j + q_i r_(i-j)) / sqrt(H) (Shaw et al. 2018, section
3, without their vectors of values), or (q_i k_j + q_i r_(i-j) + k_j r_(i-j)) / sqrt(H) (Huang et
al. 2020). Each layer has a table of vectors, which its heads share.

Shapes: B batch, T length, P query positions, R = 2 T distances, N heads, H head size.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.modeling.layers import schemes
from official.modeling.layers.base import Layer
from official.modeling.layers.embeddings import Table
from official.modeling.layers.positions import shift_keys, shift_queries
from official.modeling.layers.random import Draws
from official.modeling.types import Initializer, Tensor


class Scheme(schemes.Scheme):
    """Adds products with vectors of distances to the scores.

    `prepare` returns the rows of the table.
    """

    def of_attention(self, attention: Any, initializer: Initializer) -> dict[str, Layer]:
        """Makes the table."""
        table = Table(
            2 * self.part.distances - 1,
            attention.head_size,
            initializer=initializer,
            name="distance_embedding",
            dtype=attention.dtype_policy,
        )
        return {"distance_embedding": table}

    def prepare(self, encoder: Any, rows: schemes.Rows) -> tuple[Tensor, Tensor]:
        """Returns the rows of the table for distances T to 1 - T, and for -T to T - 1."""
        del encoder
        longest = self.part.distances - 1
        steps = ops.arange(2 * rows.length, dtype="int32") - rows.length
        down, up = (ops.clip(each, -longest, longest) + longest for each in (-steps, steps))
        return down, up

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
        del rng
        length, vectors = ops.shape(key)[2], attention.distance_embedding
        down, up = (ops.transpose(vectors(rows)) for rows in prepared)  # [H, R]
        scores = shift_queries(ops.matmul(query, down), length, positions)
        if self.part.keys:
            scores = scores + shift_keys(ops.matmul(key, up), length, positions)
        return scores * attention.factor
