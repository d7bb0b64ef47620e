"""Vectors of texts that are compared with each other, with the losses of sentence encoders.

The vector of a text is pooled from the states of its tokens, and may be projected.
`official.config.sentence_embedding` lists the losses and their papers. Losses that compare a row
with all rows of a batch use the rows of all replicas. Each replica computes the losses of its own
rows, so the sums of losses and gradients equal those of a single device.

Shapes: B examples, C texts of an example, N examples of all replicas, T length, D hidden, V size of
a vector.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.parts import EncoderConfig
from official.config.sentence_embedding import TARGETS, SentenceEmbeddingConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers import pooling
from official.modeling.layers.activation import POOLER_ACTIVATIONS
from official.modeling.layers.kernels import times_transposed
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError

_OF_TOKENS = ("first", "last")  # poolings that read one position
_LEAST = 1e-12  # lower limit of a squared distance, whose root has a gradient


class Objective(heads.Reader):
    """Pools vectors of texts, and computes the loss of each example from the vectors of all.

    A batch has fields [B, C, T], or already [B * C, T] with `example_rows` [B, C]. In training, an
    example of one text is read twice, with different dropout: C is then 2.
    """

    config: SentenceEmbeddingConfig

    def __init__(
        self, config: SentenceEmbeddingConfig, encoder_config: EncoderConfig, **options: Any
    ):
        super().__init__(config, encoder_config, **options)
        self.projection = None
        if config.projection is not None:
            self.projection = Linear(
                self.width * len(config.poolings),
                config.vector_size(encoder_config),
                initializer=self.initializer,
                use_bias=config.projection.bias,
                name="projection",
                dtype=self.dtype_policy,
            )
        self.classifier = None
        if config.loss == "softmax":
            if not config.labels:
                raise UserError(
                    f"{self.name}: loss: softmax: the labels are unknown: make the shards with "
                    "--embed_as=labels, and those of several tasks with the same labels"
                )
            self.classifier = Linear(
                3 * config.vector_size(encoder_config),
                len(config.labels),
                initializer=self.initializer,
                name="classifier",
                dtype=self.dtype_policy,
            )

    @override
    def build(self, input_shape=None):
        super().build(input_shape)
        for layer in (self.projection, self.classifier):
            if layer is not None:
                layer.build()

    @property
    @override
    def compares_rows(self) -> bool:
        return self.config.compares_rows

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Gives every text its own row; in training, a single text gets two rows."""
        if rng is not None and self.config.weight and len(batch["token_ids"].shape) == 3:
            batch = base.repeated(batch, 2) if batch["token_ids"].shape[1] == 1 else batch
        return base.sequences_apart(batch)

    @override
    def positions_read(self, batch: Batch) -> tuple[Tensor, ...] | None:
        if self.uses_all_layers or set(self.config.poolings) - {*_OF_TOKENS, "pooled"}:
            return None
        names = [name for name in self.config.poolings if name in _OF_TOKENS]
        return tuple(pooling.position(name, batch["padding_mask"]) for name in names)

    def pool(self, encoded: Encoded, real: Tensor | None = None) -> Tensor:
        """Returns the pooled vector of each row: [B * C, D * number of poolings].

        Args:
            encoded: the outputs of the encoder.
            real: bool [B * C, T], False for padding.
        """
        names = self.config.poolings
        if "states_read" in encoded:
            at = iter(encoded["states_read"][self.name])
            parts = [next(at)[:, 0] if n in _OF_TOKENS else encoded["pooled_output"] for n in names]
            return self.as_loss(ops.concatenate(parts, axis=-1))
        counted = pooling.words(real) if self.encoder_config.mixes_layers else None
        return pooling.pooled(
            encoded["sequence_output"], real, names, counted, encoded.get("pooled_output")
        )

    def projected(self, pooled: Tensor) -> Tensor:
        """Returns vectors after the projection, if any: [..., V], in the dtype of losses."""
        described = self.config.projection
        if self.projection is None or described is None:
            return self.as_loss(pooled)
        x = self.as_loss(self.projection(pooled))
        activation = described.activation
        return x if activation is None else POOLER_ACTIVATIONS[activation](x)

    def served(self, pooled: Tensor) -> Tensor:
        """Returns the vectors of the trained model, before they are normalized."""
        kept = self.config.kept_projection is not None
        return self.projected(pooled) if kept else self.as_loss(pooled)

    @override
    def vectors(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """See `base.Objective`: [B, C, V]."""
        return self._of_texts(self.projected(self._pooled(batch, encoded, rng)), batch)

    def _pooled(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        return self.pool(self.read_mix(encoded, rng), batch["padding_mask"])

    def _of_texts(self, vectors: Tensor, batch: Batch) -> Tensor:
        """Returns vectors of rows by example: [B, C, V]."""
        return ops.reshape(vectors, (*ops.shape(batch["example_rows"]), vectors.shape[-1]))

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return self.with_penalty_weight({self.name: ops.sum(self.example_weights(batch))})

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        return self.terms_of_vectors(
            self.vectors(batch, encoded, rng), batch, training=rng is not None
        )

    @override
    def terms_of_vectors(self, vectors: Tensor, batch: Batch, training: bool = True) -> base.Terms:
        """See `base.Objective`.

        There is no term if the weight is 0, or in an evaluation of examples without the texts that
        the loss needs; the metrics of the task are then computed from the vectors.

        Raises:
            UserError: in training, examples do not have the number of texts that the loss needs.
        """
        config, weights = self.config, self.example_weights(batch)
        count = vectors.shape[1]
        if not config.weight:
            return base.Terms(losses={}, metrics={})
        if wrong := wrong_texts(config.loss, count, batch):
            if training:
                raise UserError(f"{self.name}: loss: {config.loss}: {wrong}")
            return base.Terms(losses={}, metrics={})
        metrics, losses = {}, 0.0
        for size in sorted(config.sizes) or [vectors.shape[2]]:
            loss, hits = self._compared(vectors[..., :size], weights, batch)  # [B] each
            losses += loss
        if hits is not None:  # metrics use the full vector
            hits = ops.sum(ops.cast(hits, weights.dtype) * weights)
            metrics[f"{self.name}_accuracy"] = hits, ops.sum(weights)
        terms = base.Terms(losses={self.name: ops.sum(losses * weights)}, metrics=metrics)
        return self.with_penalty(terms, batch)

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `vectors` [B, C, V], as the trained model serves them."""
        return {"vectors": self._of_texts(self.matched_outputs(batch, encoded, encoder), batch)}

    @override
    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: the vectors of the trained model, [B * C, V]."""
        del encoder, positions
        vectors = self.served(self._pooled(batch, encoded, rng))
        return pooling.normalized(vectors) if self.config.normalize else vectors

    @override
    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        """See `base.Objective`; the texts of an example share its weight: [B * C]."""
        del positions
        rows = batch["example_rows"]  # [B, C]
        weights = ops.expand_dims(self.example_weights(batch), 1) / rows.shape[1]
        return ops.reshape(ops.broadcast_to(weights, ops.shape(rows)), (-1,))

    def _compared(self, x: Tensor, weights: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Returns the loss of each example [B], and whether it is a hit, bool [B] or None.

        Args:
            x: vectors [B, C, V].
            weights: the weights of the examples, [B].
            batch: the batch, for its scores or labels.
        """
        config = self.config
        if config.loss == "multiple_negatives":
            return self._ranked(pooling.normalized(x), weights)
        if config.loss in ("triplet", "margin_mse", "softmax"):
            return self._of_served(pooling.normalized(x) if config.normalize else x, batch)
        scores = self.as_loss(batch["score"])
        if config.loss == "angle":
            return self._ordered(_angles(x[:, 0], x[:, 1]), scores, weights), None
        one, other = ops.unstack(pooling.normalized(x), 2, axis=1)
        cosines = ops.sum(one * other, axis=-1)  # [B]
        if config.loss == "cosent":
            return self._ordered(cosines, scores, weights), None
        if config.loss == "cosine":
            return ops.square(cosines - scores), None
        away = 1 - cosines
        apart = ops.square(ops.relu(config.margin - away))
        return (scores * ops.square(away) + (1 - scores) * apart) / 2, None

    def _of_served(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Returns the losses of vectors that are not normalized; see `_compared`."""
        if self.config.loss == "triplet":
            away = _distance(x[:, :1], x[:, 1:])  # [B, C - 1]
            return ops.mean(ops.relu(away[:, :1] - away[:, 1:] + self.config.margin), axis=1), None
        if self.config.loss == "margin_mse":
            return margin_errors(self, x, batch), None
        assert self.classifier is not None
        one, other = ops.unstack(x, 2, axis=1)
        joined = ops.concatenate([one, other, ops.abs(one - other)], axis=-1)  # [B, 3 V]
        logits = self.as_loss(self.classifier(joined))
        return base.row_losses(logits, ops.cast(batch["label"], "int32"))

    def _ranked(self, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the cross-entropy of each query's document among all, and whether it ranks first.

        See `base.rank_losses`.

        Args:
            x: normalized vectors [B, C, V].
            weights: the weights of the examples, [B].
        """
        every, _ = self.all_rows(x)  # [N, C, V]

        def scores(one, other):
            return self.config.scale * times_transposed(x[:, one], every[:, other])  # [B, N]

        columns = [scores(0, column) for column in range(1, x.shape[1])]
        losses, hits = base.rank_losses(self, columns, weights, self.config.hard_negative_weight)
        if self.config.symmetric:
            losses = (losses + base.rank_losses(self, [scores(1, 0)], weights)[0]) / 2
        return losses, hits

    def _ordered(self, values: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
        """Returns the loss of pairs in the wrong order, the same value for all examples: [B].

        Args:
            values: the similarities of the pairs of texts, [B].
            scores: the gold scores, which define the right order, [B].
            weights: the weights of the examples, [B].
        """
        every = [self.all_rows(each)[0] for each in (values, scores, weights)]
        values, scores, real = *every[:2], every[2] > 0  # [N] each
        lower = scores[:, None] < scores[None]  # [N, N]
        counted = ops.logical_and(lower, ops.logical_and(real[:, None], real[None]))
        gaps = self.config.scale * (values[:, None] - values[None])
        gaps = ops.reshape(ops.where(counted, gaps, self.as_loss(base.NEVER)), (-1,))
        loss = ops.logsumexp(ops.concatenate([ops.zeros((1,), gaps.dtype), gaps]))
        return ops.broadcast_to(loss, ops.shape(weights))


def margin_errors(layer: base.Objective, x: Tensor, batch: Batch) -> Tensor:
    """Returns the squared errors of the margins of two documents, by their products: [B].

    Args:
        layer: the objective.
        x: vectors of queries and of two documents each, [B, 3, V].
        batch: has the right margins, `score` [B].
    """
    margins = ops.sum(x[:, 0] * (x[:, 1] - x[:, 2]), axis=-1)  # [B]
    return ops.square(margins - layer.as_loss(batch["score"]))


def wrong_texts(loss: str, count: int, batch: Batch) -> str:
    """Returns why a loss cannot use examples of `count` texts; "" = it can."""
    if (target := TARGETS.get(loss)) is not None:
        exact, number = (3, "three") if loss == "margin_mse" else (2, "two")
        if count != exact:
            return f"takes {number} texts and a {target}, but an example has {count}"
        return "" if target in batch else f"needs a {target}, but the examples have none"
    least = 3 if loss == "triplet" else 2
    return "" if count >= least else f"takes at least {least} texts, but an example has {count}"


def _distance(x: Tensor, y: Tensor) -> Tensor:
    """Returns the Euclidean distances of vectors [..., V]."""
    return ops.sqrt(ops.maximum(ops.sum(ops.square(x - y), axis=-1), _LEAST))


def _angles(x: Tensor, y: Tensor) -> Tensor:
    """Returns the similarity of AnglE (Li and Li, 2023, section 3.3): [B].

    The halves of a vector are the real and imaginary parts of complex numbers. The similarity is
    the absolute value of the sum over both parts of the quotients x / y; y is normalized as a whole
    vector.

    Args:
        x: [B, V].
        y: [B, V].
    """
    a, b = ops.split(x, 2, axis=-1)
    c, d = ops.split(y, 2, axis=-1)
    total = ops.sum(a * c + b * d + b * c - a * d, axis=-1)
    squares = ops.sum(ops.square(x), axis=-1) * ops.sum(ops.square(y), axis=-1)
    return ops.abs(total) * ops.rsqrt(ops.maximum(squares, 1e-24))
