"""The relative position bias of T5 and MPNet: a number for each head and bucket of distances.

Shapes: T length, S key length or slots of a cache, R distances, N heads, K buckets.
"""

from typing import Any

import numpy as np
from keras import ops
from typing_extensions import override

from official.modeling import masks
from official.modeling.layers import schemes
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import accurate, take_rows
from official.modeling.layers.positions import shift
from official.modeling.layers.random import Draws
from official.modeling.types import Initializer, Size, Tensor


def buckets(relative, *, bidirectional: bool, num_buckets: int, max_distance: int):
    """Returns the bucket of each relative position (Raffel et al. 2020, section 2.1).

    Half of the buckets have one distance each. The ranges of the others grow geometrically up to
    `max_distance`; the last bucket also has all longer distances. If `bidirectional`, each
    direction has half of the buckets, keys after the query the upper half. Otherwise keys after the
    query share bucket 0 with the query itself.

    Args:
        relative: numpy integers of any shape, the position of the key minus that of the query.
        bidirectional: whether keys after the query have separate buckets.
        num_buckets: K.
        max_distance: roughly the distance at which the last bucket begins.

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

    @override
    def build(self, input_shape=None):
        shape = (self.rule["num_buckets"], self.num_heads)
        self.table = self.add_weight(shape, self.initializer, name="table", autocast=False)

    def scores(self, length: Size, keys: Size, slot: Size = 0) -> Tensor:
        """Returns the bias of `length` queries for `keys` keys: [1, N, T, S].

        Args:
            length: T, an int or a scalar tensor.
            keys: S, likewise.
            slot: int or scalar tensor, the key at the position of the first query.
        """
        # Only distances up to the largest need a lookup. Lengths may be known only at run time.
        largest = self.rule["max_distance"]
        known = ops.convert_to_tensor(buckets(np.arange(-largest, largest + 1), **self.rule))
        relative = ops.arange(keys + length, dtype="int32") - length - slot  # [R]
        wanted = ops.take(known, ops.clip(relative, -largest, largest) + largest)
        table = ops.cast(self.table, accurate(self.compute_dtype))
        by_distance = ops.transpose(take_rows(table, wanted))[None, :, None]  # [1, N, 1, R]
        rows = ops.broadcast_to(by_distance, (1, self.num_heads, length, keys + length))
        return shift(rows, keys)


class Scheme(schemes.Scheme):
    """Adds the same bias to the scores of all layers; `prepare` returns the bias."""

    def of_encoder(self, encoder: Any, initializer: Initializer) -> dict[str, Layer]:
        """Makes the table."""
        table = RelativeBias(
            encoder.parts.heads.count,
            bidirectional=self.part.bidirectional,
            num_buckets=self.part.buckets,
            max_distance=self.part.max_distance,
            initializer=initializer,
            name="relative_bias",
            dtype=encoder.dtype_policy,
        )
        return {"relative_bias": table}

    @override
    def prepare(self, encoder: Any, rows: schemes.Rows) -> tuple[Tensor]:
        return (encoder.relative_bias.scores(rows.length, rows.keys, rows.slot),)

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
        del attention, query, key, rng
        (bias,) = prepared
        return bias if positions is None else masks.rows(bias, positions)
