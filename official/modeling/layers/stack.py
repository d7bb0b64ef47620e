"""A stack of transformer layers: the encoder or the decoder of an encoder-decoder.

Shapes: B batch, T query length, S key length or slots of a cache, C length of the other sequence,
N heads, H head size, D hidden, L layers.
"""

from typing import Any, NamedTuple

from keras import ops
from typing_extensions import override

from official.modeling.layers import schemes
from official.modeling.layers.base import Layer
from official.modeling.layers.block import Block, BlockOutput
from official.modeling.layers.kernels import dropout
from official.modeling.layers.norm import make_norm
from official.modeling.layers.random import Draws
from official.modeling.layers.schemes import Rows
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
    """The layers `layer_0`, `layer_1`, ... of an encoder or a decoder."""

    def __init__(self, config, initializers, *, decoder=False, name=None, dtype=None):
        """Describes the stack.

        Args:
            config: `EncoderDecoderConfig`.
            initializers: `Initializers`; `position` is that of the position bias.
            decoder: whether it is the decoder, with causal self-attention and cross-attention.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.parts = config.block(decoder)
        self.dropout = config.dropout
        self.dropout_axis = 1 if config.share_dropout else None
        self.blocks = [
            Block(self.parts, initializers, name=f"layer_{i}", dtype=dtype)
            for i in range(config.decoder_layers if decoder else config.num_layers)
        ]
        self.schemes = schemes.of(self.parts)
        made = [scheme.of_encoder(self, initializers.position) for scheme in self.schemes]
        self.of_schemes = schemes.attach(self, made)
        self.final_norm = None
        if self.parts.pre_norm:
            self.final_norm = make_norm(
                self.parts.norm, config.hidden_size, name="final_norm", dtype=dtype
            )

    @override
    def build(self, input_shape=None):
        of_schemes = (getattr(self, name) for name in self.of_schemes)
        for layer in (*self.blocks, *of_schemes, self.final_norm):
            if layer is not None:
                layer.build()

    def cross_cache(self, encoded: Tensor):
        """Returns the keys and values of another sequence [B, C, D] for each layer.

        Returns:
            L pairs of [B, N, C, H].
        """
        layers = [block.cross_attention for block in self.blocks]
        return tuple(layer.keys_and_values(encoded) for layer in layers if layer is not None)

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
            others: the result of `cross_cache`, for a decoder. (If its name were `cross`, Keras
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
        positions = schemes.prepare(self.schemes, self, Rows(length, keys, slot))
        x = dropout(x, self.dropout, rng, self.dropout_axis)
        states, layers = [x], []
        for i, block in enumerate(self.blocks):
            output = block(
                x,
                attention_mask,
                rng=rng,
                cache=None if cache is None else cache[i],
                slot=slot,
                positions=positions,
                others=None if others is None else others[i],
                cross_mask=cross_mask,
            )
            x = output.states
            states.append(x)
            layers.append(output)
        if self.final_norm is not None:
            states[-1] = dropout(self.final_norm(x), self.dropout, rng, self.dropout_axis)
        return StackOutput(states[-1], tuple(states), tuple(layers))
