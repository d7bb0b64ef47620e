"""The layers of transformers: a feed-forward network, a block, and that of Transformer-XL.

The *adapters* of a block are small networks, which learn in place of the rest of the block.

Shapes: B batch, T query length or content rows, S key length, P positions or query rows, Q rows of
a stream, N heads, H head size, D hidden, F intermediate.
"""

import functools
from typing import Any, NamedTuple

from keras import ops

from official.modeling.layers.activation import ACTIVATIONS, PLAIN
from official.modeling.layers.attention import Attended, Attention, CrossAttention
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import dropout, dropout_mask, take_positions
from official.modeling.layers.linear import Linear
from official.modeling.layers.local_attention import Blocks
from official.modeling.layers.norm import LayerNorm, make_norm
from official.modeling.layers.positions import Rotation
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.layers.relative_attention import RelativeAttention
from official.modeling.types import Size, Tensor

_ADAPTER_STDDEV = 0.01  # Houlsby et al. 2019, section 3.6


class FeedForward(Layer):
    """Two affine maps with an activation between them: D to F and back to D.

    `dropout` is the rate for the activations. Transformer-XL uses it, BERT does not. With
    `share_dropout` all positions of a sequence share its mask. With `gated`
    the activation is that of a gate, another map of D to F, and the product of gate and inner map
    is mapped back (Shazeer 2020, section 2; T5 1.1).
    """

    def __init__(
        self,
        size,
        intermediate_size,
        *,
        activation,
        initializer,
        name=None,
        output_initializer=None,
        dropout=0.0,
        share_dropout=False,
        use_bias=True,
        gated=False,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.dropout = dropout
        self.dropout_axis = 1 if share_dropout else None
        self.activation = ACTIVATIONS[activation]
        # The backend's own activations are accurate to float32 only.
        exact = self.compute_dtype == "float64"
        self.plain_activation = (ACTIVATIONS if exact else PLAIN)[activation]
        options = {"use_bias": use_bias, "dtype": dtype}
        self.inner = Linear(
            size, intermediate_size, initializer=initializer, name="inner", **options
        )
        self.gate = None
        if gated:
            self.gate = Linear(
                size, intermediate_size, initializer=initializer, name="gate", **options
            )
        self.outer = Linear(
            intermediate_size,
            size,
            initializer=output_initializer or initializer,
            name="outer",
            **options,
        )

    def build(self, input_shape=None):
        """Creates the variables."""
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
            # Two-dimensional rows leave no reshape between product, bias and activation, so that a
            # backend can fuse them. Where it cannot, our formula takes half the time: TensorFlow's
            # own GELU has an `erfc`, which is slow.
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

    With small weights it is near the identity.
    """

    def call(self, x: Tensor, rng: Draws | None = None, training: bool | None = None) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]."""
        return x + super().call(x, rng=rng, training=training)


class BlockOutput(NamedTuple):
    """The result of a block.

    Attributes:
        states: [B, T, D].
        attended: `Attended` of the sequence to itself; None if it is computed again for the
            gradient.
        crossed: the result of the attention to another sequence; () = there is none. (In a
            functional model of Keras, None cannot be among the outputs of a layer.)
    """

    states: Any
    attended: Any
    crossed: Attended | tuple[()] = ()


class _Sublayers(Layer):
    """What blocks share: the adapters of their sublayers, and how a sublayer's output is added.

    A block has `dropout`, the rate of the output of each sublayer.

    Attributes:
        pre_norm: whether the norm comes before a sublayer; otherwise after the sum.
        dropout_axis: the axis along which a mask of dropout is shared; None = none.
        attention_adapter: the `Adapter` after the attention of the sequence to itself, or None.
        feed_forward_adapter: the one after the feed-forward network, or None.
    """

    pre_norm = False
    dropout_axis: int | None = None

    def make_adapters(self, size, inner_size, *, activation, initializer, dtype):
        """Makes the adapters, with the bottleneck `inner_size`; None = there are none."""
        for name in ("attention_adapter", "feed_forward_adapter"):
            adapter = None
            if inner_size is not None:
                adapter = Adapter(
                    size,
                    inner_size,
                    activation=activation,
                    initializer=initializer,
                    name=name,
                    dtype=dtype,
                )
            setattr(self, name, adapter)

    def build_parts(self, *layers):
        """Creates the variables of layers, of which some may be None, and of the adapters."""
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

    With `norm='post'` the norm is applied to the sum (BERT). With `'pre'` it is applied to the
    input of the sublayer (GPT-2, T5). With `cross` there is an attention to another sequence
    between the two (a decoder's; Vaswani et al. 2017, section 3.1).

    Args:
        size: D.
        num_heads: N.
        intermediate_size: inner size of the feed-forward network.
        activation: name of the activation in the feed-forward network.
        dropout: dropout rate of the output of each sublayer.
        attention_dropout: dropout rate of attention weights.
        norm: 'post' or 'pre'.
        epsilon: epsilon of the norms.
        initializer: initializer of the kernels.
        name: last part of the variables' paths.
        residual_initializer: initializer of the kernels whose products are added to the
            residual sum; None = `initializer`.
        norm_type: 'layer' or 'rms'.
        norm_bias: whether a layer norm has an offset.
        first_norm: whether there is a norm before the attention, with norm 'pre'.
        attention_output_dropout: dropout rate of the output of the attention of the sequence to
            itself; None = `dropout`.
        head_size: H; None = D / N.
        use_bias: whether the linear layers have biases.
        scale_scores: see `scale` of the attention layers.
        gated: whether the feed-forward network has a gate.
        inner_dropout: dropout rate of the activations in the feed-forward network.
        share_dropout: whether the positions of a sequence share the masks of dropout.
        cross: whether there is an attention to another sequence.
        distances: see `Attention`; the vectors of distances have the dropout rate `dropout`.
        adapter_size: the bottleneck of an `Adapter` after the attention of the sequence to itself
            and of another one after the feed-forward network; None = there are none.
        adapter_initializer: initializer of their kernels.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(
        self,
        size,
        *,
        num_heads,
        intermediate_size,
        activation,
        dropout,
        attention_dropout,
        norm,
        epsilon,
        initializer,
        name=None,
        residual_initializer=None,
        norm_type="layer",
        norm_bias=True,
        first_norm=True,
        attention_output_dropout=None,
        head_size=None,
        use_bias=True,
        scale_scores=True,
        gated=False,
        inner_dropout=0.0,
        share_dropout=False,
        cross=False,
        distances=None,
        adapter_size=None,
        adapter_initializer=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.pre_norm = norm == "pre"
        self.dropout = dropout
        self.attention_output_dropout = attention_output_dropout
        self.dropout_axis = 1 if share_dropout else None
        heads = {
            "head_size": head_size,
            "dropout": attention_dropout,
            "initializer": initializer,
            "output_initializer": residual_initializer,
            "use_bias": use_bias,
            "scale": scale_scores,
            "share_dropout": share_dropout,
            "dtype": dtype,
        }
        norms = functools.partial(
            make_norm, norm_type, size, epsilon=epsilon, bias=norm_bias, dtype=dtype
        )
        self.attention = Attention(
            size,
            num_heads,
            name="attention",
            distances=distances,
            distance_dropout=dropout,
            **heads,
        )
        self.attention_norm = norms(name="attention_norm") if first_norm else None
        self.cross_attention = self.cross_attention_norm = None
        if cross:
            self.cross_attention = CrossAttention(size, num_heads, name="cross_attention", **heads)
            self.cross_attention_norm = norms(name="cross_attention_norm")
        self.feed_forward = FeedForward(
            size,
            intermediate_size,
            activation=activation,
            initializer=initializer,
            name="feed_forward",
            output_initializer=residual_initializer,
            dropout=inner_dropout,
            share_dropout=share_dropout,
            use_bias=use_bias,
            gated=gated,
            dtype=dtype,
        )
        self.feed_forward_norm = norms(name="feed_forward_norm")
        self.make_adapters(
            size, adapter_size, activation=activation, initializer=adapter_initializer, dtype=dtype
        )

    def build(self, input_shape=None):
        """Creates the variables."""
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
        bias: Tensor | None = None,
        distances: Any | None = None,
        rotation: Rotation | None = None,
        others=None,
        cross_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> BlockOutput:
        """Maps x [B, T, D] to [B, T, D], or to [B, P, D] with `query_positions`.

        Args:
            x: [B, T, D].
            attention_mask: see `Attention`, as all others up to `rotation`.
            rng: `Draws`, or None for inference.
            cache: keys and values of all slots, or None.
            slot: the slot of the first position of `x`.
            query_positions: int [B, P], the positions that are computed; None = all.
            queries: [B, P, D], their states, in the place of those in `x`; None = those in `x`.
            bias: added to the scores of the attention of the sequence to itself, or None.
            distances: see `Attention`, or None.
            rotation: the rotary positions, or None.
            others: the keys and values of another sequence, of `cross_attention.keys_and_values`.
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
            bias=bias,
            distances=distances,
            rotation=rotation,
        )
        if query_positions is not None:
            x = take_positions(x, query_positions) if queries is None else queries
        rate = self.attention_output_dropout
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


def adapter_options(config, seed: int, name: str) -> dict[str, Any]:
    """Returns the arguments of blocks for their adapters.

    Args:
        config: the config of an encoder, with `adapter_size`.
        seed: the initial weights are a function of it and of the name.
        name: the name of the encoder.
    """
    draws = Draws.of_name(seed, f"{name}/adapters")  # not those of other weights
    return {
        "adapter_size": config.adapter_size,
        "adapter_initializer": RandomWeights("truncated_normal", _ADAPTER_STDDEV, draws),
    }


class RelativeBlock(_Sublayers):
    """Relative attention and a feed-forward network, each with dropout, residual sum and norm.

    The adapters are those of `Block`.
    """

    def __init__(
        self,
        size,
        *,
        num_heads,
        head_size,
        segments,
        intermediate_size,
        activation,
        dropout,
        attention_dropout,
        inner_dropout,
        epsilon,
        initializer,
        name=None,
        biases=None,
        adapter_size=None,
        adapter_initializer=None,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.dropout = dropout
        self.attention = RelativeAttention(
            size,
            num_heads,
            head_size=head_size,
            segments=segments,
            dropout=attention_dropout,
            initializer=initializer,
            name="attention",
            biases=biases,
            dtype=dtype,
        )
        self.attention_norm = LayerNorm(size, epsilon=epsilon, name="attention_norm", dtype=dtype)
        self.feed_forward = FeedForward(
            size,
            intermediate_size,
            activation=activation,
            initializer=initializer,
            name="feed_forward",
            dropout=inner_dropout,
            dtype=dtype,
        )
        self.feed_forward_norm = LayerNorm(
            size, epsilon=epsilon, name="feed_forward_norm", dtype=dtype
        )
        self.make_adapters(
            size, adapter_size, activation=activation, initializer=adapter_initializer, dtype=dtype
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        self.build_parts(
            self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm
        )

    def call(
        self,
        x: Tensor,
        *,
        streams=None,
        distances: Tensor | None = None,
        backward: Tensor | None = None,
        content: Tensor | None = None,
        memory: Tensor | None = None,
        key_segments: Tensor | None = None,
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
            distances=distances,
            backward=backward,
            content=content,
            memory=memory,
            key_segments=key_segments,
            cache=cache,
            slot=slot,
            rng=rng,
        )
        x = self.add(x, attended, self.attention_norm, rng, self.attention_adapter)
        fed = self.feed_forward(x, rng=rng)
        x = self.add(x, fed, self.feed_forward_norm, rng, self.feed_forward_adapter)
        return x, weights, cache
