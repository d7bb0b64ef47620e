"""Multi-head attention: of a sequence to itself, and of a decoder to an encoder.

A sequence attends to itself as a whole, or in the blocks of `layers.local_attention`.

Shapes: B batch, T query length, S key length or slots of a cache, N heads, H head size, D hidden,
E hidden size of the sequence attended to, K vectors of distances.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from official.modeling import masks
from official.modeling.layers.base import Layer
from official.modeling.layers.disentangled import Distances, distance_scores
from official.modeling.layers.kernels import (
    accurate,
    dropout,
    dropout_mask,
    softmax,
    take_positions,
    times_transposed,
    write_slots,
)
from official.modeling.layers.linear import Linear
from official.modeling.layers.local_attention import Blocks
from official.modeling.layers.positions import Rotation
from official.modeling.layers.random import Draws, Scaled
from official.modeling.types import Size, Tensor


class Attended(NamedTuple):
    """The result of an attention layer.

    In blocks, weights, scores, queries, keys and values are those of all blocks, and query
    positions are not taken from them.

    Attributes:
        output: [B, T, D].
        weights: the attention weights before dropout, [B, N, T, S].
        scores: the logits of the weights, before the mask: [B, N, T, S].
        query: [B, N, T, H], not scaled, and turned if there are rotary positions, as the keys.
        key: [B, N, S, H], of all slots if there is a cache.
        value: [B, N, S, H].
    """

    output: Any
    weights: Any
    scores: Any
    query: Any
    key: Any
    value: Any

    @property
    def cache(self):
        """The keys and values, for the positions that follow."""
        return self.key, self.value


class _Heads(Layer):
    """What both kinds of attention share: heads, scores, weights and the output projection."""

    def __init__(
        self,
        size,
        num_heads,
        *,
        dropout,
        initializer,
        name=None,
        head_size=None,
        use_bias=True,
        scale=True,
        share_dropout=False,
        output_initializer=None,
        dtype=None,
    ):
        """Describes the layer.

        Args:
            size: D.
            num_heads: N.
            dropout: dropout rate of the attention weights.
            initializer: initializer of the kernels.
            name: last part of the variables' paths.
            head_size: H; None = D / N.
            use_bias: whether the projections have biases.
            scale: whether scores are divided by sqrt(H). If they are not, the initial query
                kernel is divided by it instead, as in T5.
            share_dropout: whether all queries of a head share the mask of dropout.
            output_initializer: initializer of the output kernel; None = `initializer`.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.num_heads = num_heads
        self.head_size = head_size or size // num_heads
        self.inner_size = self.num_heads * self.head_size
        self.dropout = dropout
        self.dropout_axis = 2 if share_dropout else None
        self.factor = self.head_size**-0.5 if scale else None
        self.initializer = initializer
        self.options = {"use_bias": use_bias, "dtype": dtype}
        self.output_projection = Linear(
            self.inner_size,
            size,
            initializer=output_initializer or initializer,
            name="output",
            **self.options,
        )

    def _projection(self, size: int, names, **options):
        """Makes one product for several of query, key and value, which are joined by column."""
        initializer = self.initializer
        if self.factor is None and "query" in names:
            factors = np.ones(len(names) * self.inner_size)
            factors[: self.inner_size] = self.head_size**-0.5  # the query comes first
            initializer = Scaled(initializer, factors)
        return Linear(
            size,
            len(names) * self.inner_size,
            initializer=initializer,
            name="_".join(names),
            column_blocks=len(names),
            **{**self.options, **options},
        )

    def _split(self, projected: Tensor, count: int):
        """Splits [B, T, count * N * H] into `count` tensors [B, N, T, H]."""
        batch, length, _ = ops.shape(projected)
        projected = ops.reshape(projected, (batch, length, count, self.num_heads, self.head_size))
        return ops.unstack(ops.transpose(projected, (2, 0, 3, 1, 4)), count)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor,
        bias: Tensor,
        rng: Draws | None,
    ):
        """Returns `Attended` for queries, keys and values of all heads, or of all blocks."""
        batch, _, *lengths, _ = ops.shape(query)
        scaled = query if self.factor is None else query * self.factor
        scores = times_transposed(scaled, key)  # [B, N, T, S]
        dtype = accurate(self.compute_dtype)
        if bias is not None:
            scores = ops.cast(scores, dtype) + ops.cast(bias, dtype)
        forbidden = None if attention_mask is None else masks.bias(attention_mask, dtype)
        kept = dropout_mask(ops.shape(scores), self.dropout, rng, self.dropout_axis)
        kept = softmax(scores, self.compute_dtype, kept, self.dropout, forbidden)
        context = ops.matmul(kept, value)
        length = lengths[0] if len(lengths) == 1 else math.prod(lengths)
        if len(lengths) > 1:
            context = ops.reshape(context, (batch, self.num_heads, length, self.head_size))
        context = ops.transpose(context, (0, 2, 1, 3))  # [B, T, N, H]
        context = ops.reshape(context, (batch, length, self.inner_size))
        output = self.output_projection(context)
        # A graph whose outputs do not read the weights and scores leaves these operations out.
        weights = softmax(scores, mask_bias=forbidden)
        return Attended(output, weights, ops.cast(scores, dtype), query, key, value)


class Attention(_Heads):
    """Attention of a sequence to itself (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, size, num_heads, *, distances=None, distance_dropout=0.0, **options):
        """Describes the layer; the other arguments are those of `_Heads`.

        Args:
            size: D.
            num_heads: N.
            distances: whether there are scores of distances (see `layers.disentangled`), and what
                maps the vectors of distances: 'shared' = the projections of queries and keys, 'own'
                = two other ones, and the keys then have no bias. None = there are none.
            distance_dropout: dropout rate of the vectors of distances.
            **options: the others.
        """
        super().__init__(size, num_heads, **options)
        self.distance_dropout = distance_dropout
        if distances is not None:
            self.factor = (3 * self.head_size) ** -0.5  # scores are the sums of three terms
        # The columns of the kernel are q | k | v, each of them head by head.
        biases = {"bias_blocks": (0, 2)} if distances == "own" else {}
        self.query_key_value = self._projection(size, ["query", "key", "value"], **biases)
        self.distance_key = self.distance_query = None
        if distances == "own":
            self.distance_key = self._projection(size, ["distance_key"], use_bias=False)
            self.distance_query = self._projection(size, ["distance_query"])

    def build(self, input_shape=None):
        """Creates the variables."""
        layers = self.query_key_value, self.distance_key, self.distance_query
        for layer in (*layers, self.output_projection):
            if layer is not None:
                layer.build()

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | Blocks | None = None,
        rng: Draws | None = None,
        cache: Any | None = None,
        slot: Size = 0,
        query_positions: Tensor | None = None,
        queries: Tensor | None = None,
        bias: Tensor | None = None,
        distances: Distances | None = None,
        rotation: Rotation | None = None,
        training: bool | None = None,
    ) -> Attended:
        """Attends from each position of `x`, or from some, to all positions or to those nearby.

        Args:
            x: [B, T, D]. The padding mask that Keras keeps with it is combined with the other.
            attention_mask: bool, broadcastable to [B, N, T, S], True = may attend; None = all. Or
                `Blocks`, without cache and bias.
            rng: `Draws`, or None for inference.
            cache: keys and values of all slots, [B, N, S, H] each; None = only `x` is attended to.
            slot: int, the slot of the first position of `x`.
            query_positions: int [B, P], the positions that attend, so that T is P in the results;
                None = all.
            queries: [B, P, D], what attends at `query_positions` in the place of `x`; None = `x`.
            bias: added to the scores of all positions, broadcastable to [B, N, T, S]; None = 0.
            distances: the vectors of distances, if the layer has scores of them.
            rotation: the rotary positions of `x`; None = there are none.
            training: whether Keras trains; see `Layer.draws`.

        Returns:
            `Attended`.
        """
        rng = self.draws(rng, training)
        rotation = None if rotation is None else Rotation(*rotation)
        if isinstance(attention_mask, tuple):
            blocks = Blocks(*attention_mask)
            return self._attend_in_blocks(x, blocks, rng, query_positions, rotation)
        attention_mask = masks.combine(attention_mask, masks.implied(x))
        if query_positions is None:
            query, key, value = self._split(self.query_key_value(x), 3)
        else:
            queries = take_positions(x, query_positions) if queries is None else queries
            inputs = [queries, x]
            sizes = [self.inner_size, 2 * self.inner_size]
            queries, others = self.query_key_value.by_columns(inputs, sizes)
            (query,), (key, value) = self._split(queries, 1), self._split(others, 2)
            attention_mask = masks.rows(attention_mask, query_positions)
            bias = masks.rows(bias, query_positions)
        if rotation is not None:
            own = rotation if query_positions is None else rotation.rows(query_positions)
            query, key = own.turn(query), rotation.turn(key)
        if distances is not None:
            far = Distances(*distances)
            of_key, of_query = self._of_distances(far, rng)
            scores = distance_scores(
                query, key, of_key, of_query, far.of_query, far.of_key, query_positions
            )
            bias = scores if bias is None else bias + scores
        if cache is not None:
            old_key, old_value = cache
            key, value = write_slots(old_key, key, slot), write_slots(old_value, value, slot)
        return self._attend(query, key, value, attention_mask, bias, rng)

    def _of_distances(self, distances: Distances, rng: Draws | None):
        """Returns the scaled keys and queries of distances: [K, N * H] each."""
        rng = None if rng is None else rng.shared()
        vectors = dropout(distances.vectors, self.distance_dropout, rng)
        if self.distance_key is None:
            sizes = [2 * self.inner_size, self.inner_size]
            (both,) = self.query_key_value.by_columns([vectors], sizes)
            query, key = ops.split(both, 2, axis=-1)
        else:
            query, key = self.distance_query(vectors), self.distance_key(vectors)
        return key * self.factor, query * self.factor

    def _attend_in_blocks(
        self,
        x: Tensor,
        blocks: Blocks,
        rng: Draws | None,
        query_positions: Tensor | None,
        rotation: Rotation | None,
    ) -> Attended:
        """Attends from each position of `x` to those nearby; the arguments are those of `call`."""
        query, key, value = self._split(self.query_key_value(x), 3)
        if rotation is not None:
            query, key = rotation.turn(query), rotation.turn(key)
        query, key, value = blocks.queries(query), blocks.keys(key), blocks.keys(value)
        attended = self._attend(query, key, value, blocks.mask, None, rng)
        output = blocks.rows(attended.output, ops.shape(x)[1])
        if query_positions is not None:
            output = take_positions(output, query_positions)
        return attended._replace(output=output)


class CrossAttention(_Heads):
    """Attention of a sequence to another one, as of a decoder to an encoder."""

    def __init__(self, size, num_heads, **options):
        """Describes the layer; the arguments are those of `_Heads`. Both sequences have size D."""
        super().__init__(size, num_heads, **options)
        self.query = self._projection(size, ["query"])
        self.key_value = self._projection(size, ["key", "value"])

    def build(self, input_shape=None):
        """Creates the variables."""
        for layer in (self.query, self.key_value, self.output_projection):
            layer.build()

    def keys_and_values(self, encoded: Tensor):
        """Returns the keys and values of states [B, S, D]: [B, N, S, H] each."""
        return tuple(self._split(self.key_value(encoded), 2))

    def call(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        rng: Draws | None = None,
        training: bool | None = None,
    ) -> Attended:
        """Attends from each position of `x` to all keys.

        Args:
            x: [B, T, D].
            key: [B, N, S, H], of `keys_and_values`.
            value: [B, N, S, H].
            attention_mask: bool, broadcastable to [B, N, T, S], True = may attend; None = all.
            rng: `Draws`, or None for inference.
            training: whether Keras trains; see `Layer.draws`.

        Returns:
            `Attended`.
        """
        rng = self.draws(rng, training)
        (query,) = self._split(self.query(x), 1)
        return self._attend(query, key, value, attention_mask, None, rng)
