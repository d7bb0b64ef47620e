"""Attention that knows distances in place of positions (Dai et al. 2019, section 3.3).

The score of a query i and a key j is

    ((q_i + content_bias) k_j + (q_i + position_bias) r_(i-j) + (q_i + segment_bias) s_ij) / sqrt(H)

where r are vectors of distances and s_ij is one of two vectors of a head: whether i and j are of
the same segment or not (Yang et al. 2019, section 2.5).

Shapes: B batch, T content rows, P query rows, Q rows of a stream, M memory, S = M + T keys,
R distances, N heads, H head size, D hidden, G numbers of segments.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from official.modeling import masks
from official.modeling.layers import cache as slots
from official.modeling.layers.distances import from_slot, shift, shift_to
from official.modeling.layers.dropout import dropout
from official.modeling.layers.linear import Linear, linear
from official.modeling.layers.precision import accurate


@dataclasses.dataclass(frozen=True)
class Stream:
    """Rows that ask, and what they may see of the keys.

    Attributes:
        length: Q.
        mask: bool, broadcastable to [B, N, Q, S], True = may attend; None = all.
        segments: [B, Q, G], 1 at the number of each row's segment; None = all are of one.
        first: int [B, Q], the column that key 0 has in the scores by distance: T less the place
            that a row has in the content. None = the rows are the content's, in order.
    """

    length: Any
    mask: Any = None
    segments: Any = None
    first: Any = None


class RelativeBiases(keras.Layer):
    """What stands in for the query in the terms of content, of position and of segments.

    Variables [N, H]: `content_bias`, `position_bias` and, where there are segments,
    `segment_bias`. Layers have their own, or share one.
    """

    def __init__(self, num_heads, head_size, *, segments, initializer, name, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.size = (num_heads, head_size)
        self.segments = segments
        self.initializer = initializer

    def build(self, input_shape=None):
        """Makes the variables."""
        self.content_bias = self.add_weight(self.size, self.initializer, name="content_bias")
        self.position_bias = self.add_weight(self.size, self.initializer, name="position_bias")
        if self.segments:
            self.segment_bias = self.add_weight(self.size, self.initializer, name="segment_bias")


class RelativeAttention(keras.Layer):
    """Attention of one stream or two to the content and to a memory before it."""

    def __init__(
        self,
        size,
        num_heads,
        *,
        head_size,
        segments,
        dropout,
        initializer,
        name,
        biases=None,
        dtype=None,
    ):
        """Describes the layer.

        Args:
            size: D.
            num_heads: N.
            head_size: H.
            segments: whether there is a term of segments.
            dropout: rate, on the weights.
            initializer: of all variables.
            name: last part of the variables' paths.
            biases: `RelativeBiases` that layers share; None = own ones.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.num_heads = num_heads
        self.head_size = head_size
        self.segments = segments
        self.dropout = dropout
        self.initializer = initializer
        inner = num_heads * head_size
        options = {"initializer": initializer, "use_bias": False, "dtype": dtype}
        # The columns of the kernel are q | k | v, each of them head by head.
        self.query_key_value = Linear(size, 3 * inner, name="query_key_value", **options)
        self.position_key = Linear(size, inner, name="position_key", **options)
        self.output_projection = Linear(inner, size, name="output", **options)
        self.biases = biases or RelativeBiases(
            num_heads,
            head_size,
            segments=segments,
            initializer=initializer,
            name="biases",
            dtype=dtype,
        )

    def build(self, input_shape=None):
        """Makes the variables."""
        for layer in (self.query_key_value, self.position_key, self.output_projection, self.biases):
            if not layer.built:
                layer.build()
        if self.segments:
            # The vector of "the same segment", then that of "another".
            self.segment_embedding = self.add_weight(
                (2, self.num_heads, self.head_size), self.initializer, name="segment_embedding"
            )

    def call(
        self,
        x,
        *,
        streams,
        distances=None,
        backward=None,
        content=None,
        memory=None,
        key_segments=None,
        cache=None,
        slot=0,
        rng=None,
    ):
        """Attends.

        Args:
            x: [B, rows, D], the rows of all streams one after the other.
            streams: `Stream`s.
            distances: [1, R, D], or [2, R, D] where there is `backward`. A cache has them.
            backward: bool [B], rows whose distances count the other way; None = no such row.
            content: [B, T, D], what is attended to; None = `x`.
            memory: [B, M, D], what stands before it; None = nothing does.
            key_segments: [B, S, G], as the `segments` of streams; None where these are.
            cache: what `empty_cache` gave or an earlier call returned: then the keys are its S
                slots; None = there is no cache.
            slot: int, where the first row of x goes in the cache.
            rng: `Draws`, or None for inference.

        Returns:
            The output [B, rows, D]; the attention weights of each stream [B, N, Q, S] before
            dropout; the cache with these rows, or None.
        """
        query, key, value = self._project(x, content, memory)  # [B, N, rows or S, H]
        if cache is None:
            distance_key = self._distance_keys(distances, backward)  # [1 or B, N, H, R]
        else:
            old_key, old_value, near = cache
            key, value = slots.write(old_key, key, slot), slots.write(old_value, value, slot)
            distance_key = from_slot(near, slot, ops.shape(x)[1])
            cache = (key, value, near)
        if self.segments and key_segments is not None:
            # Whether query and key are of one segment is a product of their vectors of 0 and 1.
            there = ops.broadcast_to(
                key_segments[:, None], (*ops.shape(key)[:3], ops.shape(key_segments)[2])
            )
            key = ops.concatenate([key, there], axis=-1)  # [B, N, S, H + G]
        key = ops.transpose(key, (0, 1, 3, 2))
        queries = [query]
        if len(streams) == 2:
            queries = ops.split(query, [streams[0].length], axis=2)
        contexts, weights = [], []
        for rows, stream in zip(queries, streams, strict=True):
            scores = self._scores(rows, key, distance_key, stream)
            weights.append(ops.softmax(scores))
            kept = ops.cast(dropout(weights[-1], self.dropout, rng), self.compute_dtype)
            context = ops.matmul(kept, value)  # [B, N, Q, H]
            if stream.first is not None and stream.mask is not None:
                # The first token of an order sees nothing: not all values alike, its own with them.
                context = ops.where(ops.any(stream.mask, axis=-1, keepdims=True), context, 0)
            contexts.append(context)
        context = contexts[0] if len(contexts) == 1 else ops.concatenate(contexts, axis=2)
        context = ops.transpose(context, (0, 2, 1, 3))
        context = ops.reshape(context, (*ops.shape(x)[:2], self.num_heads * self.head_size))
        return self.output_projection(context), tuple(weights), cache

    def empty_cache(self, batch, distances):
        """Slots for S positions yet to come.

        Args:
            batch: B.
            distances: [1, 2 S, D], from distance S down to 1 - S.

        Returns:
            Keys and values [B, N, S, H], and the keys of the distances [1, N, H, 2 S], which are
            the same for every position.
        """
        keys = self._distance_keys(distances, None)
        empty = slots.empty(
            batch, self.num_heads, keys.shape[3] // 2, self.head_size, self.compute_dtype
        )
        return empty, empty, keys

    def _project(self, x, content, memory):
        """Queries, divided by sqrt(H), keys and values: [B, N, rows or S, H]."""
        inner = self.num_heads * self.head_size
        if content is None and memory is None:
            query, key, value = self._heads(self.query_key_value(x), 3)
        else:
            content = x if content is None else content
            if memory is not None:
                content = ops.concatenate([ops.cast(memory, content.dtype), content], axis=1)
            ours, theirs = ops.split(self.query_key_value.kernel, [inner], axis=1)
            (query,) = self._heads(linear(x, ours), 1)
            key, value = self._heads(linear(content, theirs), 2)
        return query * self.head_size**-0.5, key, value

    def _heads(self, x, parts):
        """Cuts x [B, rows, parts * N * H] into its parts: [B, N, rows, H] each."""
        batch, rows, _ = ops.shape(x)
        x = ops.reshape(x, (batch, rows, parts, self.num_heads, self.head_size))
        return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), parts)

    def _distance_keys(self, distances, backward):
        keys = self.position_key(distances)
        kinds, count, _ = ops.shape(keys)
        keys = ops.reshape(keys, (kinds, count, self.num_heads, self.head_size))
        keys = ops.transpose(keys, (0, 2, 3, 1))
        if backward is None:
            return keys
        return ops.where(ops.cast(backward, "bool")[:, None, None, None], keys[1:], keys[:1])

    def _scores(self, query, key, distance_key, stream):
        """Scores of a stream: [B, N, Q, S]."""
        exact = accurate(self.compute_dtype)
        scale = self.head_size**-0.5
        keys = ops.shape(key)[3]
        biased = query + self.biases.position_bias[:, None, :] * scale
        moved = ops.matmul(biased, distance_key)  # [B, N, Q, R]
        if stream.first is None:
            moved = shift(moved, keys)
        else:
            moved = shift_to(moved, stream.first, keys=keys)
        biased = query + self.biases.content_bias[:, None, :] * scale
        if self.segments and stream.segments is not None:
            # What is the same for all keys of a row does not matter to a softmax: so the vector of
            # other segments may be taken off both.
            vector = self.segment_embedding[0] - self.segment_embedding[1]  # [N, H]
            bias = ops.sum(self.biases.segment_bias * vector, axis=-1) * scale  # [N]
            same = ops.matmul(query, vector[:, :, None]) + bias[:, None, None]  # [B, N, Q, 1]
            biased = ops.concatenate([biased, same * stream.segments[:, None]], axis=-1)
        scores = ops.cast(ops.matmul(biased, key), exact) + ops.cast(moved, exact)
        if stream.mask is not None:
            scores = scores + masks.bias(stream.mask, exact)
        return scores
