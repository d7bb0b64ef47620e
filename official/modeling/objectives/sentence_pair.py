"""Classifies the relation of two segments from the pooled output.

The relation is next sentence for BERT (Devlin et al. 2018, section 3.1), and sentence order for
ALBERT (Lan et al. 2019, section 3.1).

Shapes: B batch, D hidden, K parts of a row (see `terms`).
"""

from keras import ops
from typing_extensions import override

from official.config.objectives import LABELS
from official.modeling.encoders.base import Encoder
from official.modeling.layers.linear import linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor


class Objective(base.Objective):
    """Two classes from the pooled output, without dropout."""

    @override
    def build(self, input_shape=None):
        self.kernel = self.add_weight(
            (self.encoder_config.hidden_size, 2), self.initializer, name="kernel"
        )
        self.bias = self.add_weight((2,), "zeros", name="bias")

    def logits(self, encoded: Encoded) -> Tensor:
        """Returns the scores of the classes: [B, 2], or [B, K, 2] for a batch with parts."""
        return self.as_loss(linear(encoded["pooled_output"], self.kernel, self.bias))

    @override
    def positions_read(self, batch: Batch) -> tuple[Tensor, ...] | None:
        del batch
        return ()

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: ops.sum(self._weights(batch))}

    def _weights(self, batch: Batch) -> Tensor:
        """Returns the weights of the examples [B], or of the parts [B, K] of a batch with parts."""
        weights = self.example_weights(batch)
        if "part_weights" not in batch:
            return weights
        return weights[:, None] * self.as_loss(batch["part_weights"])

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; labels are [B], or [B, K] for a batch with parts."""
        return base.class_terms(
            self.name,
            ops.reshape(self.logits(encoded), (-1, 2)),
            ops.reshape(batch[LABELS[self.config.relation]], (-1,)),
            ops.reshape(self._weights(batch), (-1,)),
        )

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns the probabilities of the two classes [B, 2] or [B, K, 2]."""
        return {f"{self.name}_probabilities": ops.softmax(self.logits(encoded))}
