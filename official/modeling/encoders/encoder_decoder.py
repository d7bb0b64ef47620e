"""The encoder-decoder of T5 and of the original transformer.

Shapes: B batch, T tokens of the encoder, U tokens of the decoder, S slots of a cache, N heads,
H head size, D hidden, L layers of a stack.
"""

import math
from typing import Any

from keras import ops
from typing_extensions import override

from official.modeling import masks
from official.modeling.encoders import base
from official.modeling.encoders.inputs import check_ranks
from official.modeling.layers.embeddings import Table
from official.modeling.layers.positions import sinusoids
from official.modeling.layers.random import Draws, Initializers, RandomWeights
from official.modeling.layers.stack import Stack
from official.modeling.types import Size, Tensor


class Encoder(base.Encoder, saved_as="EncoderDecoder"):
    """A token table, an encoder and a decoder (Raffel et al. 2020, section 2.1).

    With `decoder_layers` 0 there is no decoder.

    Call arguments beside those of `base.Encoder`, of which `segment_ids` and `pooled_positions` are
    ignored, and `positions` are for sinusoidal positions:
        decoder_ids: int [B, U], the tokens that the decoder reads; None = only the encoder runs.
        decoder_mask: bool, broadcastable to [B, N, U, U], combined with the causal mask; None =
            all. Padding at the end needs no mask, since no earlier position attends to it.
        decoder_positions: as `positions`, for the decoder.
        cross_mask: bool, broadcastable to [B, N, U, T], True = may attend; None = all.

    A call returns the outputs of `base.Encoder` for the encoder, and
        `decoder_output` [B, U, D] with `decoder_ids`;
        `attention_parts` with `output_all`: L records `Attended` of the encoder;
        `decoder_hidden_states`, `decoder_attentions`, `decoder_attention_parts`,
            `cross_attentions` and `cross_attention_parts`: the same for the decoder.
    """

    def __init__(self, config, *, seed=0, name="encoder", dtype=None):
        """Describes an encoder-decoder; `build()` creates its variables.

        Args:
            config: `EncoderDecoderConfig` with a vocabulary size.
            seed: initial weights are a function of it and of the name.
            name: first part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(config, name=name, dtype=dtype)
        draws = Draws.of_name(seed, name)
        size, dtype = config.hidden_size, self.dtype_policy
        weights = RandomWeights(config.initializer, config.initializer_range, draws)
        self.embedding_factor = math.sqrt(size) if config.scale_embeddings else 1.0
        table = bias = weights
        if config.initializer == "fan_in":
            table = RandomWeights("normal", 1 / self.embedding_factor, draws)
            bias = RandomWeights("normal", size**-0.5, draws)
        self.token_table = Table(
            config.known_vocab_size, size, initializer=table, name="token_embedding", dtype=dtype
        )

        initializers = Initializers(weights, position=bias)
        self.encoder = Stack(config, initializers, name="encoder", dtype=dtype)
        if config.decoder_layers:
            self.decoder = Stack(config, initializers, decoder=True, name="decoder", dtype=dtype)

    @override
    def build(self, input_shape=None):
        for layer in (self.token_table, self.encoder, self.decoder):
            if layer is not None:
                layer.build()

    @override
    def by_depth(self):
        """See `base.Encoder`. The last layers of both stacks are at one depth."""
        stacks = [stack for stack in (self.encoder, self.decoder) if stack is not None]
        depth = max(len(stack.blocks) for stack in stacks)
        layers: list[list[Any]] = [[] for _ in range(depth)]
        for stack in stacks:
            for layer, block in zip(reversed(layers), reversed(stack.blocks), strict=False):
                layer.append(block)
            layers[-len(stack.blocks)] += [getattr(stack, name) for name in stack.of_schemes]
        return [[self.token_table], *layers]

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        rng: Draws | None = None,
        output_all: bool = False,
        pooled_positions: Tensor | None = None,
        decoder_ids: Tensor | None = None,
        decoder_mask: Tensor | None = None,
        decoder_positions: Tensor | None = None,
        cross_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Encodes a batch, and decodes it with `decoder_ids`: see the class."""
        del segment_ids, pooled_positions
        check_ranks(token_ids, attention_mask, "[B, N, T, T]")
        rng = self.draws(rng, training)
        padding_mask = self.padding_of(token_ids, padding_mask)
        attention_mask = self.masked(attention_mask, padding_mask)
        cross_mask = self.masked(cross_mask, padding_mask)
        encoded = self.encoder(self._embed(token_ids, positions), attention_mask, rng=rng)
        outputs = {"sequence_output": encoded.states}
        if output_all:
            outputs |= _all_layers(encoded)
        self.with_mask(outputs, padding_mask)
        if decoder_ids is None:
            return outputs
        check_ranks(decoder_ids, decoder_mask, "[B, N, U, U]")
        decoded = self.decoder(
            self._embed(decoder_ids, decoder_positions),
            masks.combine(decoder_mask, masks.causal(*[ops.shape(decoder_ids)[1]] * 2)),
            rng=rng,
            others=self.decoder.cross_cache(encoded.states),
            cross_mask=cross_mask,
        )
        outputs["decoder_output"] = decoded.states
        if output_all:
            outputs |= {f"decoder_{name}": x for name, x in _all_layers(decoded).items()}
            crossed = tuple(layer.crossed for layer in decoded.layers)
            outputs["cross_attentions"] = tuple(attended.weights for attended in crossed)
            outputs["cross_attention_parts"] = crossed
        return outputs

    def empty_cache(self, encoded: Tensor, slots: Size):
        """Returns the empty cache of an encoded batch, for `decode`.

        Args:
            encoded: `sequence_output` [B, T, D].
            slots: S, the largest number of tokens that will be decoded.

        Returns:
            L pairs of empty keys and values of the decoder, [B, N, S, H] each, and L pairs of the
            keys and values of the encoder, [B, N, T, H] each.
        """
        cross = self.decoder.cross_cache(encoded)
        batch, heads, _, size = ops.shape(cross[0][0])
        empty = ops.zeros((batch, heads, slots, size), self.compute_dtype)
        return tuple((empty, empty) for _ in cross), cross

    def decode(self, decoder_ids: Tensor, cache: Any, slot: Size, cross_mask: Tensor | None = None):
        """Decodes the next tokens of a batch.

        Args:
            decoder_ids: int [B, U].
            cache: the result of `empty_cache` or of an earlier call.
            slot: int or scalar tensor, the slot of the first of these tokens. Earlier calls filled
                the slots before it.
            cross_mask: bool, broadcastable to [B, N, U, T], True = may attend; None = all.

        Returns:
            The states [B, U, D], and the cache with these tokens.
        """
        own, cross = cache
        length, slots = ops.shape(decoder_ids)[1], ops.shape(own[0][0])[2]
        positions = ops.arange(length, dtype="int32")[None] + slot
        decoded = self.decoder(
            self._embed(decoder_ids, positions),
            masks.causal(length, slots, slot),
            others=cross,
            cross_mask=cross_mask,
            cache=own,
            slot=slot,
        )
        return decoded.states, (tuple(layer.attended.cache for layer in decoded.layers), cross)

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns the vectors of ids [B, T], with those of their positions: [B, T, D]."""
        x = self.token_table(ids)
        if self.config.scale_embeddings:
            x = x * self.embedding_factor
        if self.config.positions == "relative":
            return x
        if positions is None:
            positions = ops.arange(ops.shape(ids)[1], dtype="int32")[None]
        return x + sinusoids(positions, self.config.hidden_size, x.dtype)


def _all_layers(output):
    """Returns the states and attention weights of all layers of a `StackOutput`, by name."""
    attended = tuple(layer.attended for layer in output.layers)
    return {
        "hidden_states": output.hidden_states,
        "attentions": tuple(layer.weights for layer in attended),
        "attention_parts": attended,
    }
