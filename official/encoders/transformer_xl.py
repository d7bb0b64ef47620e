"""The encoder of Transformer-XL and XLNet: distances, a memory, and two streams.

The *content stream* reads the tokens. The *query stream* has a row for each token that is to be
predicted: it starts from one vector that is the same for all, knows its place, and sees what the
order of prediction allows, never its own token (Yang et al. 2019, section 2.3).

Shapes: B batch, T content rows, P query rows, S keys, M memory, N heads, D hidden, V vocabulary,
L layers, K places to pool.
"""

import dataclasses
import zlib

import keras
from keras import ops

from official import masks
from official.encoders.inputs import check_ranks
from official.errors import UserError
from official.layers import gather
from official.layers.activation import ACTIVATIONS
from official.layers.dropout import dropout
from official.layers.embeddings import Table
from official.layers.linear import Linear
from official.layers.random import Draws, truncated_normal
from official.layers.relative_attention import RelativeBiases, Stream, distance_vectors
from official.layers.relative_block import RelativeBlock

# Segments have numbers below this.
SEGMENTS = 8


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and form of a Transformer-XL; the defaults are those of XLNet.

    Attributes:
        vocab_size: rows of the token table; None = as many as the tokenizer has.
        hidden_size: D, even.
        num_layers: depth.
        num_heads: N.
        head_size: None = the hidden size over the heads, which then divide it.
        intermediate_size: width between the two maps of the feed-forward network.
        segment_types: 2 = scores tell the same segment from another, whatever their numbers; 0 =
            they know nothing of segments.
        activation: 'gelu_tanh', 'gelu' (erf form) or 'relu'.
        dropout: on embeddings, on the vectors of distances, on what each sublayer adds and on
            the output.
        attention_dropout: on attention weights.
        inner_dropout: on the activations within the feed-forward network.
        norm_epsilon: added to the variance.
        untie_biases: whether each layer has biases of its own in place of the query.
        attention: 'bi' = both ways, or 'uni' = a position sees itself, what stands before it and
            the memory.
        memory_length: M, positions of earlier rows that are kept for the next; 0 = none.
        reuse_length: how many of a row's positions, the first ones, may become memory; 0 = all.
        clamp_length: distances beyond it are taken as it; 0 = they are not.
        scale_embeddings: whether embeddings are multiplied by sqrt(D) (Transformer-XL).
        query_stream: whether there is a vector that query rows start from (XLNet).
        pooler: whether there is a pooled output: tanh of an affine map of one position.
        pooled_position: which: 'last' = the last real one (XLNet), or 'first'.
        initializer_range: standard deviation of the initial weights.
    """

    vocab_size: int | None = None
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    head_size: int | None = None
    intermediate_size: int = 3072
    segment_types: int = 2
    activation: str = "gelu_tanh"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    inner_dropout: float = 0.0
    norm_epsilon: float = 1e-12
    untie_biases: bool = True
    attention: str = "bi"
    memory_length: int = 0
    reuse_length: int = 0
    clamp_length: int = 0
    scale_embeddings: bool = False
    query_stream: bool = True
    pooler: bool = False
    pooled_position: str = "last"
    initializer_range: float = 0.02

    # What heads and tools ask of every encoder: the table is as wide as the states, and distances
    # have no end, so that only time and room bound a sequence.
    embedding_size = None
    max_positions = 2**16

    def __post_init__(self):
        positive = ["hidden_size", "num_layers", "num_heads", "intermediate_size"]
        optional = ["vocab_size", "head_size"]
        for field in positive + [f for f in optional if getattr(self, f) is not None]:
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: {getattr(self, field)} is less than 1")
        for field in ("memory_length", "reuse_length", "clamp_length"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field}: {getattr(self, field)} is negative")
        for field in ("dropout", "attention_dropout", "inner_dropout"):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(f"{field}: {getattr(self, field)} is not in [0, 1)")
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size: {self.hidden_size} is odd: half of it are sines, half cosines"
            )
        if self.head_size is None and self.hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads: {self.num_heads} heads do not divide hidden_size {self.hidden_size}: "
                "set head_size, or another number"
            )
        for field, choices in {
            "activation": sorted(ACTIVATIONS),
            "attention": ["bi", "uni"],
            "pooled_position": ["last", "first"],
            "segment_types": [0, 2],
        }.items():
            if getattr(self, field) not in choices:
                raise ValueError(
                    f"{field}: {getattr(self, field)!r} is not one of "
                    f"{', '.join(map(str, choices))}"
                )
        if self.reuse_length and not self.memory_length:
            raise ValueError("reuse_length: has a meaning only where memory_length is set")


class Embeddings(keras.Layer):
    """The token table, and `query_start` [D], which every query row starts from."""

    def __init__(self, vocab_size, size, *, query_stream, initializer, name, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.size = size
        self.query_stream = query_stream
        self.initializer = initializer
        self.token = Table(
            vocab_size, size, initializer=initializer, name="token_embedding", dtype=dtype
        )

    def build(self, input_shape=None):
        """Makes the variables."""
        self.token.build()
        if self.query_stream:
            self.query_start = self.add_weight((self.size,), self.initializer, name="query_start")

    def call(self, token_ids):
        """Looks up ids [B, T]: [B, T, D]."""
        return self.token(token_ids)

    def query(self, positions):
        """The first states of query rows at positions [B, P]: [B, P, D]."""
        start = ops.cast(self.query_start, self.compute_dtype)
        return ops.broadcast_to(start, (*ops.shape(positions), self.size))


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
        initializer = truncated_normal(
            config.initializer_range, Draws((seed, zlib.crc32(name.encode())))
        )
        self.embeddings = Embeddings(
            config.vocab_size,
            config.hidden_size,
            query_stream=config.query_stream,
            initializer=initializer,
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
                config.num_heads, **heads, initializer=initializer, name="biases", dtype=dtype
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
                initializer=initializer,
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
                initializer=initializer,
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
    ):
        """Encodes a batch.

        Args:
            token_ids: int [B, T].
            segment_ids: int [B, T], from 0 to 7; memory counts as segment 0. None = all 0.
            attention_mask: bool, broadcastable to [B, N, T, T], True = may attend; None = all.
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

        Returns:
            dict with `sequence_output` [B, T, D]; with `query_positions` also `query_output`
            [B, P, D]; where there is a pooler `pooled_output` [B, D] ([B, K, D] with
            `pooled_positions`); where `config.memory_length` is set `memory` [B, L, M, D], the
            last M inputs of each layer without a gradient, and `memory_mask` [B, M]. With
            `output_all` also `hidden_states`, L + 1 tensors [B, T, D] (embeddings first, the last
            one is `sequence_output`), `attentions`, L tensors [B, N, T, S], and for the query
            stream `query_states` and `query_attentions`.

        Raises:
            UserError: a shape is wrong, or something is given that the config has not.
        """
        self._check(token_ids, attention_mask, memory, permutation_mask, query_positions)
        config = self.config
        batch, length = ops.shape(token_ids)
        real = self._real(attention_mask, batch, length)
        remembered = 0 if memory is None else config.memory_length
        if memory is None:
            memory_mask = None
        elif memory_mask is None:
            memory_mask = ops.ones((batch, remembered), "bool")
        if not config.segment_types:
            segment_ids = None
        streams = self._streams(
            length, segment_ids, attention_mask, memory_mask, permutation_mask, query_positions
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
        shared = {
            "distances": dropout(distances, config.dropout, rng),
            "backward": backward,
            "key_segments": self._segments(segment_ids, remembered),
        }

        x = self.embeddings(token_ids)
        if config.scale_embeddings:
            x = x * config.hidden_size**0.5
        if query_positions is not None:
            x = ops.concatenate([x, self.embeddings.query(query_positions)], axis=1)
        x = dropout(x, config.dropout, rng)  # [B, T + P, D]
        states, attentions, new_memory = [x], [], []
        for i, block in enumerate(self.blocks):
            old = None if memory is None else memory[:, i]
            content = x if len(streams) == 1 else x[:, :length]
            if config.memory_length:
                new_memory.append(self._remember(content, old))
            options = {**shared, "memory": old, "rng": rng}
            if len(streams) == 1:
                x, weights = block(x, streams=streams, **options)
            elif i + 1 < len(self.blocks):
                x, weights = block(x, streams=streams, content=content, **options)
            else:
                # Apart, so that a graph that asks for one of them leaves the other out.
                parts = [
                    block(rows, streams=[stream], content=content, **options)
                    for rows, stream in zip((content, x[:, length:]), streams, strict=True)
                ]
                x = ops.concatenate([part[0] for part in parts], axis=1)
                weights = tuple(part[1][0] for part in parts)
            states.append(x)
            attentions.append(weights)
        if len(streams) == 1:
            outputs = {"sequence_output": dropout(x, config.dropout, rng)}
        else:
            outputs = {
                name: dropout(part[0], config.dropout, rng)
                for name, part in zip(("sequence_output", "query_output"), parts, strict=True)
            }
        if self.pooler is not None:
            outputs["pooled_output"] = self._pool(
                outputs["sequence_output"], real, pooled_positions
            )
        if config.memory_length:
            outputs["memory"] = ops.stack(new_memory, axis=1)
            outputs["memory_mask"] = self._remember(
                ops.ones((batch, length), "bool") if real is None else real, memory_mask
            )
        if output_all:
            states[-1] = ops.concatenate(
                [outputs[k] for k in ("sequence_output", "query_output") if k in outputs], axis=1
            )
            outputs["hidden_states"] = tuple(state[:, :length] for state in states)
            outputs["attentions"] = tuple(weights[0] for weights in attentions)
            if len(streams) > 1:
                outputs["query_states"] = tuple(state[:, length:] for state in states)
                outputs["query_attentions"] = tuple(weights[1] for weights in attentions)
        return outputs

    def _streams(self, length, segment_ids, mask, memory_mask, permutation_mask, query_positions):
        """The content stream, and the query stream where there are positions for it."""
        remembered = 0 if memory_mask is None else self.config.memory_length

        def keys(mask):
            if memory_mask is None:
                return mask
            return masks.after_memory(mask, memory_mask, length)

        causal = None
        if self.config.attention == "uni":
            causal = masks.causal(length, remembered + length)
        seen = None if permutation_mask is None else masks.permutation(permutation_mask)
        content = Stream(
            length,
            masks.combine(keys(masks.combine(mask, seen)), causal),
            self._segments(segment_ids),
        )
        if query_positions is None:
            return [content]
        allowed = ops.cast(permutation_mask, "bool")[:, None]
        query_mask = masks.combine(
            keys(
                masks.combine(
                    masks.rows(mask, query_positions), masks.rows(allowed, query_positions)
                )
            ),
            masks.rows(causal, query_positions),
        )
        query_positions = ops.cast(query_positions, "int32")
        if segment_ids is not None:
            segment_ids = ops.take_along_axis(segment_ids, query_positions, axis=1)
        query = Stream(
            ops.shape(query_positions)[1],
            query_mask,
            self._segments(segment_ids),
            length - query_positions,
        )
        return [content, query]

    def _segments(self, ids, memory=0):
        """One-hot vectors of ids [B, T], with those of a memory before them; None stays None."""
        if ids is None:
            return None
        ids = ops.pad(ids, [[0, 0], [memory, 0]]) if memory else ids
        return ops.one_hot(ids, SEGMENTS, dtype=self.compute_dtype)

    def _real(self, attention_mask, batch, length):
        """Which positions somebody may attend to, and so are no padding: bool [B, T], or None."""
        if attention_mask is None:
            return None
        return ops.broadcast_to(ops.any(attention_mask, axis=(1, 2)), (batch, length))

    def _remember(self, row, old):
        """The last M of what was remembered and of the row's part that is reused."""
        size = self.config.memory_length
        row = row[:, : self.config.reuse_length or None]
        if old is None:
            old = ops.zeros((ops.shape(row)[0], size, *row.shape[2:]), row.dtype)
        joined = ops.concatenate([ops.cast(old, row.dtype), row], axis=1)
        return ops.stop_gradient(joined[:, -size:])

    def _pool(self, x, real, positions):
        if positions is not None:
            pooled = gather.each(x, positions)
        elif self.config.pooled_position == "first":
            pooled = x[:, 0]
        elif real is None:
            pooled = x[:, -1]
        else:
            places = ops.arange(ops.shape(x)[1])
            last = ops.max(ops.where(real, places, 0), axis=1)  # [B]
            pooled = gather.positions(x, last[:, None])
        return ops.tanh(self.pooler(pooled))

    def _check(self, token_ids, attention_mask, memory, permutation_mask, query_positions):
        config = self.config
        check_ranks(token_ids, attention_mask, "[B, N, T, T]")
        if memory is not None:
            if not config.memory_length:
                raise UserError("memory: given, and encoder.memory_length is 0: set it")
            expected = (config.num_layers, config.memory_length, config.hidden_size)
            if tuple(memory.shape[1:]) != expected:
                raise UserError(
                    f"memory: expected [B, {', '.join(map(str, expected))}], got shape "
                    f"{tuple(memory.shape)}"
                )
        if query_positions is not None:
            if not config.query_stream:
                raise UserError("query_positions: given, and encoder.query_stream is false: set it")
            if permutation_mask is None:
                raise UserError(
                    "query_positions: given without permutation_mask, so that each query would see "
                    "its own token: give both"
                )
