"""Attention with relative distances in place of positions (Dai et al. 2019, section 3.3).

The score of a query i and a key j is

    ((q_i + content_bias) k_j + (q_i + position_bias) r_(i-j) + (q_i + segment_bias) s_ij) / sqrt(H)

where r are vectors of distances. s_ij is one of two vectors of a head, one for keys of the same
segment as the query and one for keys of another segment (Yang et al. 2019, section 2.5).

Shapes: B batch, T content rows, P query rows, Q rows of a stream, M memory, S = M + T keys,
R distances, N heads, H head size, D hidden, G segment ids.
"""

from typing import Any, NamedTuple

from keras import ops
from typing_extensions import override

from official.modeling import masks
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import accurate, dropout_mask, softmax, write_slots
from official.modeling.layers.linear import Linear, linear
from official.modeling.layers.positions import distance_vectors, from_slot, shift, shift_to
from official.modeling.layers.random import Draws
from official.modeling.types import Size, Tensor


class AttentionStream(NamedTuple):
    """The query rows of a stream, and the keys that they may attend to.

    Attributes:
        mask: bool, broadcastable to [B, N, Q, S], True = may attend; None = all.
        segments: [B, Q, G], the one-hot segment id of each row; None = all are in one segment.
        first: int [B, Q], the column of key 0 in the scores by distance: T minus the position of
            the row in the content. None = the rows are those of the content, in order.
    """

    mask: Any = None
    segments: Any = None
    first: Any = None


class RelativePositions(NamedTuple):
    """The distances between the rows and the keys, and the segments of the keys.

    Attributes:
        distances: [1, R, D], or [2, R, D] with `backward`; not used with a cache. None = those in
            both directions.
        backward: bool [B], True for rows whose distances have the opposite sign; None = no row.
        key_segments: [B, S, G], one-hot segment ids; None if the streams have none.
    """

    distances: Any = None
    backward: Any = None
    key_segments: Any = None


def by_stream(x: Tensor, streams, axis: int):
    """Splits the rows of one or two streams, which `x` has along an axis."""
    if len(streams) == 1:
        return [x]
    length = ops.shape(x)[axis] - ops.shape(streams[1].first)[1]
    if isinstance(length, int):
        return ops.split(x, [length], axis=axis)
    before = (slice(None),) * axis
    return [x[(*before, slice(length))], x[(*before, slice(length, None))]]


class RelativeBiases(Layer):
    """Biases that are added to the query in the terms of content, position and segments.

    The variables are `content_bias`, `position_bias` and, if there are segments, `segment_bias`,
    [N, H] each. Each layer has its own biases, or all layers share them.
    """

    def __init__(self, parts, initializer, *, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.size = (parts.heads.count, parts.heads.size)
        self.segments = parts.positions[0].segments
        self.initializer = initializer

    @override
    def build(self, input_shape=None):
        self.content_bias = self.add_weight(self.size, self.initializer, name="content_bias")
        self.position_bias = self.add_weight(self.size, self.initializer, name="position_bias")
        if self.segments:
            self.segment_bias = self.add_weight(self.size, self.initializer, name="segment_bias")


class RelativeAttention(Layer):
    """Attention of one or two streams to the content and to a memory before it.

    Call arguments:
        x: [B, rows, D], the rows of all streams, one stream after the other.
        streams: one or two `AttentionStream`s; of two, the second has `first`, and the layer gets
            `content`. None = the rows of the content, which attend to all keys.
        positions: `RelativePositions`; None = the defaults of all three.
        content: [B, T, D], the content that is attended to; None = `x`. The padding mask that Keras
            keeps with it is combined with those of the streams.
        memory: [B, M, D], the memory before the content, or None.
        cache: the result of `empty_cache`, or the cache that an earlier call returned; the keys
            are then its S slots. None = no cache.
        slot: int, the slot of the first row of `x`.
        rng: `Draws`, or None for inference.
        training: whether Keras trains; see `Layer.draws`.

    A call returns the output [B, rows, D], the attention weights of each stream [B, N, Q, S] before
    dropout, and the cache with these rows, or () without one.
    """

    def __init__(self, parts, initializers, *, biases=None, name=None, dtype=None):
        """Describes the layer.

        Args:
            parts: `BlockParts`, of which it reads D, the heads, and `SinusoidalDistances`, its one
                position scheme.
            initializers: `Initializers`.
            biases: `RelativeBiases` that layers share; None = the layer has its own.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        (scheme,) = parts.positions
        heads, self.initializer = parts.heads, initializers.kernel
        self.num_heads, self.head_size = heads.count, heads.size
        self.segments = scheme.segments
        self.dropout = heads.dropout
        size, inner = parts.size, heads.count * heads.size
        options = {"initializer": self.initializer, "use_bias": False, "dtype": dtype}
        # The columns of the kernel are q | k | v, each of them head by head.
        self.query_key_value = Linear(
            size, 3 * inner, name="query_key_value", column_blocks=3, **options
        )
        self.position_key = Linear(size, inner, name="position_key", **options)
        self.output_projection = Linear(inner, size, name="output", **options)
        self.biases = biases or RelativeBiases(parts, self.initializer, name="biases", dtype=dtype)

    @override
    def build(self, input_shape=None):
        for layer in (self.query_key_value, self.position_key, self.output_projection, self.biases):
            if not layer.built:
                layer.build()
        if self.segments:
            # The vector of keys of the same segment, then that of keys of another segment.
            self.segment_embedding = self.add_weight(
                (2, self.num_heads, self.head_size), self.initializer, name="segment_embedding"
            )

    def call(
        self,
        x: Tensor,
        *,
        streams=None,
        positions: RelativePositions | None = None,
        content: Tensor | None = None,
        memory: Tensor | None = None,
        cache: Any | None = None,
        slot: Size = 0,
        rng: Draws | None = None,
        training: bool | None = None,
    ):
        """Attends from the rows of all streams to the keys: see the class."""
        rng = self.draws(rng, training)
        # Keras loads a saved call with lists in the place of these tuples.
        streams = [AttentionStream(*each) for each in streams or [AttentionStream()]]
        distances, backward, key_segments = RelativePositions(*positions or ())
        query, key, value = self._project(x, content, memory)  # [B, N, rows or S, H]
        if cache is None:
            cache, implied = (), self._implied(x if content is None else content, memory)
            streams = [s._replace(mask=masks.combine(s.mask, implied)) for s in streams]
            if distances is None:
                distances = self._all_distances(x if content is None else content, key)
            distance_key = self._distance_keys(distances, backward)  # [1 or B, N, H, R]
        else:
            old_key, old_value, distance_key = cache
            key, value = write_slots(old_key, key, slot), write_slots(old_value, value, slot)
            cache = (key, value, distance_key)
            distance_key = from_slot(distance_key, slot, ops.shape(x)[1])
        key = ops.transpose(self._with_segments(key, key_segments), (0, 1, 3, 2))
        queries = by_stream(query, streams, axis=2)
        contexts, weights = [], []
        for rows, stream in zip(queries, streams, strict=True):
            scores = self._scores(rows, key, distance_key, stream)
            # A graph whose outputs do not read the weights leaves this softmax out.
            weights.append(softmax(scores))
            contexts.append(self._context(scores, value, stream, rng))
        context = contexts[0] if len(contexts) == 1 else ops.concatenate(contexts, axis=2)
        context = ops.transpose(context, (0, 2, 1, 3))
        context = ops.reshape(context, (*ops.shape(x)[:2], self.num_heads * self.head_size))
        return self.output_projection(context), tuple(weights), cache

    def _implied(self, content: Tensor, memory: Tensor) -> Tensor:
        """Returns the mask of the padding that Keras keeps with the content: [B, 1, 1, S]."""
        mask = masks.implied(content)
        if mask is None or memory is None:
            return mask
        batch, size, _ = ops.shape(memory)
        return masks.after_memory(mask, ops.ones((batch, size), "bool"), ops.shape(content)[1])

    def _all_distances(self, content: Tensor, key: Tensor) -> Tensor:
        """Returns the vectors of all distances to the keys [B, N, S, H]: [1, R, D]."""
        _, length, size = ops.shape(content)
        return distance_vectors(
            length, ops.shape(key)[2], size, bidirectional=True, dtype=self.compute_dtype
        )

    def _with_segments(self, key: Tensor, key_segments: Tensor):
        """Appends the one-hot segments of the keys to the keys: [B, N, S, H or H + G].

        The product with the segment scores of a query then picks the score of each key's segment.
        """
        if not self.segments or key_segments is None:
            return key
        shape = (*ops.shape(key)[:3], ops.shape(key_segments)[2])
        return ops.concatenate([key, ops.broadcast_to(key_segments[:, None], shape)], axis=-1)

    def _context(self, scores: Tensor, value: Tensor, stream, rng: Draws | None) -> Tensor:
        """Returns the weighted values of a stream: [B, N, Q, H]."""
        kept = dropout_mask(ops.shape(scores), self.dropout, rng)
        context = ops.matmul(softmax(scores, self.compute_dtype, kept, self.dropout), value)
        if stream.first is None or stream.mask is None:
            return context
        # The first token of an order attends to nothing. Its context is 0, since the mean of all
        # values would include its own.
        return ops.where(ops.any(stream.mask, axis=-1, keepdims=True), context, 0)

    def empty_cache(self, batch: Size, distances: Tensor):
        """Returns empty slots for S positions.

        Args:
            batch: B.
            distances: [1, 2 S, D], from distance S down to 1 - S.

        Returns:
            Keys and values [B, N, S, H], and the keys of the distances [1, N, H, 2 S], which are
            the same for every position.
        """
        keys = self._distance_keys(distances, None)
        shape = (batch, self.num_heads, keys.shape[3] // 2, self.head_size)
        empty = ops.zeros(shape, self.compute_dtype)
        return empty, empty, keys

    def _project(self, x: Tensor, content: Tensor | None, memory: Tensor | None):
        """Returns queries divided by sqrt(H), keys and values: [B, N, rows or S, H]."""
        inner = self.num_heads * self.head_size
        if content is None and memory is None:
            query, key, value = self._heads(self.query_key_value(x), 3)
        else:
            content = x if content is None else content
            if memory is not None:
                content = ops.concatenate([ops.cast(memory, content.dtype), content], axis=1)
            for_query, for_keys = ops.split(self.query_key_value.kernel, [inner], axis=1)
            (query,) = self._heads(linear(x, for_query), 1)
            key, value = self._heads(linear(content, for_keys), 2)
        return query * self.head_size**-0.5, key, value

    def _heads(self, x: Tensor, parts: int):
        """Splits x [B, rows, parts * N * H] into its parts: [B, N, rows, H] each."""
        batch, rows, _ = ops.shape(x)
        x = ops.reshape(x, (batch, rows, parts, self.num_heads, self.head_size))
        return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), parts)

    def _distance_keys(self, distances: Tensor, backward: Tensor) -> Tensor:
        """Returns the keys of the distances: [1 or B, N, H, R]."""
        keys = self.position_key(distances)
        directions, count, _ = ops.shape(keys)
        keys = ops.reshape(keys, (directions, count, self.num_heads, self.head_size))
        keys = ops.transpose(keys, (0, 2, 3, 1))
        if backward is None:
            return keys
        return ops.where(ops.cast(backward, "bool")[:, None, None, None], keys[1:], keys[:1])

    def _scores(self, query: Tensor, key: Tensor, distance_key: Tensor, stream) -> Tensor:
        """Returns the scores of a stream: [B, N, Q, S]."""
        exact = accurate(self.compute_dtype)
        scale = self.head_size**-0.5
        keys = ops.shape(key)[3]
        biased = query + self.biases.position_bias[:, None, :] * scale
        by_distance = ops.matmul(biased, distance_key)  # [B, N, Q, R]
        if stream.first is None:
            by_key = shift(by_distance, keys)
        else:
            by_key = shift_to(by_distance, stream.first, keys=keys)
        biased = query + self.biases.content_bias[:, None, :] * scale
        if self.segments and stream.segments is not None:
            # Softmax ignores a term that is the same for all keys of a row. So the vector of other
            # segments is subtracted from both vectors.
            vector = self.segment_embedding[0] - self.segment_embedding[1]  # [N, H]
            bias = ops.sum(self.biases.segment_bias * vector, axis=-1) * scale  # [N]
            same = ops.matmul(query, vector[:, :, None]) + bias[:, None, None]  # [B, N, Q, 1]
            biased = ops.concatenate([biased, same * stream.segments[:, None]], axis=-1)
        scores = ops.cast(ops.matmul(biased, key), exact) + ops.cast(by_key, exact)
        if stream.mask is not None:
            scores = scores + masks.bias(stream.mask, exact)
        return scores
