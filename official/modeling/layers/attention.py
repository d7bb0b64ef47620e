"""Multi-head attention: self-attention, and cross-attention of a decoder to an encoder.

Self-attention is global, or local in the blocks of `layers.local_attention`.

Shapes: B batch, T query length, S key length or slots of a cache, N heads, H head size, D hidden.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from keras import ops
from typing_extensions import override

from official.modeling import masks
from official.modeling.layers import schemes
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import (
    accurate,
    dropout_mask,
    softmax,
    take_positions,
    times_transposed,
    write_slots,
)
from official.modeling.layers.linear import Linear
from official.modeling.layers.local_attention import Blocks
from official.modeling.layers.random import Draws, Scaled
from official.modeling.types import Size, Tensor


class Attended(NamedTuple):
    """The result of an attention layer.

    With local attention in blocks, weights, scores, queries, keys and values are those of all
    blocks, without the selection of query positions.

    Attributes:
        output: [B, T, D].
        weights: the attention weights before dropout, [B, N, T, S].
        scores: the logits of the weights, before the mask: [B, N, T, S].
        query: [B, N, T, H], not scaled; like the keys, rotated if there are rotary positions.
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
        """The keys and values, for later positions."""
        return self.key, self.value


class _Heads(Layer):
    """The common base of self- and cross-attention: heads, scores, weights, output projection."""

    terms = 1  # the number of terms in the scores: see `Scheme`

    def __init__(self, parts, initializers, *, name=None, dtype=None):
        """Describes the layer.

        Args:
            parts: `BlockParts`, of which it reads D and the heads; `Attention` also reads the
                position schemes.
            initializers: `Initializers`.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.parts = parts
        heads = parts.heads
        self.num_heads, self.head_size = heads.count, heads.size
        self.inner_size = heads.count * heads.size
        self.dropout = heads.dropout
        self.dropout_axis = 2 if heads.share_dropout else None
        self.initializer = initializers.kernel
        self.output_projection = Linear(
            self.inner_size,
            parts.size,
            initializer=initializers.residual or initializers.kernel,
            use_bias=heads.use_bias,
            name="output",
            dtype=dtype,
        )

    @property
    def factor(self) -> float | None:
        """The factor of the scores; None = scores are not scaled."""
        return (self.terms * self.head_size) ** -0.5 if self.parts.heads.scale else None

    def projection(self, *names: str, heads: int | None = None, **options: Any) -> Linear:
        """Makes one linear layer for several of query, key and value, joined by column.

        Each of them has `heads` heads; None = N.
        """
        initializer = self.initializer
        size = self.inner_size if heads is None else heads * self.head_size
        if self.factor is None and "query" in names:
            factors = np.ones(len(names) * self.inner_size)
            factors[: self.inner_size] = self.head_size**-0.5  # the query comes first
            initializer = Scaled(initializer, factors)
        shared = {"use_bias": self.parts.heads.use_bias, "dtype": self.dtype_policy}
        return Linear(
            self.parts.size,
            len(names) * size,
            initializer=initializer,
            name="_".join(names),
            column_blocks=len(names),
            **{**shared, **options},
        )

    def split(self, projected: Tensor, count: int):
        """Splits [B, T, count * N * H] into `count` tensors [B, N, T, H], of any number N."""
        batch, length, width = ops.shape(projected)
        heads = width // (count * self.head_size)
        projected = ops.reshape(projected, (batch, length, count, heads, self.head_size))
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
        # Graphs that do not return weights and scores drop these operations.
        weights = softmax(scores, mask_bias=forbidden)
        return Attended(output, weights, ops.cast(scores, dtype), query, key, value)


class Attention(_Heads):
    """Self-attention (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, parts, initializers, *, name=None, dtype=None):
        """Describes the layer; the arguments are those of `_Heads`."""
        super().__init__(parts, initializers, name=name, dtype=dtype)
        self.schemes = schemes.of(parts)
        self.terms = max([1, *(scheme.terms for scheme in self.schemes)])
        self.projections = self.make_projections()
        made = [scheme.of_attention(self, initializers.kernel) for scheme in self.schemes]
        self.of_schemes = schemes.attach(self, made)

    @override
    def build(self, input_shape=None):
        for name in (*self.projections, *self.of_schemes, "output_projection"):
            getattr(self, name).build()

    def make_projections(self) -> tuple[str, ...]:
        """Makes the maps to queries, keys and values; returns the names of their attributes."""
        # The columns of the kernel are q | k | v, each of them head by head.
        key_bias = all(scheme.key_bias for scheme in self.schemes)
        biases = None if key_bias else (0, 2)
        self.query_key_value = self.projection("query", "key", "value", bias_blocks=biases)
        return ("query_key_value",)

    def project(self, x: Tensor, queries: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the queries of `queries` [B, P, D], and the keys and values of x [B, T, D].

        Args:
            x: the sequence.
            queries: what attends; None = `x`.

        Returns:
            [B, N, P, H], or [B, N, T, H] without `queries`; [B, N, T, H]; [B, N, T, H].
        """
        if queries is None:
            return tuple(self.split(self.query_key_value(x), 3))
        sizes = [self.inner_size, 2 * self.inner_size]
        queries, others = self.query_key_value.by_columns([queries, x], sizes)
        return *self.split(queries, 1), *self.split(others, 2)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | Blocks | None = None,
        rng: Draws | None = None,
        cache: Any | None = None,
        slot: Size = 0,
        query_positions: Tensor | None = None,
        queries: Tensor | None = None,
        positions: Any = None,
        training: bool | None = None,
    ) -> Attended:
        """Attends from all or some positions of `x` to all positions, or to nearby positions.

        Args:
            x: [B, T, D]. The padding mask that Keras keeps with it is combined with
              `attention_mask`.
            attention_mask: bool, broadcastable to [B, N, T, S], True = may attend; None = all. Or
                `Blocks`, without a cache and without position schemes that add scores.
            rng: `Draws`, or None for inference.
            cache: keys and values of all slots, [B, N, S, H] each; None = only `x` is attended to.
            slot: int, the slot of the first position of `x`.
            query_positions: int [B, P], the positions that attend, so that T is P in the results;
                None = all.
            queries: [B, P, D], the states that attend at `query_positions` instead of those in `x`;
              None = those in `x`.
            positions: the values that its position schemes have prepared, one for each scheme; None
                = it has no schemes, or all tokens are at one position.
            training: whether Keras trains; see `Layer.draws`.

        Returns:
            `Attended`.
        """
        rng = self.draws(rng, training)
        prepared = list(zip(self.schemes, positions, strict=True)) if positions else []
        if isinstance(attention_mask, tuple):
            blocks = Blocks(*attention_mask)
            return self._attend_in_blocks(x, blocks, rng, query_positions, prepared)
        attention_mask = masks.combine(attention_mask, masks.implied(x))
        if query_positions is not None:
            queries = take_positions(x, query_positions) if queries is None else queries
            attention_mask = masks.rows(attention_mask, query_positions)
        query, key, value = self.project(x, queries)
        for scheme, tensors in prepared:
            query, key = scheme.turn(query, key, tensors, query_positions)
        scores = [
            scheme.scores(self, query, key, tensors, query_positions, rng)
            for scheme, tensors in prepared
        ]
        added = [each for each in scores if each is not None]
        bias = sum(added[1:], added[0]) if added else None
        if cache is not None:
            old_key, old_value = cache
            key, value = write_slots(old_key, key, slot), write_slots(old_value, value, slot)
        return self._attend(query, key, value, attention_mask, bias, rng)

    def _attend_in_blocks(
        self,
        x: Tensor,
        blocks: Blocks,
        rng: Draws | None,
        query_positions: Tensor | None,
        prepared: Any,
    ) -> Attended:
        """Attends from each position of `x` to nearby positions; arguments as in `call`."""
        query, key, value = self.project(x)
        for scheme, tensors in prepared:
            query, key = scheme.turn(query, key, tensors, None)
        query, key, value = blocks.queries(query), blocks.keys(key), blocks.keys(value)
        attended = self._attend(query, key, value, blocks.mask, None, rng)
        output = blocks.rows(attended.output, ops.shape(x)[1])
        if query_positions is not None:
            output = take_positions(output, query_positions)
        return attended._replace(output=output)


class CrossAttention(_Heads):
    """Cross-attention of a sequence to another, as of a decoder to an encoder."""

    def __init__(self, parts, initializers, *, name=None, dtype=None):
        """Describes the layer; the arguments are those of `_Heads`. Both sequences have size D."""
        super().__init__(parts, initializers, name=name, dtype=dtype)
        self.query = self.projection("query")
        self.key_value = self.projection("key", "value")

    @override
    def build(self, input_shape=None):
        for layer in (self.query, self.key_value, self.output_projection):
            layer.build()

    def keys_and_values(self, encoded: Tensor):
        """Returns the keys and values of states [B, S, D]: [B, N, S, H] each."""
        return tuple(self.split(self.key_value(encoded), 2))

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
        (query,) = self.split(self.query(x), 1)
        return self._attend(query, key, value, attention_mask, None, rng)
