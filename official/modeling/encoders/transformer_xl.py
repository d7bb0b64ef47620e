"""The encoder of Transformer-XL and XLNet: relative distances, a memory, and two streams.

`official.modeling.encoders.two_streams` defines what the rows of each stream attend to, and
`official.modeling.encoders.row_memory` what is kept of them.

Shapes: B batch, T content rows, P query rows, S keys, M memory, N heads, H head size, D hidden,
L layers, K pooled positions.
"""

import zlib

from keras import ops

from official.modeling import masks
from official.modeling.encoders import base, pooling, row_memory, two_streams
from official.modeling.encoders.inputs import check_ranks
from official.modeling.layers.distances import distance_vectors
from official.modeling.layers.embeddings import StreamEmbeddings
from official.modeling.layers.kernels import dropout
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.layers.relative_attention import RelativeBiases, Stream
from official.modeling.layers.relative_block import RelativeBlock
from official.utils.errors import UserError


class Encoder(base.Encoder, saved_as="TransformerXLEncoder"):
    """Embeddings, blocks with relative attention, and a pooler.

    Call arguments:
        token_ids: int [B, T].
        segment_ids: int [B, T], from 0 to 7. The memory has segment 0. None = all 0.
        attention_mask: bool, broadcastable to [B, N, T, T], True = may attend; None = all. With a
            cache it is [B, N, T, S].
        positions: ignored, since only distances count, also within a part of a row.
        rng: `Draws`, or None for inference (no dropout).
        padding_mask: [B, T], true (or not 0) for tokens, which is combined with `attention_mask`;
            None = the mask that Keras keeps with `token_ids`, or there is no padding.
        training: whether Keras trains; dropout without `rng` is then drawn from the layer's seeds.
        output_all: whether to return the states and attention weights of all layers.
        pooled_positions: int [B, K], positions to pool; None = `config.pooled_position`.
        memory: [B, L, M, D], the memory that the call for the previous row returned, or None.
        memory_mask: bool [B, M], False for slots that are not attended to; None = all are.
        permutation_mask: bool [B, T, T], True where the row may attend to the column. A position
            of the content stream also attends to itself. None = all.
        query_positions: int [B, P], the positions of the query stream, or None.
        backward: bool [B], True for rows of reversed text, whose distances have the opposite sign;
            None = no row.
        cache: the result of `empty_cache`, or the cache that an earlier call returned. The
            positions attended to are then the S slots of the cache, and of the other arguments
            only `token_ids`, `attention_mask` and `slot` are used.
        slot: int or scalar tensor, the slot of the first of these tokens. Earlier calls filled the
            slots before it.

    A call returns a dict with
        `sequence_output` [B, T, D];
        `query_output` [B, P, D] with `query_positions`;
        `pooled_output` [B, D] if there is a pooler, or [B, K, D] with `pooled_positions`;
        `memory` [B, L, M, D] and `memory_mask` [B, M] if `config.memory_length` is set: the last
            M inputs of each layer, without a gradient;
        `hidden_states` with `output_all`: L + 1 tensors [B, T, D], the embeddings first and
            `sequence_output` last;
        `attentions` with `output_all`: L tensors [B, N, T, S];
        `query_states` and `query_attentions`: the same for the query stream.
    With `cache` the dict has `sequence_output` and `cache`, which includes these tokens.

    A call raises UserError if a shape is wrong, or if the config does not allow an argument.
    """

    batch_fields = ("memory", "memory_mask", "permutation_mask", "backward")

    def __init__(self, config, *, seed=0, name="encoder", dtype=None):
        """Describes an encoder; `build()` creates its variables.

        Args:
            config: `TransformerXLConfig` with a vocabulary size.
            seed: initial weights are a function of it and of the name.
            name: first part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        if config.vocab_size is None:
            raise UserError("encoder.vocab_size: not set, and no tokenizer to take it from")
        self.config = config
        dtype, size = self.dtype_policy, config.hidden_size
        weights = RandomWeights(
            config.initializer, config.initializer_range, Draws((seed, zlib.crc32(name.encode())))
        )
        self.embeddings = StreamEmbeddings(
            config.vocab_size,
            size,
            query_stream=config.query_stream,
            initializer=weights,
            name="embeddings",
            dtype=dtype,
        )
        heads = {
            "num_heads": config.num_heads,
            "head_size": config.head_size or size // config.num_heads,
            "segments": config.segment_types > 0,
        }
        self.biases = self.pooler = None
        if not config.untie_biases:
            self.biases = RelativeBiases(**heads, initializer=weights, name="biases", dtype=dtype)
        self.blocks = self._make_blocks(heads, weights)
        self.depths = list(range(config.num_layers))
        if config.pooler:
            self.pooler = Linear(size, size, initializer=weights, name="pooler", dtype=dtype)

    def _make_blocks(self, heads, weights):
        """Makes the L blocks, with the options of their heads and an initializer."""
        config = self.config
        return [
            RelativeBlock(
                config.hidden_size,
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
                dtype=self.dtype_policy,
            )
            for i in range(config.num_layers)
        ]

    def build(self, input_shape=None):
        """Creates the variables."""
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
        padding_mask=None,
        training=None,
    ):
        """Encodes a batch, or the next tokens of a batch with a cache: see the class."""
        check_ranks(token_ids, attention_mask, "[B, N, T, T]")
        two_streams.check(self.config, permutation_mask, query_positions)
        row_memory.check(memory, self.config)
        rng = self.draws(rng, training)
        padding_mask = self.padding_of(token_ids, padding_mask)
        attention_mask = self.masked(attention_mask, padding_mask)
        if cache is not None:
            return self._encode_with_cache(token_ids, attention_mask, cache, slot)
        memory_mask = row_memory.mask(memory, memory_mask)
        batch, length = ops.shape(token_ids)
        real = masks.attended(attention_mask, batch, length)
        if not self.config.segment_types:
            segment_ids = None
        streams = two_streams.make_streams(
            length,
            causal=self.config.attention == "uni",
            attention_window=self.config.attention_window,
            segment_ids=segment_ids,
            attention_mask=attention_mask,
            memory_mask=memory_mask,
            permutation_mask=permutation_mask,
            query_positions=query_positions,
            dtype=self.compute_dtype,
        )
        inputs, parts, attentions = self._run_blocks(
            token_ids, segment_ids, query_positions, streams, memory, backward, rng
        )
        outputs = self._make_outputs(parts, real, pooled_positions, rng)
        if self.config.memory_length:
            outputs |= row_memory.after(
                [rows[:, :length] for rows in inputs],
                ops.ones((batch, length), "bool") if real is None else real,
                memory,
                memory_mask,
                size=self.config.memory_length,
                reuse=self.config.reuse_length,
            )
        if output_all:
            outputs |= two_streams.states(inputs, outputs, attentions, length)
        return self.with_mask(outputs, padding_mask)

    def _run_blocks(self, token_ids, segment_ids, query_positions, streams, memory, backward, rng):
        """Embeds the rows of all streams and runs the blocks: see `two_streams.run`."""
        config, dtype = self.config, self.compute_dtype
        length = ops.shape(token_ids)[1]
        remembered = 0 if memory is None else config.memory_length
        distances = distance_vectors(
            length,
            remembered + length,
            config.hidden_size,
            bidirectional=config.attention == "bi",
            clamp=config.clamp_length,
            backward=backward is not None,
            dtype=dtype,
        )
        # Dropout draws in the order of the calls: the distances come before the embeddings.
        if rng is not None:
            distances = dropout(distances, config.dropout, rng.shared())  # by no row
        return two_streams.run(
            self.blocks,
            self._embed(token_ids, query_positions, rng),
            streams,
            memory=memory,
            distances=distances,
            backward=backward,
            key_segments=two_streams.one_hot_segments(segment_ids, remembered, dtype=dtype),
            rng=rng,
        )

    def _make_outputs(self, parts, real, pooled_positions, rng):
        """Returns the outputs of the last layer by name, with dropout, and the pooled output."""
        outputs = {
            name: dropout(part, self.config.dropout, rng)
            for name, part in zip(("sequence_output", "query_output"), parts, strict=False)
        }
        if self.pooler is not None:
            states = outputs["sequence_output"]
            pooled = pooling.states(states, self.config.pooled_position, real, pooled_positions)
            outputs["pooled_output"] = ops.tanh(self.pooler(pooled))
        return outputs

    def _embed(self, token_ids, query_positions, rng):
        """Returns the first states of the rows of all streams: [B, T + P, D]."""
        x = self.embeddings(token_ids)
        if self.config.scale_embeddings:
            x = x * self.config.hidden_size**0.5
        if query_positions is not None:
            x = ops.concatenate([x, self.embeddings.query(query_positions)], axis=1)
        return dropout(x, self.config.dropout, rng)

    def empty_cache(self, batch, slots):
        """Returns an empty cache with room for a number of tokens.

        The cache has a slot for each token, whatever `memory_length` is: a token attends to the
        same keys as in one long row (as many as `same_length` allows).

        Returns:
            For each of the L layers: keys and values [batch, N, slots, H], and the keys of
            distances [1, N, H, 2 * slots].

        Raises:
            UserError: positions attend to later positions.
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

    def _encode_with_cache(self, token_ids, attention_mask, cache, slot):
        length = ops.shape(token_ids)[1]
        causal = masks.causal(length, cache[0][0].shape[2], slot, self.config.attention_window)
        streams = [Stream(masks.combine(attention_mask, causal))]
        x, new_cache = self._embed(token_ids, None, None), []
        for block, layer_cache in zip(self.blocks, cache, strict=True):
            x, _, layer_cache = block(x, streams=streams, cache=layer_cache, slot=slot)
            new_cache.append(layer_cache)
        return {"sequence_output": x, "cache": tuple(new_cache)}
