"""Classification: one of several labels for each example, from the pooled output.

Shapes: B batch, D hidden, C classes.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError


class Objective(heads.Head):
    """Dropout and an affine map to the classes."""

    def __init__(self, config, encoder_config, *, name=None, seed=0, dtype=None):
        name = name or config.task or "classification"
        num_labels = config.num_labels or len(config.labels)
        super().__init__(config, encoder_config, num_labels, name=name, seed=seed, dtype=dtype)
        if not num_labels:
            raise UserError(f"{name}: neither labels nor num_labels is set")

    def logits(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the scores of the classes: [B, C]."""
        return self.outputs(encoded, rng)

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; a head of weight 0 has no term where there are no labels."""
        if self.lacks("label", batch):
            return base.Terms(losses={}, metrics={})
        terms = base.class_terms(
            self.name,
            self.logits(encoded, rng),
            batch[self.config.field("label")],
            self.example_weights(batch),
        )
        return self.with_penalty(terms, batch)

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `probabilities` [B, C]; with several tasks the name of the task comes first."""
        return {self.config.field("probabilities"): ops.softmax(self.logits(encoded))}
