"""Ranks documents for a query by a score for each pair, in two ways.

`Ranking` is a cross-encoder. The score is an affine map of the pooled output of [CLS] query [SEP]
document [SEP] (Nogueira and Cho, 2019).

`KernelRanking` compares the tokens. For each token of the query, K-NRM (Xiong et al., 2017) softly
counts the tokens of the document at each level of similarity, with a Gaussian kernel for each
level. Here the vectors of tokens are the outputs of a pretrained encoder, which is not trained
(Yang et al., 2019, on ClueWeb09-B). Query and document are in one row but do not attend to each
other, so the tokens of a document are the same for every query.

In training, a query has a relevant document and others. The pairwise loss requires a margin between
the score of the relevant document and the others; the pointwise loss classifies each document
separately; the softmax loss treats the documents as classes, with the relevant document as the
target (MT-DNN; Liu et al., 2019, section 3.1).

Shapes: B batch, C documents of an example, N = B * C, T length, D hidden, K kernels.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.heads import KernelRankingConfig
from official.config.parts import EncoderConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor

_LEAST = 1e-10  # lower limit of a count before its logarithm is taken
_SCALE = 0.01  # the factor of the logarithms, as in the release of K-NRM
_PADDING = -1  # an id that no segment has


class Ranker(base.Objective):
    """Scores documents, and computes the loss of a relevant document and others.

    A batch has fields [B, C, T]. If C is 2 or more, the first document of each example is the
    relevant one. If C is 1, the document is only scored and there is no loss. Fields [N, T] are
    used unchanged.
    """

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Gives every document its own row."""
        del rng
        return base.sequences_apart(batch)

    def scores(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> Tensor:
        """Returns the scores of all documents, in the dtype of losses: [N]."""
        raise NotImplementedError

    def pair_losses(self, scores: Tensor) -> Tensor:
        """Returns the loss of each example; its first document is the relevant one: [B].

        Args:
            scores: [B, C].
        """
        if self.config.loss == "pairwise":
            margins = scores[:, :1] - scores[:, 1:]  # [B, C - 1]
            return ops.mean(ops.relu(self.config.margin - margins), axis=1)
        if self.config.loss == "softmax":
            first = ops.zeros(ops.shape(scores)[:1], "int32")
            return ops.sparse_categorical_crossentropy(first, scores, from_logits=True)
        return ops.mean(ops.softplus(scores), axis=1) - scores[:, 0] / scores.shape[1]

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: ops.sum(self.example_weights(batch))}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; the accuracy is over pairs, and a tie counts half."""
        weights = self.example_weights(batch)  # [B]
        rows = batch.get("example_rows")
        if rows is None or rows.shape[1] == 1:
            return base.Terms(losses={}, metrics={})
        scores = ops.take(self.scores(batch, encoded, encoder, rng), rows)  # [B, C]
        margins = scores[:, :1] - scores[:, 1:]  # [B, C - 1]
        hits = ops.mean(self.as_loss(margins > 0) + self.as_loss(margins >= 0), axis=1) / 2
        return base.Terms(
            losses={self.name: ops.sum(self.pair_losses(scores) * weights)},
            metrics={f"{self.name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
        )

    @override
    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: [N, 1]."""
        del positions
        return self.scores(batch, encoded, encoder, rng)[:, None]

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `score` [N]."""
        return self.predictions_of(self.matched_outputs(batch, encoded, encoder), batch)

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns `score` [N]."""
        return {"score": outputs[:, 0]}


class Ranking(heads.Head, Ranker):
    """Dropout and an affine map of the pooled output to the score."""

    @override
    def scores(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> Tensor:
        del batch, encoder
        return self.outputs(encoded, rng)[:, 0]

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        terms = super().terms(batch, encoded, encoder, rng)
        return self.with_penalty(terms, batch) if terms.losses else terms


class KernelRanking(Ranker):
    """Kernels over the cosines of all pairs of tokens, and an affine map to the score."""

    config: KernelRankingConfig

    def __init__(self, config: KernelRankingConfig, encoder_config: EncoderConfig, **options: Any):
        super().__init__(config, encoder_config, **options)
        self.output_projection = Linear(
            config.kernels, 1, initializer=self.initializer, name="output", dtype=self.dtype_policy
        )

    @override
    def build(self, input_shape=None):
        self.output_projection.build()

    @property
    @override
    def encoder_frozen(self) -> bool:
        return True

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Makes the two texts of each row separate parts, which do not attend to each other."""
        batch = super().prepare(batch, rng)
        if "part_ids" in batch:
            return batch
        segments = batch["segment_ids"]  # [N, T]
        parts = ops.where(ops.cast(batch["padding_mask"], "bool"), segments, _PADDING)
        second = ops.equal(parts, 1)
        columns = ops.arange(ops.shape(segments)[1], dtype=segments.dtype)
        start = ops.cast(ops.argmax(ops.cast(second, "int32"), axis=1), segments.dtype)
        return {
            **batch,
            "part_ids": parts,
            "positions": ops.where(second, columns - ops.expand_dims(start, 1), columns),
            "segment_ids": ops.where(second, 0, segments),
        }

    def features(self, batch: Batch, encoded: Encoded) -> Tensor:
        """Returns the sums of the log soft counts over the tokens of the query: [N, K]."""
        states = self.as_loss(ops.stop_gradient(encoded["sequence_output"]))  # [N, T, D]
        lengths = ops.sqrt(ops.sum(ops.square(states), axis=-1, keepdims=True))
        states = states / ops.maximum(lengths, 1e-12)
        cosines = ops.matmul(states, ops.transpose(states, (0, 2, 1)))  # [N, T, T]
        text = ops.cast(batch["text_mask"], "bool")
        query = self.as_loss(ops.logical_and(text, ops.equal(batch["part_ids"], 0)))  # [N, T]
        document = self.as_loss(ops.logical_and(text, ops.equal(batch["part_ids"], 1)))
        features = []
        for mean, width in self.config.means_and_widths:
            near = ops.exp(-ops.square(cosines - mean) / (2 * width**2))
            counts = ops.sum(near * ops.expand_dims(document, 1), axis=-1)  # [N, T]
            logarithms = ops.log(ops.maximum(counts, _LEAST)) * query
            features.append(ops.sum(logarithms, axis=-1))  # [N]
        return _SCALE * ops.stack(features, axis=-1)

    @override
    def scores(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> Tensor:
        del encoder, rng
        return self.as_loss(self.output_projection(self.features(batch, encoded)))[:, 0]
