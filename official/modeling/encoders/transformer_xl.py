"""The encoder of Transformer-XL and XLNet: relative distances, a memory, and two streams.

The *content stream* reads the tokens. The *query stream* has a row for each token to predict. Every
such row starts from the same vector, has a position, and attends to the tokens that the permutation
order allows, never to its own token (Yang et al. 2019, section 2.3). The *memory* is what a row
leaves for the row that continues it (Dai et al. 2019, section 3.2).

Shapes: B batch, T content rows, P query rows, Q rows of a stream, S keys, M memory, N heads, H head
size, D hidden, L layers, K pooled positions.
"""

from collections.abc import Sequence
from typing import Any

from keras import ops
from typing_extensions import override

from official.modeling import masks
from official.modeling.encoders import base
from official.modeling.encoders.inputs import check_ranks
from official.modeling.layers.block import RelativeBlock, adapter_weights
from official.modeling.layers.embeddings import StreamEmbeddings
from official.modeling.layers.kernels import dropout
from official.modeling.layers.linear import Linear
from official.modeling.layers.positions import distance_vectors
from official.modeling.layers.random import Draws, Initializers, RandomWeights
from official.modeling.layers.relative_attention import (
    AttentionStream,
    RelativeBiases,
    RelativePositions,
    by_stream,
)
from official.modeling.types import DType, Size, Tensor
from official.utils.errors import UserError

# Segment ids are below this number.
SEGMENTS = 8


class Encoder(base.Encoder, saved_as="TransformerXLEncoder"):
    """Embeddings, blocks with relative attention, and a pooler.

    Call arguments beside those of `base.Encoder`, of which `segment_ids` are from 0 to 7 (the
    memory has segment 0), `positions` are ignored, since only distances count, also within a part
    of a row, and `attention_mask` is broadcastable to [B, N, T, S] with a cache:
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

    A call returns the outputs of `base.Encoder`, and
        `query_output` [B, P, D] with `query_positions`;
        `memory` [B, L, M, D] and `memory_mask` [B, M] if `config.memory_length` is set: the last
            M inputs of each layer, without a gradient;
        `query_states` and `query_attentions` with `output_all`: the same for the query stream.
    With `cache` the dict has `sequence_output` and `cache`, which includes these tokens.

    A call raises UserError if a shape is wrong, or if the config does not allow an argument.
    """

    def __init__(self, config, *, seed=0, name="encoder", dtype=None):
        """Describes an encoder; `build()` creates its variables.

        Args:
            config: `TransformerXLConfig` with a vocabulary size.
            seed: initial weights are a function of it and of the name.
            name: first part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(config, name=name, dtype=dtype)
        dtype, size = self.dtype_policy, config.hidden_size
        weights = RandomWeights(
            config.initializer, config.initializer_range, Draws.of_name(seed, name)
        )
        self.embeddings = StreamEmbeddings(
            config.known_vocab_size,
            size,
            query_stream=config.query_stream,
            initializer=weights,
            name="embeddings",
            dtype=dtype,
        )
        parts = config.block()
        self.biases = None
        if not config.untie_biases:
            self.biases = RelativeBiases(parts, weights, name="biases", dtype=dtype)
        initializers = Initializers(weights, adapter=adapter_weights(seed, name))
        self.blocks = [
            RelativeBlock(parts, initializers, biases=self.biases, name=f"layer_{i}", dtype=dtype)
            for i in range(config.num_layers)
        ]
        self.depths = list(range(config.num_layers))
        if config.pooler:
            self.pooler = Linear(size, size, initializer=weights, name="pooler", dtype=dtype)

    @override
    def build(self, input_shape=None):
        for layer in (self.embeddings, self.biases, *self.blocks, self.pooler):
            if layer is not None:
                layer.build()

    @property
    def token_table(self):
        """The token `Table`, for outputs that are tied to it."""
        return self.embeddings.token

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        rng: Draws | None = None,
        output_all: bool = False,
        pooled_positions: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        permutation_mask: Tensor | None = None,
        query_positions: Tensor | None = None,
        backward: Tensor | None = None,
        cache: Any | None = None,
        slot: Size = 0,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Encodes a batch, or the next tokens of a batch with a cache: see the class."""
        check_ranks(token_ids, attention_mask, "[B, N, T, T]")
        _check_queries(self.config, permutation_mask, query_positions)
        _check_memory(memory, self.config)
        rng = self.draws(rng, training)
        padding_mask = self.padding_of(token_ids, padding_mask)
        attention_mask = self.masked(attention_mask, padding_mask)
        if cache is not None:
            return self._encode_with_cache(token_ids, attention_mask, cache, slot)
        memory_mask = _memory_mask(memory, memory_mask)
        batch, length = ops.shape(token_ids)
        real = masks.attended(attention_mask, batch, length)
        if not self.config.segment_types:
            segment_ids = None
        streams = make_streams(
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
            outputs |= _memory_after(
                [rows[:, :length] for rows in inputs],
                ops.ones((batch, length), "bool") if real is None else real,
                memory,
                memory_mask,
                size=self.config.memory_length,
                reuse=self.config.reuse_length,
            )
        if output_all:
            outputs |= _all_states(inputs, outputs, attentions, length)
        return self.with_mask(outputs, padding_mask)

    def _run_blocks(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        query_positions: Tensor,
        streams,
        memory: Tensor,
        backward: Tensor,
        rng: Draws | None,
    ):
        """Embeds the rows of all streams and runs the blocks: see `_run_streams`."""
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
        return _run_streams(
            self.blocks,
            self._embed(token_ids, query_positions, rng),
            streams,
            memory=memory,
            positions=RelativePositions(
                distances, backward, one_hot_segments(segment_ids, remembered, dtype=dtype)
            ),
            rng=rng,
        )

    def _make_outputs(
        self, parts: Sequence[Tensor], real: Tensor, pooled_positions: Tensor, rng: Draws | None
    ):
        """Returns the outputs of the last layer by name, with dropout, and the pooled output."""
        outputs = {
            name: dropout(part, self.config.dropout, rng)
            for name, part in zip(("sequence_output", "query_output"), parts, strict=False)
        }
        if self.pooler is not None:
            states = outputs["sequence_output"]
            pooled = base.pooled_states(states, self.config.pooled_position, real, pooled_positions)
            outputs["pooled_output"] = ops.tanh(self.pooler(pooled))
        return outputs

    def _embed(self, token_ids: Tensor, query_positions: Tensor, rng: Draws | None) -> Tensor:
        """Returns the first states of the rows of all streams: [B, T + P, D]."""
        x = self.embeddings(token_ids)
        if self.config.scale_embeddings:
            x = x * self.config.hidden_size**0.5
        if query_positions is not None:
            x = ops.concatenate([x, self.embeddings.query(query_positions)], axis=1)
        return dropout(x, self.config.dropout, rng)

    def empty_cache(self, batch: Size, slots: Size):
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
                "a cache needs an encoder whose tokens attend to no later ones: set "
                "encoder.attention: uni"
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

    def _encode_with_cache(self, token_ids: Tensor, attention_mask: Tensor, cache: Any, slot: Size):
        length = ops.shape(token_ids)[1]
        causal = masks.causal(length, cache[0][0].shape[2], slot, self.config.attention_window)
        streams = [AttentionStream(masks.combine(attention_mask, causal))]
        x, new_cache = self._embed(token_ids, None, None), []
        for block, layer_cache in zip(self.blocks, cache, strict=True):
            x, _, layer_cache = block(x, streams=streams, cache=layer_cache, slot=slot)
            new_cache.append(layer_cache)
        return {"sequence_output": x, "cache": tuple(new_cache)}


def make_streams(
    length: Size,
    *,
    causal: bool = False,
    attention_window: int = 0,
    segment_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    permutation_mask: Tensor | None = None,
    query_positions: Tensor | None = None,
    dtype: DType,
):
    """Returns the streams of a batch.

    Args:
        length: T.
        causal: whether a position attends to itself, to earlier positions and the memory only.
        attention_window: how many keys it then attends to at most, itself included; 0 = all.
        segment_ids: int [B, T]; None = all positions are in one segment.
        attention_mask: bool, broadcastable to [B, N, T, T]; None = all.
        memory_mask: bool [B, M]; None = there is no memory.
        permutation_mask: bool [B, T, T]; None = all.
        query_positions: int [B, P]; None = there is no query stream.
        dtype: dtype of the one-hot segments.

    Returns:
        The `AttentionStream` of the content, and if there are queries that of the queries.
    """
    earlier = None
    if causal:
        remembered = 0 if memory_mask is None else ops.shape(memory_mask)[1]
        earlier = masks.causal(length, remembered + length, attention_window=attention_window)
    order = None if permutation_mask is None else masks.permutation(permutation_mask)
    keys = _with_memory(masks.combine(attention_mask, order), memory_mask, length)
    content = AttentionStream(
        masks.combine(keys, earlier), one_hot_segments(segment_ids, dtype=dtype)
    )
    if query_positions is None:
        return [content]
    order = masks.rows(ops.cast(permutation_mask, "bool")[:, None], query_positions)
    keys = masks.combine(masks.rows(attention_mask, query_positions), order)
    keys = _with_memory(keys, memory_mask, length)
    mask = masks.combine(keys, masks.rows(earlier, query_positions))
    return [content, _query_stream(length, query_positions, mask, segment_ids, dtype)]


def _with_memory(mask: Tensor, memory_mask: Tensor, length: Size):
    """Returns a mask with the keys of the memory, if there is one, before the others."""
    return mask if memory_mask is None else masks.after_memory(mask, memory_mask, length)


def _query_stream(length: Size, positions: Tensor, mask: Tensor, segment_ids: Tensor, dtype: DType):
    positions = ops.cast(positions, "int32")
    if segment_ids is not None:
        segment_ids = ops.take_along_axis(segment_ids, positions, axis=1)
    segments = one_hot_segments(segment_ids, dtype=dtype)
    return AttentionStream(mask, segments, length - positions)


def one_hot_segments(ids: Tensor, memory: Size = 0, *, dtype: DType) -> Tensor | None:
    """Returns ids [B, T] as one-hot vectors [B, M + T, 8]; the M slots of a memory have id 0.

    None stays None.
    """
    if ids is None:
        return None
    ids = ops.pad(ids, [[0, 0], [memory, 0]]) if memory else ids
    return ops.one_hot(ids, SEGMENTS, dtype=dtype)


def _run_streams(blocks, x: Tensor, streams, *, memory: Tensor | None = None, **options):
    """Runs all layers on the rows of all streams.

    Args:
        blocks: L blocks of relative attention.
        x: [B, T + P, D].
        streams: as `make_streams` returns them.
        memory: [B, L, M, D], or None.
        **options: further arguments of every block.

    Returns:
        The inputs of the blocks, L tensors [B, T + P, D]; the outputs of the last block, a tensor
        [B, Q, D] for each stream; the attention weights of each block, L tuples with a tensor
        [B, N, Q, S] for each stream.
    """
    inputs, attentions = [], []
    for i, block in enumerate(blocks):
        inputs.append(x)
        options["memory"] = None if memory is None else memory[:, i]
        if len(streams) == 1:
            x, weights, _ = block(x, streams=streams, **options)
            parts = [x]
        elif i + 1 < len(blocks):
            content, _ = by_stream(x, streams, axis=1)
            x, weights, _ = block(x, streams=streams, content=content, **options)
        else:
            # Separate calls, so that a graph that needs one output leaves the other out.
            content, query = by_stream(x, streams, axis=1)
            results = [
                block(rows, streams=[stream], content=content, **options)
                for rows, stream in zip((content, query), streams, strict=True)
            ]
            parts = [rows for rows, _, _ in results]
            weights = tuple(stream_weights[0] for _, stream_weights, _ in results)
        attentions.append(weights)
    return inputs, parts, attentions


def _all_states(inputs, outputs, attentions, length: Size):
    """Returns the states and attention weights of all layers by the names of the outputs.

    Args:
        inputs: the inputs of the blocks, L tensors [B, T + P, D].
        outputs: dict with `sequence_output` and, if there is a query stream, `query_output`.
        attentions: the weights of each block, as `run` returns them.
        length: T.

    Returns:
        dict with `hidden_states` and `attentions`, and if there is a query stream with
        `query_states` and `query_attentions`.
    """
    content = [rows[:, :length] for rows in inputs]
    result = {
        "hidden_states": (*content, outputs["sequence_output"]),
        "attentions": tuple(weights[0] for weights in attentions),
    }
    if "query_output" in outputs:
        queries = [rows[:, length:] for rows in inputs]
        result["query_states"] = (*queries, outputs["query_output"])
        result["query_attentions"] = tuple(weights[1] for weights in attentions)
    return result


def _check_queries(config, permutation_mask: Tensor, query_positions: Tensor):
    """Raises UserError if query rows are asked of an encoder without them, or without an order."""
    if query_positions is None:
        return
    if not config.query_stream:
        raise UserError("query_positions: given, and encoder.query_stream is false: set it")
    if permutation_mask is None:
        raise UserError(
            "query_positions: given without permutation_mask, so that each query would see its "
            "own token: give both"
        )


def _last_positions(row: Tensor, old: Tensor, size: int, reuse: int) -> Tensor:
    """Returns the last M positions of the memory followed by the reused part of the row.

    Args:
        row: [B, T, ...], a value for each position.
        old: [B, M, ...], the same for the memory; None = zeros.
        size: M.
        reuse: how many of the first positions of the row are reused; 0 = all.

    Returns:
        [B, M, ...], without a gradient.
    """
    row = row[:, : reuse or None]
    if old is None:
        old = ops.zeros((ops.shape(row)[0], size, *row.shape[2:]), row.dtype)
    joined = ops.concatenate([ops.cast(old, row.dtype), row], axis=1)
    return ops.stop_gradient(joined[:, -size:])


def _memory_after(
    inputs, real: Tensor, memory: Tensor, memory_mask: Tensor, *, size: int, reuse: int
):
    """Returns the memory after a row.

    Args:
        inputs: the inputs of the layers, L tensors [B, T, D].
        real: bool [B, T], False for padding.
        memory: [B, L, M, D], the memory before the row, or None.
        memory_mask: bool [B, M], or None.
        size: M.
        reuse: as in `keep`.

    Returns:
        dict with `memory` [B, L, M, D] and `memory_mask` [B, M].
    """
    kept = [
        _last_positions(row, None if memory is None else memory[:, i], size, reuse)
        for i, row in enumerate(inputs)
    ]
    return {
        "memory": ops.stack(kept, axis=1),
        "memory_mask": _last_positions(real, memory_mask, size, reuse),
    }


def _memory_mask(memory: Tensor, memory_mask: Tensor) -> Tensor | None:
    """Returns the mask of a memory, by default all true: bool [B, M], or None without a memory."""
    if memory is None:
        return None
    if memory_mask is None:
        batch, _, size, _ = ops.shape(memory)
        return ops.ones((batch, size), "bool")
    return memory_mask


def _check_memory(memory: Tensor, config):
    """Raises UserError if a memory is not [B, L, M, D], or if the config has no memory."""
    if memory is None:
        return
    if not config.memory_length:
        raise UserError("memory: given, and encoder.memory_length is 0: set it")
    expected = (config.num_layers, config.memory_length, config.hidden_size)
    if tuple(memory.shape[1:]) != expected:
        raise UserError(
            f"memory: expected [B, {', '.join(map(str, expected))}], got shape "
            f"{tuple(memory.shape)}"
        )
