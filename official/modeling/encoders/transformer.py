"""The transformer encoder: BERT and, by its arguments, RoBERTa, ALBERT, ELECTRA and GPT-2.

Shapes: B batch, T query length, S key length, N heads, H head size, D hidden, E embedding,
V vocabulary, L layers (depths: blocks that run one after the other).
"""

import math
import zlib

import keras
from keras import ops

from official.modeling import masks
from official.modeling.encoders import pooling
from official.modeling.encoders.inputs import check_ranks
from official.modeling.layers.activation import POOLER_ACTIVATIONS
from official.modeling.layers.block import Block
from official.modeling.layers.embeddings import Embeddings
from official.modeling.layers.linear import Linear
from official.modeling.layers.norm import LayerNorm
from official.modeling.layers.random import Draws, initializer
from official.modeling.layers.shared_stack import block_names
from official.utils.errors import UserError


class Encoder(keras.Layer):
    """Embeddings, blocks and pooler."""

    can_stop_at_first = True  # see `official.modeling.encoders.inputs`

    def __init__(self, config, *, seed=0, name="encoder", shared=None, dtype=None):
        """Describes an encoder; `build()` makes its variables.

        Args:
            config: `Config` with a vocabulary size.
            seed: initial weights are a function of it and of the name.
            name: first part of the variables' paths.
            shared: layers of another encoder's embeddings to use as they are: see `Embeddings`.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        if config.vocab_size is None:
            raise UserError("encoder.vocab_size: not set, and no tokenizer to take it from")
        self.config = config
        dtype = self.dtype_policy
        draws = Draws((seed, zlib.crc32(name.encode())))

        def weights(stddev):
            return initializer(config.initializer, stddev, draws)

        usual = residual = weights(config.initializer_range)
        names = block_names(config.num_layers, config.layer_groups, config.inner_layers)
        if config.scale_residual_init:
            scale = 1 / math.sqrt(2 * len(names))
            residual = weights(config.initializer_range * scale)
        self.embeddings = Embeddings(
            vocab_size=config.vocab_size,
            embedding_size=config.embedding_size or config.hidden_size,
            hidden_size=config.hidden_size,
            max_positions=config.max_positions,
            position_offset=config.position_offset,
            segment_types=config.segment_types,
            normalize=config.norm == "post",
            epsilon=config.norm_epsilon,
            dropout=config.dropout,
            initializer=usual,
            position_initializer=weights(
                config.initializer_range
                if config.position_initializer_range is None
                else config.position_initializer_range
            ),
            name="embeddings",
            shared=shared,
            dtype=dtype,
        )
        blocks = {
            name: Block(
                config.hidden_size,
                num_heads=config.num_heads,
                intermediate_size=config.intermediate_size,
                activation=config.activation,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                norm=config.norm,
                epsilon=config.norm_epsilon,
                initializer=usual,
                name=name,
                residual_initializer=residual,
                dtype=dtype,
            )
            for name in dict.fromkeys(names)
        }
        self.blocks = list(blocks.values())
        self.depths = [self.blocks.index(blocks[name]) for name in names]
        self.final_norm = self.pooler = None
        if config.norm == "pre":
            self.final_norm = LayerNorm(
                config.hidden_size, epsilon=config.norm_epsilon, name="final_norm", dtype=dtype
            )
        if config.pooler:
            self.pooler = Linear(
                config.hidden_size,
                config.hidden_size,
                initializer=usual,
                name="pooler",
                dtype=dtype,
            )

    def build(self, input_shape=None):
        """Makes the variables."""
        for layer in (self.embeddings, *self.blocks, self.final_norm, self.pooler):
            if layer is not None:
                layer.build()

    @property
    def token_table(self):
        """The token `Table`, for outputs that are tied to it."""
        return self.embeddings.token

    def call(
        self,
        token_ids,
        segment_ids=None,
        attention_mask=None,
        positions=None,
        rng=None,
        output_all=False,
        pooled_positions=None,
        cache=None,
        slot=0,
        first_only=False,
    ):
        """Encodes a batch, or goes on with one.

        Args:
            token_ids: int [B, T].
            segment_ids: int [B, T]; None = all 0.
            attention_mask: bool, broadcastable to [B, N, T, S], True = may attend; None = all.
                `official.modeling.masks.padding` makes one from a padding mask.
            positions: int [B, T] or [1, T], all below `max_positions`; None = 0, 1, 2, ...
            rng: `Draws`, or None for inference (no dropout).
            output_all: whether to return the states and attention weights of all layers.
            pooled_positions: int [B, K], positions to pool; None = `config.pooled_position`.
            cache: what `empty_cache` gave or an earlier call returned; then the positions attended
                to are the S slots of the cache.
            slot: int or scalar tensor, the slot of the first of these tokens. Those before it were
                filled by earlier calls.
            first_only: whether the last layer computes the first position alone, which is then all
                that `sequence_output` has, [B, 1, D], and is pooled; all other outputs are left
                out.

        Returns:
            dict with `sequence_output` [B, T, D]; `pooled_output` [B, D] where there is a pooler
            ([B, K, D] with `pooled_positions`); with `output_all` also `hidden_states`, a tuple of
            L + 1 tensors [B, T, D] (embeddings first; the last one is `sequence_output`), and
            `attentions`, L tensors [B, N, T, S]; with `cache` also `cache`, with these tokens.

        Raises:
            UserError: the sequence is longer than the position table, a rank is wrong, or there is
                a cache and positions see what comes after them.
        """
        self._check(token_ids, attention_mask, positions)
        batch, length = ops.shape(token_ids)
        real = None
        if self.config.pooled_position == "last" and cache is None:
            real = masks.attended(attention_mask, batch, length)
        if cache is not None:
            if not self.config.causal:
                raise UserError(
                    "a cache holds what later tokens do not change: encoder.causal must be true"
                )
            seen = masks.causal(length, cache[0][0].shape[2], slot)
            attention_mask = masks.combine(attention_mask, seen)
        elif self.config.causal:
            attention_mask = masks.combine(attention_mask, masks.causal(length, length))
        x = self.embeddings(token_ids, segment_ids, positions, rng=rng)
        hidden_states, attentions, kept = [x], [], []
        for i, depth in enumerate(self.depths):
            past = None if cache is None else cache[i]
            last = first_only and i == len(self.depths) - 1
            x, weights, pair = self.blocks[depth](
                x, attention_mask, rng=rng, cache=past, slot=slot, first_only=last
            )
            hidden_states.append(x)
            attentions.append(weights)
            kept.append(pair)
        if self.final_norm is not None:
            x = hidden_states[-1] = self.final_norm(x)
        outputs = {"sequence_output": x}
        if self.pooler is not None:
            pooled = pooling.states(x, self.config.pooled_position, real, pooled_positions)
            activation = POOLER_ACTIVATIONS[self.config.pooler_activation]
            outputs["pooled_output"] = activation(self.pooler(pooled))
        if output_all:
            outputs["hidden_states"] = tuple(hidden_states)
            outputs["attentions"] = tuple(attentions)
        if cache is not None:
            outputs["cache"] = tuple(kept)
        return outputs

    def empty_cache(self, batch, slots):
        """Keys and values of every depth for `slots` tokens yet to come.

        Returns:
            L pairs of [batch, N, slots, H].
        """
        size = self.config.hidden_size // self.config.num_heads
        nothing = ops.zeros((batch, self.config.num_heads, slots, size), self.compute_dtype)
        return tuple((nothing, nothing) for _ in self.depths)

    def _check(self, token_ids, attention_mask, positions):
        check_ranks(token_ids, attention_mask, "[B, N, T, S]")
        length = token_ids.shape[1]
        counted = positions is None  # where they are given, a row may be longer than each part
        if counted and length is not None and length > self.config.max_positions:
            raise UserError(
                f"sequences of {length} tokens, but the encoder has {self.config.max_positions} "
                "positions: use shorter sequences or raise encoder.max_positions"
            )
