"""Heads that are one affine map of the pooled output: what they have alike.

Shapes: B rows that the encoder read, D hidden, O outputs.
"""

from keras import ops

from official.modeling.layers.dropout import dropout
from official.modeling.layers.linear import Linear
from official.modeling.objectives import base


class Head(base.Objective):
    """Dropout and one affine map of the pooled output; its variables are `output/...`."""

    def __init__(self, config, encoder_config, size, *, name, seed=0, dtype=None):
        """Describes the head.

        Args:
            config: has `pooling` and `dropout`.
            encoder_config: of the encoder whose output is pooled.
            size: O.
            name: first part of the variables' paths, and of the loss.
            seed: initial weights are a function of it and of the name.
            dtype: Keras dtype policy; None = the global one.

        Raises:
            UserError: the encoder has nothing to pool in that way.
        """
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        base.check_pooled(name, config.pooling, encoder_config)
        self.output_projection = Linear(
            encoder_config.hidden_size,
            size,
            initializer=self.initializer,
            name="output",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        self.output_projection.build()

    @property
    def uses_first_position_only(self):
        """See `base.Objective`."""
        pooling = self.config.pooling
        return (self.encoder_config.pooled_position if pooling == "pooled" else pooling) == "first"

    def outputs(self, encoded, rng=None):
        """What the head says of each row, in the type of losses: [B, O]."""
        pooled = dropout(self.pool(encoded), self.config.dropout, rng)
        return self.as_loss(self.output_projection(pooled))

    def weight_sums(self, batch):
        """See `base.Objective`."""
        return {self.name: ops.sum(self.example_weights(batch))}
