"""Regression: a number for each example, from the pooled output.

Shapes: B batch, D hidden.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor


class Objective(heads.Head):
    """Dropout and an affine map to the score; the loss is the squared error."""

    def __init__(self, config, encoder_config, *, name=None, seed=0, dtype=None):
        name = name or config.task or "regression"
        super().__init__(config, encoder_config, 1, name=name, seed=seed, dtype=dtype)

    def scores(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the predicted numbers: [B]."""
        return self.outputs(encoded, rng)[:, 0]

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; a head of weight 0 has no term where there are no scores."""
        if self.lacks("score", batch):
            return base.Terms(losses={}, metrics={})
        weights = self.example_weights(batch)
        errors = self.scores(encoded, rng) - self.as_loss(batch[self.config.field("score")])
        squared = ops.sum(ops.square(errors) * weights)
        terms = base.Terms(
            losses={self.name: squared},
            metrics={f"{self.name}_squared_error": (squared, ops.sum(weights))},
        )
        return self.with_penalty(terms, batch)

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `score` [B]; with several tasks the name of the task comes first."""
        return {self.config.field("score"): self.scores(encoded)}
