"""Ranks documents for a query by a score for each pair, in two ways.

`Ranking` is a cross-encoder. The score is an affine map of the pooled output of [CLS] query [SEP]
document [SEP] (Nogueira and Cho, 2019). With `output: sigmoid` predictions are the sigmoid of it;
losses and a distillation compare the scores themselves.

`KernelRanking` compares the tokens. For each token of the query, K-NRM (Xiong et al., 2017) softly
counts the tokens of the document at each level of similarity, with a Gaussian kernel for each
level. Here the vectors of tokens are the outputs of a pretrained encoder, which is not trained
(Yang et al., 2019, on ClueWeb09-B). Query and document are in one row but do not attend to each
other, so the tokens of a document are the same for every query.

In training, a query has several documents, with grades or the scores of a teacher.
`official.modeling.objectives.ranking_losses` has the losses.

Shapes: B batch, C documents of an example, N = B * C, T length, D hidden, K kernels.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.heads import KernelRankingConfig, RankingConfig, RankingLossConfig
from official.config.parts import EncoderConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads, ranking_losses
from official.modeling.types import Batch, Encoded, Tensor

_LEAST = 1e-10  # lower limit of a count before its logarithm is taken
_SCALE = 0.01  # the factor of the logarithms, as in the release of K-NRM
_FILLS = -(2.0**30)  # the score of no document; means of it are exact
_PADDING = -1  # an id that no segment has


class Ranker(base.Objective):
    """Scores documents, and computes the loss of the documents of a query.

    A batch has fields [B, C, T]. Batches of lists have `grades` [B, C], numbers, and
    `documents_mask` [B, C], which is False for documents that only fill a list. Without them, the
    first document of each example is the relevant one. If C is 1, the document is only scored and
    there is no loss. Fields [N, T] are used unchanged.
    """

    config: RankingLossConfig

    @property
    @override
    def compares_rows(self) -> bool:
        return self.config.compares_rows

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Gives every document its own row."""
        del rng
        return base.sequences_apart(batch)

    def scores(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> Tensor:
        """Returns the scores of all documents, in the dtype of losses: [N]."""
        raise NotImplementedError

    def labels(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the labels of all documents, and which of them are real: [B, C] each."""
        if "grades" in batch:
            return self.as_loss(batch["grades"]), ops.cast(batch["documents_mask"], "bool")
        rows, count = ops.shape(batch.get("example_rows", batch["token_ids"]))[:2]
        places = ops.broadcast_to(ops.arange(count), (rows, count))
        return self.as_loss(ops.equal(places, 0)), places >= 0

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        counts = ranking_losses.LOSSES[self.config.loss].counts(*self.labels(batch), self.config)
        return {self.name: ops.sum(self.example_weights(batch) * counts)}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; the accuracy is over pairs with different labels.

        A tie of scores counts half.
        """
        weights = self.example_weights(batch)  # [B]
        rows = batch.get("example_rows")
        if rows is None or rows.shape[1] == 1:
            return base.Terms(losses={}, metrics={})
        scores = ops.take(self.scores(batch, encoded, encoder, rng), rows)  # [B, C]
        labels, mask = self.labels(batch)
        losses = ranking_losses.LOSSES[self.config.loss].of(scores, labels, mask, self.config)
        pairs = self.as_loss(ranking_losses.ordered(labels, mask))  # [B, C, C]
        margins = ops.expand_dims(scores, 2) - ops.expand_dims(scores, 1)
        hits = pairs * (self.as_loss(margins > 0) + self.as_loss(margins >= 0)) / 2
        found = ops.sum(pairs, axis=(1, 2))  # [B]
        shares = ops.sum(hits, axis=(1, 2)) / ops.maximum(found, 1.0)
        counted = weights * self.as_loss(found > 0)
        return base.Terms(
            losses={self.name: self._total(losses * weights, scores, batch)},
            metrics={f"{self.name}_accuracy": (ops.sum(shares * counted), ops.sum(counted))},
        )

    def _total(self, losses: Tensor, scores: Tensor, batch: Batch) -> Tensor:
        """Returns the sum of losses [B], for the divisor of `weight_sums`.

        With `k`, the mean is over the pairs that the scores [B, C] keep, in the rows of all
        replicas. Their number is not known before there are scores.
        """
        if not self.compares_rows:
            return ops.sum(losses)
        labels, mask = self.labels(batch)
        kept = ranking_losses.kept_pairs(scores, labels, mask, self.config)
        numbers = [
            ranking_losses.LOSSES[self.config.loss].counts(labels, mask, self.config),
            ops.sum(self.as_loss(kept), axis=(1, 2)),
        ]
        weights = self.example_weights(batch)
        known, found = (ops.sum(self.all_rows(each * weights)[0]) for each in numbers)
        return ops.sum(losses) * known / ops.maximum(found, 1.0)

    @override
    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: [B, C], or [N, 1] of fields that are not of lists.

        Documents that fill a list have one very low score, of every model.
        """
        del positions
        scores = self.scores(batch, encoded, encoder, rng)
        if "example_rows" not in batch:
            return scores[:, None]
        scores = ops.take(scores, batch["example_rows"])  # [B, C]
        if "documents_mask" not in batch:
            return scores
        real = ops.cast(batch["documents_mask"], "bool")
        return ops.where(real, scores, ops.full_like(scores, _FILLS))

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `score` [N]."""
        return self.predictions_of(self.matched_outputs(batch, encoded, encoder), batch)

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns `score` [N], the sigmoid of the output if that is the `link`."""
        scores = ops.reshape(outputs, (-1,))
        return {"score": scores if self.link is None else ops.sigmoid(scores)}


class Ranking(Ranker, heads.Head):
    """Dropout and an affine map of the pooled output to the score."""

    config: RankingConfig

    def __init__(self, config: RankingConfig, encoder_config: EncoderConfig, **options: Any):
        super().__init__(config, encoder_config, **options)
        self.link = None if config.output == "logits" else config.output

    @override
    def scores(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> Tensor:
        del batch, encoder
        return self.outputs(encoded, rng)[:, 0]

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return self.with_penalty_weight(super().weight_sums(batch))

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
