"""Transformer layers: the feed-forward network, the block, and Transformer-XL's block.

The *adapters* of a block are small networks that are trained while the block is frozen.

Shapes: B batch, T query length or content rows, S key length, P positions or query rows, Q rows of
a stream, N heads, H head size, D hidden, F intermediate.
"""

from typing import Any, NamedTuple

from keras import ops
from typing_extensions import override

from official.config.blocks import FeedForwardParts
from official.modeling.layers.activation import ACTIVATIONS, PLAIN
from official.modeling.layers.attention import Attended, Attention, CrossAttention
from official.modeling.layers.base import Layer
from official.modeling.layers.grouped_attention import GroupedAttention
from official.modeling.layers.kernels import dropout, dropout_mask, take_positions
from official.modeling.layers.linear import Linear
from official.modeling.layers.local_attention import Blocks
from official.modeling.layers.norm import make_norm
from official.modeling.layers.random import Draws, Initializers, RandomWeights
from official.modeling.layers.relative_attention import RelativeAttention, RelativePositions
from official.modeling.types import Size, Tensor

_ADAPTER_STDDEV = 0.01  # Houlsby et al. 2019, section 3.6


class FeedForward(Layer):
    """Two affine maps with an activation between them: D to F and back to D."""

    def __init__(self, size, parts, initializers, *, name=None, dtype=None):
        """Describes the layer.

        Args:
            size: D.
            parts: `FeedForwardParts`.
            initializers: `Initializers`.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.dropout = parts.dropout
        self.dropout_axis = 1 if parts.share_dropout else None
        self.activation = ACTIVATIONS[parts.activation]
        # The backend's activations are accurate only to float32.
        exact = self.compute_dtype == "float64"
        self.plain_activation = (ACTIVATIONS if exact else PLAIN)[parts.activation]
        options = {"use_bias": parts.use_bias, "dtype": dtype}
        inner = {"initializer": initializers.kernel, **options}
        self.inner = Linear(size, parts.size, name="inner", **inner)
        self.gate = Linear(size, parts.size, name="gate", **inner) if parts.gated else None
        outer = initializers.residual or initializers.kernel
        self.outer = Linear(parts.size, size, initializer=outer, name="outer", **options)

    @override
    def build(self, input_shape=None):
        for layer in (self.inner, self.gate, self.outer):
            if layer is not None:
                layer.build()

    def call(self, x: Tensor, rng: Draws | None = None, training: bool | None = None) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; see `Layer.draws`."""
        rng = self.draws(rng, training)
        if self.gate is not None:
            inner = self.activation(self.gate(x)) * self.inner(x)
            return self.outer(dropout(inner, self.dropout, rng, self.dropout_axis))
        if rng is None:
            # With two-dimensional rows there is no reshape between product, bias and activation, so
            # that a backend can fuse them. If it cannot, our formula takes half the time:
            # TensorFlow's GELU has an `erfc`, which is slow.
            rows = ops.reshape(x, (-1, x.shape[-1]))
            rows = self.inner(rows)
            if self.inner.fuses_activation:
                rows = self.outer(self.plain_activation(rows))
            else:
                rows = self.outer(self.activation(rows, fused=False))
            return ops.reshape(rows, ops.shape(x))
        inner = self.inner(x)
        kept = dropout_mask(ops.shape(inner), self.dropout, rng, self.dropout_axis)
        return self.outer(self.activation(inner, kept, self.dropout))


class Adapter(FeedForward):
    """A narrow feed-forward network and its input: x + f(x) (Houlsby et al. 2019, section 2.1).

    With small initial weights it is close to the identity.
    """

    def call(self, x: Tensor, rng: Draws | None = None, training: bool | None = None) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]."""
        return x + super().call(x, rng=rng, training=training)


class BlockOutput(NamedTuple):
    """The result of a block.

    Attributes:
        states: [B, T, D].
        attended: `Attended` of the self-attention; None if it is recomputed for the gradient.
        crossed: `Attended` of the cross-attention; () = there is none. (In a functional model of
            Keras, None cannot be among the outputs of a layer.)
    """

    states: Any
    attended: Any
    crossed: Attended | tuple[()] = ()


class _Sublayers(Layer):
    """The common base of blocks: adapters, and the residual sum of a sublayer's output.

    Attributes:
        parts: the parts that the block is made from.
        attention_adapter: the `Adapter` after the self-attention, or None.
        feed_forward_adapter: the `Adapter` after the feed-forward network, or None.
    """

    def __init__(self, parts, initializers, *, name=None, dtype=None):
        """Describes the common parts.

        Args:
            parts: `BlockParts`.
            initializers: `Initializers`.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.parts = parts
        self.pre_norm = parts.pre_norm
        self.dropout = parts.dropout
        self.dropout_axis = 1 if parts.share_dropout else None
        self.initializers = initializers

    def make_norm(self, name: str):
        """Makes a norm of the block."""
        return make_norm(self.parts.norm, self.parts.size, name=name, dtype=self.dtype_policy)

    def make_feed_forward(self):
        """Makes the feed-forward network and its norm, and the adapters."""
        parts, dtype = self.parts, self.dtype_policy
        self.feed_forward = FeedForward(
            parts.size, parts.feed_forward, self.initializers, name="feed_forward", dtype=dtype
        )
        self.feed_forward_norm = self.make_norm("feed_forward_norm")
        self.attention_adapter = self.feed_forward_adapter = None
        if parts.adapter_size is not None:
            inner = FeedForwardParts(parts.adapter_size, parts.feed_forward.activation)
            weights = Initializers(self.initializers.adapter)
            for name in ("attention_adapter", "feed_forward_adapter"):
                setattr(self, name, Adapter(parts.size, inner, weights, name=name, dtype=dtype))

    def build_parts(self, *layers):
        """Creates the variables of layers (None is skipped), and of the adapters."""
        for layer in (*layers, self.attention_adapter, self.feed_forward_adapter):
            if layer is not None:
                layer.build()

    def add(
        self,
        x: Tensor,
        y: Tensor,
        norm,
        rng: Draws | None,
        adapter: Adapter | None = None,
        rate: float | None = None,
    ):
        """Adds the output y [B, T, D] of a sublayer to x [B, T, D].

        `rate` is the dropout rate of y; None = that of the block.
        """
        y = dropout(y, self.dropout if rate is None else rate, rng, self.dropout_axis)
        x = x + (y if adapter is None else adapter(y, rng=rng))
        return x if self.pre_norm else norm(x)


class Block(_Sublayers):
    """Attention and a feed-forward network, each with dropout, a residual connection and a norm.

    With `cross` there is cross-attention between the two.
    """

    def __init__(self, parts, initializers, *, name=None, dtype=None):
        """Describes the block; the arguments are those of `_Sublayers`."""
        super().__init__(parts, initializers, name=name, dtype=dtype)
        attention = GroupedAttention if parts.heads.grouped else Attention
        self.attention = attention(parts, initializers, name="attention", dtype=dtype)
        self.attention_norm = self.make_norm("attention_norm") if parts.first_norm else None
        self.cross_attention = self.cross_attention_norm = None
        if parts.cross:
            self.cross_attention = CrossAttention(
                parts, initializers, name="cross_attention", dtype=dtype
            )
            self.cross_attention_norm = self.make_norm("cross_attention_norm")
        self.make_feed_forward()

    @override
    def build(self, input_shape=None):
        self.build_parts(
            self.attention,
            self.attention_norm,
            self.cross_attention,
            self.cross_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        )

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
        others=None,
        cross_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> BlockOutput:
        """Maps x [B, T, D] to [B, T, D], or to [B, P, D] with `query_positions`.

        Args:
            x: [B, T, D].
            attention_mask: see `Attention`.
            rng: `Draws`, or None for inference.
            cache: keys and values of all slots, or None.
            slot: the slot of the first position of `x`.
            query_positions: int [B, P], the positions that are computed; None = all.
            queries: [B, P, D], the states at these positions; None = those in `x`.
            positions: the values that position schemes have prepared, or None; see `Attention`.
            others: the keys and values of another sequence, from `cross_attention.keys_and_values`.
            cross_mask: bool, broadcastable to [B, N, T, S], True = may attend; None = all.
            training: whether Keras trains; see `Layer.draws`.

        Returns:
            `BlockOutput`.
        """
        rng = self.draws(rng, training)
        norm = self.attention_norm
        attended = self.attention(
            self._before(x, norm),
            attention_mask=attention_mask,
            rng=rng,
            cache=cache,
            slot=slot,
            query_positions=query_positions,
            queries=None if queries is None else self._before(queries, norm),
            positions=positions,
        )
        if query_positions is not None:
            x = take_positions(x, query_positions) if queries is None else queries
        rate = self.parts.attention_output_dropout
        x = self.add(x, attended.output, norm, rng, self.attention_adapter, rate)
        crossed = ()
        if self.cross_attention is not None:
            norm = self.cross_attention_norm
            crossed = self.cross_attention(self._before(x, norm), *others, cross_mask, rng=rng)
            x = self.add(x, crossed.output, norm, rng)
        norm = self.feed_forward_norm
        fed = self.feed_forward(self._before(x, norm), rng=rng)
        x = self.add(x, fed, norm, rng, self.feed_forward_adapter)
        return BlockOutput(x, attended, crossed)

    def _before(self, x: Tensor, norm) -> Tensor:
        """Returns the input of a sublayer: [B, T, D]."""
        return norm(x) if self.pre_norm and norm is not None else x


def adapter_weights(seed: int, name: str) -> RandomWeights:
    """Returns the initializer of an encoder's adapters, a function of a seed and the name."""
    draws = Draws.of_name(seed, f"{name}/adapters")  # different draws from those of other weights
    return RandomWeights("truncated_normal", _ADAPTER_STDDEV, draws)


class RelativeBlock(_Sublayers):
    """Relative attention and a feed-forward network, each with dropout, residual sum and norm."""

    def __init__(self, parts, initializers, *, biases=None, name=None, dtype=None):
        """Describes the block.

        Args:
            parts: see `_Sublayers`.
            initializers: likewise.
            biases: see `RelativeAttention`.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(parts, initializers, name=name, dtype=dtype)
        self.attention = RelativeAttention(
            parts, initializers, biases=biases, name="attention", dtype=dtype
        )
        self.attention_norm = self.make_norm("attention_norm")
        self.make_feed_forward()

    @override
    def build(self, input_shape=None):
        self.build_parts(
            self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm
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
    ) -> tuple[Tensor, tuple[Tensor, ...], Any]:
        """Maps the rows of all streams x [B, rows, D] to [B, rows, D].

        The arguments are those of `RelativeAttention`. Its attention weights, a tensor
        [B, N, Q, S] for each stream, and its cache are returned as well.
        """
        rng = self.draws(rng, training)
        attended, weights, cache = self.attention(
            x,
            streams=streams,
            positions=positions,
            content=content,
            memory=memory,
            cache=cache,
            slot=slot,
            rng=rng,
        )
        x = self.add(x, attended, self.attention_norm, rng, self.attention_adapter)
        fed = self.feed_forward(x, rng=rng)
        x = self.add(x, fed, self.feed_forward_norm, rng, self.feed_forward_adapter)
        return x, weights, cache
