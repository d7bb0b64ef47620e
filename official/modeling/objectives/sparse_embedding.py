"""Sparse vectors of texts that are compared: a weight for each word of the vocabulary (SPLADE).

`official.config.sparse_embedding` has the papers. Scores of the vocabulary are computed for `CHUNK`
tokens of each row at a time, and again for their gradient: an array [R, T, V] is never in memory.
The regularizers and the contrastive loss use the rows of all replicas; see `sentence_embedding`.

Shapes: B examples, C texts of an example, R rows of the encoder, T length, K tokens of a chunk, D
hidden, E embedding, V vocabulary.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.parts import EncoderConfig
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.embeddings import Table
from official.modeling.layers.kernels import (
    accurate,
    context,
    sum_rows,
    times_transposed,
    transposed_times,
    with_gradient,
)
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, masked_lm
from official.modeling.objectives.sentence_embedding import margin_errors, wrong_texts
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError

CHUNK = 16
_QUERY = ("query_ids", "query_words")  # fields of the queries that a table weighs, [B, T]


class Objective(masked_lm.MaskedLM):
    """The head of masked LM at all tokens, whose scores are pooled, and losses of the vectors.

    The variables are those of `MaskedLM`. With a table of queries there is `query_weights` [V].
    """

    config: SparseEmbeddingConfig

    def __init__(
        self, config: SparseEmbeddingConfig, encoder_config: EncoderConfig, **options: Any
    ):
        super().__init__(config, encoder_config, **options)
        self.query_weights: Any = None

    @override
    def attach(self, encoder: Encoder) -> None:
        super().attach(encoder)
        self._token_table: Any
        # Bypasses Keras' tracking, because the table belongs to the encoder.
        object.__setattr__(self, "_token_table", encoder.token_table)

    @override
    def build(self, input_shape=None):
        super().build(input_shape)
        if self.config.has_table:
            size = self.encoder_config.known_vocab_size
            self.query_weights = self.add_weight(
                (size,), "ones", name="query_weights", autocast=False
            )

    @property
    @override
    def compares_rows(self) -> bool:
        return self.config.compares_rows

    @property
    def _regularizers(self) -> dict[str, float]:
        """The terms of FLOPS, and their factors."""
        config, name = self.config, self.name
        factors = {"document": config.document_flops, "query": config.query_flops or 0.0}
        return {f"{name}_{kind}_flops": each for kind, each in factors.items() if each}

    @property
    @override
    def term_weights(self) -> dict[str, float]:
        return super().term_weights | self._regularizers

    @override
    def ramps(self, step: Tensor) -> dict[str, Tensor]:
        config = self.config
        if config.ramp == "none":
            return {}
        steps = config.ramp_steps or max(1, self.total_steps // 3)
        share = ops.minimum(ops.cast(step, "float32") / steps, 1.0)
        return dict.fromkeys(
            self._regularizers, ops.square(share) if config.ramp == "quadratic" else share
        )

    @override
    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Gives every text its own row; queries that a table weighs get none."""
        if self.config.has_table and len(batch["token_ids"].shape) == 3:
            if batch["token_ids"].shape[1] > 1:
                queries = batch["token_ids"][:, 0], batch["text_mask"][:, 0]
                batch = {**base.without_first(batch), **dict(zip(_QUERY, queries, strict=True))}
        return base.sequences_apart(batch)

    @override
    def positions_read(self, batch: Batch) -> None:  # type: ignore[override]  # all positions
        return None

    @override
    def vectors(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """See `base.Objective`: [B, C, V]."""
        rows = self.of_rows(encoded["sequence_output"], batch["padding_mask"])
        vectors = ops.reshape(rows, (*ops.shape(batch["example_rows"]), rows.shape[-1]))
        if _QUERY[0] not in batch:
            return vectors
        queries = self.of_queries(*(batch[name] for name in _QUERY))
        return ops.concatenate([queries[:, None], vectors], axis=1)

    def of_rows(self, states: Tensor, real: Tensor) -> Tensor:
        """Returns the vectors of rows that the encoder has read: [R, V]; see `vectors_of`."""
        return vectors_of(self, self._token_table, states, real)

    def of_queries(self, token_ids: Tensor, words: Tensor) -> Tensor:
        """Returns the vectors of queries by the table: [B, V], in the dtype of losses.

        Args:
            token_ids: int [B, T].
            words: bool [B, T], False for special tokens and padding.
        """
        size, rows = self.query_weights.shape[0], ops.shape(token_ids)[0]
        starts = ops.arange(rows, dtype="int32")[:, None] * size
        places = ops.reshape(ops.cast(token_ids, "int32") + starts, (-1,))
        counts = ops.segment_sum(
            ops.reshape(ops.cast(words, "int32"), (-1,)), places, num_segments=rows * size
        )
        present = ops.reshape(counts, (rows, size)) > 0
        return ops.where(present, self.as_loss(self.query_weights), 0)

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        total = ops.sum(self.example_weights(batch))
        return dict.fromkeys((self.name, *self._regularizers), total)

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        return self.terms_of_vectors(
            self.vectors(batch, encoded, rng), batch, training=rng is not None
        )

    @override
    def terms_of_vectors(self, vectors: Tensor, batch: Batch, training: bool = True) -> base.Terms:
        """See `base.Objective`; the metrics are the hits, and the words of a vector that are not 0.

        Raises:
            UserError: in training, examples do not have the number of texts that the loss needs.
        """
        config, weights = self.config, self.example_weights(batch)
        if wrong := wrong_texts(config.loss, vectors.shape[1], batch):
            if training:
                raise UserError(f"{self.name}: loss: {config.loss}: {wrong}")
            return base.Terms(losses={}, metrics={})
        metrics, total = {}, ops.sum(weights)
        if config.loss == "margin_mse":
            losses = margin_errors(self, vectors, batch)
        else:
            every, _ = self.all_rows(vectors)  # [N, C, V]
            columns = [
                config.scale * times_transposed(vectors[:, 0], every[:, column])  # [B, N]
                for column in range(1, vectors.shape[1])
            ]
            losses, hits = base.rank_losses(self, columns, weights)
            hits = ops.sum(ops.cast(hits, weights.dtype) * weights)
            metrics[f"{self.name}_accuracy"] = hits, total
        terms = {self.name: ops.sum(losses * weights)}
        for kind, columns in (("query", vectors[:, :1]), ("document", vectors[:, 1:])):
            if (name := f"{self.name}_{kind}_flops") in self._regularizers:
                terms[name] = self._flops(columns, weights) * total
            active = ops.sum(ops.cast(columns != 0, weights.dtype), axis=-1)  # [B, texts]
            active = ops.sum(ops.mean(active, axis=1) * weights)
            metrics[f"{self.name}_{kind}_words"] = active, total
        return base.Terms(losses=terms, metrics=metrics)

    def _flops(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """Returns the regularizer of vectors [B, texts, V] over the rows of all replicas: scalar.

        Examples of weight 0 are left out.
        """
        real = ops.cast(weights > 0, vectors.dtype)[:, None]  # [B, 1]
        kept = real
        if self.config.flops_threshold:
            active = ops.sum(ops.cast(vectors != 0, "int32"), axis=-1)
            kept = real * ops.cast(active > self.config.flops_threshold, vectors.dtype)
        sums = ops.sum(vectors * kept[..., None], axis=(0, 1))  # [V]
        count = ops.sum(real) * vectors.shape[1]
        here = ops.concatenate([sums, ops.reshape(count, (1,))])[None]
        every = ops.sum(self.all_rows(here)[0], axis=0)  # [V + 1]
        return ops.sum(ops.square(every[:-1] / ops.maximum(every[-1], 1.0)))

    @override
    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `vectors` [B, C, V]; with `is_query`, bool [B], texts that may be queries."""
        vectors = self.vectors(batch, encoded)
        if self.config.has_table and "is_query" in batch:
            queries = self.of_queries(batch["token_ids"], batch["text_mask"])
            vectors = ops.where(batch["is_query"][:, None, None], queries[:, None], vectors)
        return {"vectors": vectors}


def vectors_of(
    head: masked_lm.MaskedLM, token_table: Table, states: Tensor, real: Tensor
) -> Tensor:
    """Returns the vectors of rows that the encoder has read: [R, V], in the dtype of losses.

    Args:
        head: an `Objective`, or a masked LM, whose vectors are those of the default settings.
        token_table: the token table of the encoder.
        states: the states of the encoder, [R, T, D].
        real: bool [R, T], False for padding.
    """
    config = head.config
    if not isinstance(config, SparseEmbeddingConfig):
        config = SparseEmbeddingConfig()
    if head.output_projection is None:
        states = head.hidden(states)
        table = token_table.rows(states.dtype)
    else:
        table = ops.transpose(ops.cast(head.output_projection.kernel, states.dtype))
    bias = head.output_bias
    if bias is None:
        bias = ops.zeros((table.shape[0],), accurate(states.dtype))
    sums = config.pooling == "sum"
    real = ops.cast(real, "bool")
    pooled = _pooled(states, table, bias, real, sums=sums, logarithms=config.logarithms)
    pooled = head.as_loss(pooled)
    return pooled if sums else _weights(pooled, config.logarithms)


def _weights(x: Tensor, logarithms: int) -> Tensor:
    """Returns the weights of scores that are at least 0."""
    for _ in range(logarithms):
        x = ops.log1p(x)
    return x


def _slopes(scores: Tensor, logarithms: int) -> Tensor:
    """Returns the derivative of the weights of scores, which are 0 below 0."""
    x = ops.relu(scores)
    slopes = ops.cast(scores > 0, x.dtype)
    for _ in range(logarithms):
        slopes, x = slopes / (1 + x), ops.log1p(x)
    return slopes


@with_gradient
def _pooled(
    hidden: Tensor, table: Tensor, bias: Tensor, real: Tensor, *, sums: bool, logarithms: int
):
    """Pools the scores of the vocabulary over the tokens of each row: [R, V].

    Args:
        hidden: the inputs of the output layer, [R, T, E].
        table: its weights, [V, E].
        bias: [V], in whose dtype scores are pooled.
        real: bool [R, T], False for padding, whose scores count as 0.
        sums: whether weights are summed; otherwise the largest score above 0 is taken.
        logarithms: as in the config, for the sum.
    """
    rows, length, size = ops.shape(hidden)
    words, dtype = table.shape[0], bias.dtype
    count = (length + CHUNK - 1) // CHUNK
    width = (length + count - 1) // count  # K
    more = count * width - length
    chunks = ops.reshape(
        ops.concatenate([hidden, ops.zeros((rows, more, size), hidden.dtype)], axis=1),
        (rows, count, width, size),
    )
    shown = ops.reshape(
        ops.concatenate([real, ops.zeros((rows, more), "bool")], axis=1), (rows, count, width)
    )
    places = ops.arange(width, dtype="int32")
    keeps = context().gradients and not sums

    def inputs(number):
        return ops.reshape(ops.take(chunks, number, axis=1), (-1, size))  # [R K, E]

    def scores(number):
        x = ops.cast(times_transposed(inputs(number), table), dtype) + bias
        x = ops.reshape(x, (rows, width, words))
        return ops.where(ops.expand_dims(ops.take(shown, number, axis=1), -1), x, 0)

    def pool(number, best, *place):
        x = scores(number)
        if sums:
            best = best + ops.sum(_weights(ops.relu(x), logarithms), axis=1)
            return _after(number, best), best
        if keeps:
            at = ops.cast(ops.argmax(x, axis=1), "int32") + number * width
            place = (ops.where(ops.max(x, axis=1) > best, at, place[0]),)
        best = ops.maximum(best, ops.max(x, axis=1))
        return _after(number, best), best, *place

    first = ops.zeros((), "int32")
    start = [ops.zeros((rows, words), dtype)]
    start += [ops.full((rows, words), -1, "int32")] if keeps else []
    _, best, *place = ops.while_loop(lambda number, *_: number < count, pool, (first, *start))

    def backward(upstream):
        def back(number, of_hidden, of_table, of_bias):
            if sums:
                x = upstream[:, None] * _slopes(scores(number), logarithms)
            else:
                here = (places + number * width)[None, :, None]
                x = ops.where(place[0][:, None] == here, upstream[:, None], 0)
            of_bias = of_bias + sum_rows(ops.reshape(x, (-1, words)))
            x = ops.cast(ops.reshape(x, (-1, words)), table.dtype)
            of_table = of_table + ops.cast(transposed_times(x, inputs(number)), dtype)
            part = ops.reshape(ops.matmul(x, table), (rows, 1, width, size))
            of_hidden = ops.slice_update(of_hidden, (0, number, 0, 0), part)
            return _after(number, of_table), of_hidden, of_table, of_bias

        zeros = ops.zeros_like(chunks), ops.zeros((words, size), dtype), ops.zeros_like(bias)
        _, of_hidden, of_table, of_bias = ops.while_loop(
            lambda number, *_: number < count, back, (first, *zeros)
        )
        of_hidden = ops.reshape(of_hidden, (rows, count * width, size))[:, :length]
        return of_hidden, ops.cast(of_table, table.dtype), of_bias, None

    return best, backward


def _after(number: Tensor, done: Tensor) -> Tensor:
    """Returns the next number of a chunk, when a tensor [.., ..] is there.

    Otherwise TensorFlow would compute the scores of several chunks at a time.
    """
    never = done[0, 0] < -float("inf")
    return number + 1 + ops.cast(never, "int32")
