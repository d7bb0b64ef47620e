"""Replaced token detection: which tokens are not the original ones (Clark et al. 2020, ELECTRA).

What replaced them comes from `official.objectives.generator`.

Shapes: B batch, T length, D hidden.
"""

import dataclasses

from keras import ops

from official.layers.activation import ACTIVATIONS
from official.layers.linear import Linear
from official.objectives import base


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked.

    Attributes:
        tokens: 'all' real tokens, or only the 'masked' ones, of which the generator filled each
            (the paper's ELECTRA 15%, section 3.5).
        weight: factor of this loss in the sum; 50 in the paper's joint loss (appendix A).
    """

    tokens: str = "all"
    weight: float = 50.0

    def __post_init__(self):
        if self.tokens not in ("all", "masked"):
            raise ValueError(f"tokens: {self.tokens!r} is neither 'all' nor 'masked'")


def needs(config):
    """The batch fields that the objective reads."""
    fields = frozenset({"padding_mask", "replaced"})
    return fields | {"masked", "masked_weights"} if config.tokens == "masked" else fields


class Objective(base.Objective):
    """A layer with activation and one score for each token; the loss is binary cross-entropy."""

    def __init__(self, config, encoder_config, *, name="replaced_tokens", seed=0, dtype=None):
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        self.activation = ACTIVATIONS[encoder_config.activation]

        def linear(size, name):
            return Linear(
                encoder_config.hidden_size,
                size,
                initializer=self.initializer,
                name=name,
                dtype=self.dtype_policy,
            )

        self.transform = linear(encoder_config.hidden_size, "transform")
        self.output_projection = linear(1, "output")

    def build(self, input_shape=None):
        """Makes the variables."""
        self.transform.build()
        self.output_projection.build()

    def logits(self, hidden):
        """Scores of having been replaced, for hidden states [B, T, D]: [B, T]."""
        hidden = self.activation(self.transform(hidden))
        return self.as_loss(self.output_projection(hidden))[..., 0]

    def weight_sums(self, batch):
        """See `base.Objective`."""
        counted = "padding_mask" if self.config.tokens == "all" else "masked_weights"
        return {self.name: ops.sum(self._weights(batch, counted))}

    def terms(self, batch, encoded, encoder, rng=None):
        """See `base.Objective`."""
        logits = self.logits(encoded["sequence_output"])
        counted = "padding_mask" if self.config.tokens == "all" else "masked"
        weights = self._weights(batch, counted)  # [B, T]
        labels = self.as_loss(batch["replaced"])
        losses = ops.softplus(logits) - logits * labels
        hits = self.as_loss(ops.equal(logits > 0, batch["replaced"]))
        total = ops.sum(weights)
        return base.Terms(
            losses={self.name: ops.sum(losses * weights)},
            metrics={
                f"{self.name}_accuracy": (ops.sum(hits * weights), total),
                f"{self.name}_rate": (ops.sum(labels * weights), total),
                f"{self.name}_auc": base.score_histograms(logits, labels, weights),
            },
        )

    def _weights(self, batch, counted):
        """The weight of each element of a field: its shape."""
        return self.as_loss(batch[counted]) * self.example_weights(batch)[:, None]
