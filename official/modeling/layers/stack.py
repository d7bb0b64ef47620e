"""A stack of transformer layers: the encoder or the decoder of an encoder-decoder.

Shapes: B batch, T query length, S key length or slots of a cache, C length of the other sequence,
N heads, H head size, D hidden, L layers.
"""

from typing import Any, NamedTuple

from keras import ops

from official.modeling.layers.base import Layer
from official.modeling.layers.block import Block, BlockOutput
from official.modeling.layers.kernels import dropout
from official.modeling.layers.norm import make_norm
from official.modeling.layers.positions import RelativeBias
from official.modeling.layers.random import Draws
from official.modeling.types import Size, Tensor


class StackOutput(NamedTuple):
    """The result of a stack.

    Attributes:
        states: [B, T, D], after the final norm if there is one.
        hidden_states: L + 1 tensors [B, T, D], the embeddings first and `states` last.
        layers: L records `BlockOutput`.
    """

    states: Any
    hidden_states: tuple
    layers: tuple[BlockOutput, ...]


class Stack(Layer):
    """Layers `layer_0`, `layer_1`, ..., with one position bias for all of them."""

    def __init__(
        self, config, num_layers, *, decoder, initializer, table_initializer, name=None, dtype=None
    ):
        """Describes the stack.

        Args:
            config: `EncoderDecoderConfig`.
            num_layers: L.
            decoder: whether positions attend to no later ones, and to another sequence.
            initializer: initializer of the kernels.
            table_initializer: initializer of the position bias.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.dropout = config.dropout
        self.dropout_axis = 1 if config.share_dropout else None
        self.blocks = [
            Block(
                config.hidden_size,
                num_heads=config.num_heads,
                intermediate_size=config.intermediate_size,
                activation=config.activation,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                norm=config.norm_position,
                epsilon=config.norm_epsilon,
                initializer=initializer,
                name=f"layer_{i}",
                norm_type=config.norm,
                head_size=config.head_size,
                use_bias=config.use_bias,
                scale_scores=config.scale_scores,
                gated=config.gated,
                inner_dropout=config.inner_dropout,
                share_dropout=config.share_dropout,
                cross=decoder,
                dtype=dtype,
            )
            for i in range(num_layers)
        ]
        self.relative_bias = self.final_norm = None
        if config.positions == "relative":
            self.relative_bias = RelativeBias(
                config.num_heads,
                bidirectional=not decoder,
                num_buckets=config.relative_buckets,
                max_distance=config.relative_max_distance,
                initializer=table_initializer,
                name="relative_bias",
                dtype=dtype,
            )
        if config.norm_position == "pre":
            self.final_norm = make_norm(
                config.norm,
                config.hidden_size,
                epsilon=config.norm_epsilon,
                name="final_norm",
                dtype=dtype,
            )

    def build(self, input_shape=None):
        """Creates the variables."""
        for layer in (*self.blocks, self.relative_bias, self.final_norm):
            if layer is not None:
                layer.build()

    def cross_cache(self, encoded: Tensor):
        """Returns the keys and values of another sequence [B, C, D] for each layer.

        Returns:
            L pairs of [B, N, C, H].
        """
        return tuple(block.cross_attention.keys_and_values(encoded) for block in self.blocks)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        rng: Draws | None = None,
        others=None,
        cross_mask: Tensor | None = None,
        cache: Any | None = None,
        slot: Size = 0,
        training: bool | None = None,
    ) -> StackOutput:
        """Runs the layers.

        Args:
            x: the embeddings [B, T, D].
            attention_mask: bool, broadcastable to [B, N, T, S], True = may attend; None = all.
            rng: `Draws`, or None for inference.
            others: the result of `cross_cache`, of a decoder. (If its name were `cross`, Keras
                would replace a `cross_mask` of None.)
            cross_mask: bool, broadcastable to [B, N, T, C], True = may attend; None = all.
            cache: L pairs of keys and values of all slots, [B, N, S, H] each, or None.
            slot: int or scalar tensor, the slot of the first position of `x`.
            training: whether Keras trains; see `Layer.draws`.

        Returns:
            `StackOutput`.
        """
        rng = self.draws(rng, training)
        length = ops.shape(x)[1]
        keys = length if cache is None else ops.shape(cache[0][0])[2]
        bias = None
        if self.relative_bias is not None:
            bias = self.relative_bias.scores(length, keys, slot)
        x = dropout(x, self.dropout, rng, self.dropout_axis)
        states, layers = [x], []
        for i, block in enumerate(self.blocks):
            output = block(
                x,
                attention_mask,
                rng=rng,
                cache=None if cache is None else cache[i],
                slot=slot,
                bias=bias,
                others=None if others is None else others[i],
                cross_mask=cross_mask,
            )
            x = output.states
            states.append(x)
            layers.append(output)
        if self.final_norm is not None:
            states[-1] = dropout(self.final_norm(x), self.dropout, rng, self.dropout_axis)
        return StackOutput(states[-1], tuple(states), tuple(layers))
