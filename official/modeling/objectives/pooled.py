"""The base class of heads with one affine map of the pooled output.

Shapes: B rows of the encoder, D hidden, O outputs.
"""

from keras import ops

from official.modeling.layers.kernels import dropout
from official.modeling.layers.linear import Linear
from official.modeling.objectives import base, mixed


class Head(mixed.Reader):
    """Dropout and an affine map of the pooled output, with the variables `output/...`.

    With `config.mix` the mix of all layers is pooled. `config.activation` comes before the dropout.
    """

    def __init__(self, config, encoder_config, size, *, name, seed=0, dtype=None):
        """Describes the head.

        Args:
            config: has `pooling`, `dropout` and `mix`.
            encoder_config: the config of the encoder whose output is pooled.
            size: O.
            name: name of the loss, and first part of the variables' paths.
            seed: initial weights are a function of it and of the name.
            dtype: Keras dtype policy; None = the global one.

        Raises:
            UserError: the encoder does not support this pooling.
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
        super().build(input_shape)
        self.output_projection.build()

    def positions_read(self, batch):
        """See `base.Objective`."""
        if self.uses_all_layers or self.config.pooling == "mean":
            return None
        if self.config.pooling == "pooled":
            return ()
        return (ops.zeros((ops.shape(batch["token_ids"])[0], 1), "int32"),)

    def outputs(self, encoded, rng=None):
        """Returns the outputs of each row, in the dtype of losses: [B, O]."""
        pooled = self.pool(self.read(encoded, rng))
        if getattr(self.config, "activation", None) == "relu":
            pooled = ops.relu(pooled)
        return self.as_loss(self.output_projection(dropout(pooled, self.config.dropout, rng)))

    def matched_outputs(self, batch, encoded, encoder, positions="real", rng=None):
        """See `base.Objective`: [B, O]."""
        del batch, encoder, positions
        return self.outputs(encoded, rng)

    def lacks(self, target, batch):
        """Returns whether a head that does not learn from targets has none in a batch."""
        return not self.config.weight and self.config.field(target) not in batch

    def weight_sums(self, batch):
        """See `base.Objective`."""
        return self.with_penalty_weight({self.name: ops.sum(self.example_weights(batch))})
