"""The bidirectional language model of ELMo (Peters et al. 2018, section 3.1).

Shapes: B batch, T words, K characters of a word, L layers, C cells, P projection, D = 2 P features.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.encoders import BilmConfig
from official.modeling.encoders import base
from official.modeling.layers.character_cnn import CharacterCNN
from official.modeling.layers.embeddings import Table
from official.modeling.layers.kernels import accurate, dropout, take_positions
from official.modeling.layers.lstm import ProjectedLSTM
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.types import DType, Tensor
from official.utils.errors import UserError

DIRECTIONS = ("forward", "backward")


class Encoder(base.Encoder, saved_as="BilmEncoder"):
    """Vectors of words, and a stack of LSTMs for each direction. The directions share the vectors.

    For features, a row is a sentence between its marks, and the backward LSTMs read its real words
    from the end. For language modeling, the batch has separate rows for the backward LSTMs.

    Call arguments beside those of `base.Encoder`, of which `token_ids` are read if `config.tokens`
    is `words`, `attention_mask` is [B, 1, 1, T], False for padding at the end of rows, and
    `segment_ids`, `positions` and `pooled_positions` are ignored:
        character_ids: int [B, T, K]; read if `config.tokens` is `characters`.
        backward_token_ids: int [B, T], the words of the backward rows; None = those of `token_ids`
            in reverse.
        backward_character_ids: int [B, T, K], the same for `character_ids`.
        memory: [B, 2 L, 1, C + P], the state that the call for the previous rows returned, the
            layers of the forward direction first; None = 0.
        memory_mask: bool [B, 1], False for rows with a fresh state; None = no row.

    A call returns the outputs of `base.Encoder`, and
        `sequence_output` [B, T, D], the forward state and then the backward state of each word. In
            backward rows, word t is that of the backward row;
        `hidden_states` with `output_all`, first the vector of each word, twice;
        `memory` and `memory_mask`, the state after the last word, with `memory`.
    """

    config: BilmConfig

    def __init__(
        self,
        config: BilmConfig,
        *,
        seed: int = 0,
        name: str = "encoder",
        dtype: DType | None = None,
    ):
        """Describes an encoder; `build()` creates its variables.

        Args:
            config: `BilmConfig`.
            seed: initial weights are a function of it and of the name.
            name: first part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(config, name=name, dtype=dtype)
        draws, dtype = Draws.of_name(seed, name), self.dtype_policy
        self.reads_characters = config.tokens == "characters"
        self.words: CharacterCNN | Table
        if self.reads_characters:
            self.words = CharacterCNN(config, rng=draws, name="words", dtype=dtype)
        else:
            self.words = Table(
                config.known_vocab_size,
                config.projection_size,
                initializer=RandomWeights("uniform", 1.0, draws),
                name="words",
                dtype=dtype,
            )
        glorot = RandomWeights("glorot", None, draws)
        self.stacks = {
            direction: [
                ProjectedLSTM(
                    config.projection_size,
                    config.cell_size,
                    config.projection_size,
                    cell_clip=config.cell_clip,
                    projection_clip=config.projection_clip,
                    initializer=glorot,
                    name=f"{direction}_{i}",
                    dtype=dtype,
                )
                for i in range(config.num_layers)
            ]
            for direction in DIRECTIONS
        }

    @override
    def build(self, input_shape=None):
        self.words.build()
        for stack in self.stacks.values():
            for lstm in stack:
                lstm.build()

    @override
    def by_depth(self):
        """See `base.Encoder`. The LSTMs of both directions are at one depth."""
        pairs = zip(*self.stacks.values(), strict=True)
        return [[self.words], *(list(pair) for pair in pairs)]

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        rng: Draws | None = None,
        output_all: bool = False,
        pooled_positions: Tensor | None = None,
        character_ids: Tensor | None = None,
        backward_token_ids: Tensor | None = None,
        backward_character_ids: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Encodes a batch: see the class."""
        del segment_ids, positions, pooled_positions
        rng = self.draws(rng, training)
        padding_mask = self.padding_of(token_ids, padding_mask)
        attention_mask = self.masked(attention_mask, padding_mask)
        real = None if attention_mask is None else attention_mask[:, 0, 0]
        ids, backward = token_ids, backward_token_ids
        if self.reads_characters:
            ids, backward = character_ids, backward_character_ids
        if ids is None:
            raise UserError("encoder.tokens: characters: the batch has no character_ids")
        forward = self.words(ids)  # [B, T, P]
        order = None
        if backward is None:
            order = _reversed(forward, real)
            rows = forward, take_positions(forward, order)
        else:
            rows = forward, self.words(backward)
        layers, states = [], []
        for row, (direction, stack) in zip(rows, self.stacks.items(), strict=True):
            first = 0 if direction == "forward" else self.config.num_layers
            outputs, kept = self._run(stack, row, real, rng, memory, memory_mask, first)
            if direction == "backward" and order is not None:
                outputs = [take_positions(x, order) for x in outputs]
            layers.append(outputs)
            states += kept
        joined = [ops.concatenate(pair, axis=-1) for pair in zip(*layers, strict=True)]
        encoded = {"sequence_output": dropout(joined[-1], self.config.dropout, rng)}
        if output_all:
            encoded["hidden_states"] = tuple(joined)
        if memory is not None:
            encoded["memory"] = ops.stack(states, axis=1)[:, :, None]
            encoded["memory_mask"] = ops.ones((ops.shape(forward)[0], 1), "bool")
        return self.with_mask(encoded, padding_mask)

    def _run(
        self,
        stack,
        x: Tensor,
        real: Tensor,
        rng: Draws | None,
        memory: Tensor,
        memory_mask: Tensor,
        first: int,
    ):
        """Runs the LSTMs of a direction.

        Args:
            stack: L LSTMs.
            x: [B, T, P].
            real: bool [B, T], or None.
            rng: `Draws`, or None.
            memory: see the class.
            memory_mask: see the class.
            first: the index of the first of these LSTMs in the memory.

        Returns:
            L + 1 tensors [B, T, P], and L states [B, C + P] in the dtype of the memory.
        """
        layers, states = [x], []
        for i, lstm in enumerate(stack):
            x = dropout(x, self.config.dropout, rng)
            state = self._state(memory, memory_mask, first + i)
            y, after = lstm(x, real, state)
            if memory is not None:
                states.append(ops.cast(ops.concatenate(after, axis=-1), memory.dtype))
            x = x + y if i and self.config.skip_connections else y
            layers.append(x)
        return layers, states

    def _state(self, memory: Tensor, memory_mask: Tensor, number: int):
        """Returns the state c [B, C] and m [B, P] of an LSTM, or None without a memory."""
        if memory is None:
            return None
        state = ops.cast(memory[:, number, 0], accurate(self.compute_dtype))
        if memory_mask is not None:
            state = ops.where(memory_mask, state, 0)
        return ops.split(state, [self.config.cell_size], axis=-1)


def _reversed(x: Tensor, real: Tensor) -> Tensor:
    """Returns the positions of the real words of rows [B, T, ...], last word first: int [B, T].

    Padding keeps its positions, so that applying the result twice restores the order.
    """
    batch, length = ops.shape(x)[:2]
    places = ops.broadcast_to(ops.arange(length, dtype="int32")[None], (batch, length))
    if real is None:
        return length - 1 - places
    count = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True)
    return ops.where(places < count, count - 1 - places, places)
