"""A number for each example, from the pooled output.

Shapes: B batch, D hidden.
"""

import dataclasses

from keras import ops

from official.layers.dropout import dropout
from official.layers.linear import Linear
from official.objectives import base


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked.

    Attributes:
        dropout: on the pooled output.
        pooling: what that is: 'pooled', or for an encoder without a pooler 'first'; see
            `base.Objective.pool`.
        weight: factor of this loss in the sum.
    """

    dropout: float = 0.1
    pooling: str = "pooled"
    weight: float = 1.0

    def __post_init__(self):
        base.check_pooling(self.pooling)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: {self.dropout} is not in [0, 1)")


def needs(config):
    """The batch fields that the objective reads."""
    del config
    return frozenset({"score"})


class Objective(base.Objective):
    """Dropout and one affine map to the score; the loss is the squared error."""

    def __init__(self, config, encoder_config, *, name="regression", seed=0, dtype=None):
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        base.check_pooled(name, config.pooling, encoder_config)
        self.output_projection = Linear(
            encoder_config.hidden_size,
            1,
            initializer=self.initializer,
            name="output",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        """Makes the variables."""
        self.output_projection.build()

    def scores(self, encoded, rng=None):
        """The predicted numbers: [B]."""
        pooled = dropout(self.pool(encoded), self.config.dropout, rng)
        return self.as_loss(self.output_projection(pooled))[:, 0]

    def weight_sums(self, batch):
        """See `base.Objective`."""
        return {self.name: ops.sum(self.example_weights(batch))}

    def terms(self, batch, encoded, encoder, rng=None):
        """See `base.Objective`."""
        weights = self.example_weights(batch)
        errors = self.scores(encoded, rng) - self.as_loss(batch["score"])
        squared = ops.sum(ops.square(errors) * weights)
        return base.Terms(
            losses={self.name: squared},
            metrics={f"{self.name}_squared_error": (squared, ops.sum(weights))},
        )

    def predictions(self, batch, encoded, encoder):
        """Returns `score` [B]."""
        return {"score": self.scores(encoded)}
