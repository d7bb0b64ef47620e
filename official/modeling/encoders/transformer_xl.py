"""The encoder of Transformer-XL and XLNet: distances, a memory, and two streams.

`official.modeling.encoders.two_streams` says what the rows see,
`official.modeling.encoders.row_memory` what is kept of them.

Shapes: B batch, T content rows, P query rows, S keys, M memory, N heads, D hidden, V vocabulary,
L layers, K places to pool.
"""

import zlib

import keras
from keras import ops

from official.modeling import masks
from official.modeling.encoders import pooling, row_memory, two_streams
from official.modeling.encoders.inputs import check_ranks
from official.modeling.layers.distances import distance_vectors
from official.modeling.layers.dropout import dropout
from official.modeling.layers.embeddings import StreamEmbeddings
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws, initializer
from official.modeling.layers.relative_attention import RelativeBiases, Stream
from official.modeling.layers.relative_block import RelativeBlock
from official.utils.errors import UserError


class Encoder(keras.Layer):
    """Embeddings, relative blocks and pooler."""

    batch_fields = ("memory", "memory_mask", "permutation_mask", "backward")

    def __init__(self, config, *, seed=0, name="encoder", dtype=None):
        """Describes an encoder; `build()` makes its variables.

        Args:
            config: `Config` with a vocabulary size.
            seed: initial weights are a function of it and of the name.
            name: first part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        if config.vocab_size is None:
            raise UserError("encoder.vocab_size: not set, and no tokenizer to take it from")
        self.config = config
        dtype = self.dtype_policy
        weights = initializer(
            config.initializer, config.initializer_range, Draws((seed, zlib.crc32(name.encode())))
        )
        self.embeddings = StreamEmbeddings(
            config.vocab_size,
            config.hidden_size,
            query_stream=config.query_stream,
            initializer=weights,
            name="embeddings",
            dtype=dtype,
        )
        heads = {
            "head_size": config.head_size or config.hidden_size // config.num_heads,
            "segments": config.segment_types > 0,
        }
        self.biases = self.pooler = None
        if not config.untie_biases:
            self.biases = RelativeBiases(
                config.num_heads, **heads, initializer=weights, name="biases", dtype=dtype
            )
        self.blocks = [
            RelativeBlock(
                config.hidden_size,
                num_heads=config.num_heads,
                **heads,
                intermediate_size=config.intermediate_size,
                activation=config.activation,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                inner_dropout=config.inner_dropout,
                epsilon=config.norm_epsilon,
                initializer=weights,
                name=f"layer_{i}",
                biases=self.biases,
                dtype=dtype,
            )
            for i in range(config.num_layers)
        ]
        self.depths = list(range(config.num_layers))
        if config.pooler:
            self.pooler = Linear(
                config.hidden_size,
                config.hidden_size,
                initializer=weights,
                name="pooler",
                dtype=dtype,
            )

    def build(self, input_shape=None):
        """Makes the variables."""
        for layer in (self.embeddings, self.biases, *self.blocks, self.pooler):
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
        memory=None,
        memory_mask=None,
        permutation_mask=None,
        query_positions=None,
        backward=None,
        cache=None,
        slot=0,
    ):
        """Encodes a batch, or goes on with one.

        Args:
            token_ids: int [B, T].
            segment_ids: int [B, T], from 0 to 7; memory counts as segment 0. None = all 0.
            attention_mask: bool, broadcastable to [B, N, T, T], True = may attend; None = all. With
                a cache it is [B, N, T, S].
            positions: is not used: only distances count, within a part of a row too.
            rng: `Draws`, or None for inference (no dropout).
            output_all: whether to return the states and attention weights of all layers.
            pooled_positions: int [B, K], positions to pool; None = `config.pooled_position`.
            memory: [B, L, M, D], what the call for the row before returned; None = none.
            memory_mask: bool [B, M], False for slots that are not attended to; None = all are.
            permutation_mask: bool [B, T, T], True where the row may attend to the column; the
                content stream also sees itself. None = all.
            query_positions: int [B, P], what the query stream is computed for.
            backward: bool [B], rows whose text runs backwards, so that distances count the other
                way; None = no row.
            cache: what `empty_cache` gave or an earlier call returned; then the positions attended
                to are the S slots of the cache, and only `token_ids`, `attention_mask` and `slot`
                count beside it.
            slot: int or scalar tensor, the slot of the first of these tokens. Those before it were
                filled by earlier calls.

        Returns:
            dict with `sequence_output` [B, T, D]; with `query_positions` also `query_output`
            [B, P, D]; where there is a pooler `pooled_output` [B, D] ([B, K, D] with
            `pooled_positions`); where `config.memory_length` is set `memory` [B, L, M, D], the
            last M inputs of each layer without a gradient, and `memory_mask` [B, M]. With
            `output_all` also `hidden_states`, L + 1 tensors [B, T, D] (embeddings first, the last
            one is `sequence_output`), `attentions`, L tensors [B, N, T, S], and for the query
            stream `query_states` and `query_attentions`. With `cache`: `sequence_output` and
            `cache`, with these tokens.

        Raises:
            UserError: a shape is wrong, or something is given that the config has not.
        """
        check_ranks(token_ids, attention_mask, "[B, N, T, T]")
        two_streams.check(self.config, permutation_mask, query_positions)
        row_memory.check(memory, self.config)
        if cache is not None:
            return self._go_on(token_ids, attention_mask, cache, slot)
        config = self.config
        batch, length = ops.shape(token_ids)
        real = masks.attended(attention_mask, batch, length)
        remembered = 0 if memory is None else config.memory_length
        if memory is None:
            memory_mask = None
        elif memory_mask is None:
            memory_mask = ops.ones((batch, remembered), "bool")
        if not config.segment_types:
            segment_ids = None
        streams = two_streams.make_streams(
            length,
            causal=config.attention == "uni",
            attention_window=config.attention_window,
            segment_ids=segment_ids,
            attention_mask=attention_mask,
            memory_mask=memory_mask,
            permutation_mask=permutation_mask,
            query_positions=query_positions,
            dtype=self.compute_dtype,
        )
        distances = distance_vectors(
            length,
            remembered + length,
            config.hidden_size,
            bidirectional=config.attention == "bi",
            clamp=config.clamp_length,
            backward=backward is not None,
            dtype=self.compute_dtype,
        )
        distances = dropout(distances, config.dropout, rng)
        x = self._embedded(token_ids, query_positions, rng)  # [B, T + P, D]
        inputs, parts, attentions = two_streams.run(
            self.blocks,
            x,
            streams,
            memory=memory,
            distances=distances,
            backward=backward,
            key_segments=two_streams.one_hot_segments(
                segment_ids, remembered, dtype=self.compute_dtype
            ),
            rng=rng,
        )
        outputs = {
            name: dropout(part, config.dropout, rng)
            for name, part in zip(("sequence_output", "query_output"), parts, strict=False)
        }
        if self.pooler is not None:
            pooled = pooling.states(
                outputs["sequence_output"], config.pooled_position, real, pooled_positions
            )
            outputs["pooled_output"] = ops.tanh(self.pooler(pooled))
        if config.memory_length:
            outputs |= row_memory.after(
                [rows[:, :length] for rows in inputs],
                ops.ones((batch, length), "bool") if real is None else real,
                memory,
                memory_mask,
                size=config.memory_length,
                reuse=config.reuse_length,
            )
        if output_all:
            outputs |= two_streams.states(inputs, outputs, attentions, length)
        return outputs

    def _embedded(self, token_ids, query_positions, rng):
        """What the rows of all streams start from: [B, T + P, D]."""
        x = self.embeddings(token_ids)
        if self.config.scale_embeddings:
            x = x * self.config.hidden_size**0.5
        if query_positions is not None:
            x = ops.concatenate([x, self.embeddings.query(query_positions)], axis=1)
        return dropout(x, self.config.dropout, rng)

    def empty_cache(self, batch, slots):
        """What every layer keeps of `slots` tokens yet to come.

        It holds all of them, whatever `memory_length` is: what a token attends to is what it would
        attend to in one long row (as much as `same_length` lets it see).

        Returns:
            L times keys and values [batch, N, slots, H] and the keys of distances
            [1, N, H, 2 * slots].

        Raises:
            UserError: positions see what comes after them.
        """
        config = self.config
        if config.attention != "uni":
            raise UserError(
                "a cache holds what later tokens do not change: encoder.attention must be uni"
            )
        distances = distance_vectors(
            slots,
            slots,
            config.hidden_size,
            bidirectional=True,
            clamp=config.clamp_length,
            dtype=self.compute_dtype,
        )
        return tuple(block.attention.empty_cache(batch, distances) for block in self.blocks)

    def _go_on(self, token_ids, attention_mask, cache, slot):
        length = ops.shape(token_ids)[1]
        before = masks.causal(length, cache[0][0].shape[2], slot, self.config.attention_window)
        streams = [Stream(length, masks.combine(attention_mask, before))]
        x, kept = self._embedded(token_ids, None, None), []
        for block, past in zip(self.blocks, cache, strict=True):
            x, _, past = block(x, streams=streams, cache=past, slot=slot)
            kept.append(past)
        return {"sequence_output": x, "cache": tuple(kept)}
