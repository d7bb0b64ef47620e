"""Several labels: any number of labels for each example, from the pooled output.

Each label is a decision by itself: the loss is the binary cross-entropy of its sigmoid, averaged
over labels and examples (PyTorch's `BCEWithLogitsLoss`, as in transformers).

Shapes: B batch, C labels.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError


class Objective(heads.Head):
    """Dropout and an affine map to the labels."""

    def __init__(self, config, encoder_config, *, name="multi_label", seed=0, dtype=None):
        self.num_labels = config.num_labels or len(config.labels)
        if not self.num_labels:
            raise UserError(f"{name}: neither labels nor num_labels is set")
        super().__init__(config, encoder_config, self.num_labels, name=name, seed=seed, dtype=dtype)

    def logits(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the scores of the labels: [B, C]."""
        return self.outputs(encoded, rng)

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`."""
        logits, weights = self.logits(encoded, rng), self.example_weights(batch)
        flags = self.as_loss(batch["label_flags"])
        losses = ops.mean(ops.softplus(logits) - flags * logits, axis=-1)  # [B]
        same = ops.equal(ops.cast(logits > 0, flags.dtype), flags)
        hits = ops.mean(ops.cast(same, weights.dtype), axis=-1)
        terms = base.Terms(
            losses={self.name: ops.sum(losses * weights)},
            metrics={f"{self.name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
        )
        return self.with_penalty(terms, batch)

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `probabilities` [B, C]."""
        return {"probabilities": ops.sigmoid(self.logits(encoded))}
