"""Ranks documents for a query with a cross-encoder: one score for each pair.

The score is an affine map of the pooled output of [CLS] query [SEP] document [SEP] (Nogueira and
Cho, 2019). In training, a query has a relevant document and others. With the pairwise loss the
score of the relevant document should be higher by a margin; with the other loss each document is
classified separately.

Shapes: B batch, C documents of an example, N = B * C, T length, D hidden.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor


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

    def scores(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the scores of all documents, in the dtype of losses: [N]."""
        raise NotImplementedError

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """See `base.Objective`."""
        return {self.name: ops.sum(self.example_weights(batch))}

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; the accuracy is over pairs, and a tie counts half."""
        weights = self.example_weights(batch)  # [B]
        rows = batch.get("example_rows")
        if rows is None or rows.shape[1] == 1:
            return base.Terms(losses={}, metrics={})
        scores = ops.take(self.scores(batch, encoded, rng), rows)  # [B, C]
        count = rows.shape[1]
        margins = scores[:, :1] - scores[:, 1:]  # [B, C - 1]
        if self.config.loss == "pairwise":
            losses = ops.mean(ops.relu(self.config.margin - margins), axis=1)
        else:
            losses = ops.mean(ops.softplus(scores), axis=1) - scores[:, 0] / count
        hits = ops.mean(self.as_loss(margins > 0) + self.as_loss(margins >= 0), axis=1) / 2
        return base.Terms(
            losses={self.name: ops.sum(losses * weights)},
            metrics={f"{self.name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
        )

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `score` [N]."""
        return {"score": self.scores(batch, encoded)}


class Objective(heads.Head, Ranker):
    """Dropout and an affine map of the pooled output to the score."""

    def __init__(self, config, encoder_config, *, name="ranking", seed=0, dtype=None):
        super().__init__(config, encoder_config, 1, name=name, seed=seed, dtype=dtype)

    def scores(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """See `Ranker`."""
        del batch
        return self.outputs(encoded, rng)[:, 0]

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `Ranker`."""
        terms = super().terms(batch, encoded, encoder, rng)
        return self.with_penalty(terms, batch) if terms.losses else terms
