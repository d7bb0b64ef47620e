"""The All-tokens MLM of ELECTRA's paper: predicts the original token at every position.

The encoder may copy its input: at each position, the token of the input has the weight c and the
masked-LM softmax the weight 1 - c (Clark et al. 2020, section 3.5).
`official.modeling.objectives.generator` replaces the tokens.

Shapes: B batch, T length, D hidden, V vocabulary, R = B * T rows.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers.kernels import cross_entropy
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, masked_lm
from official.modeling.types import Batch, Encoded, Tensor


class Objective(masked_lm.Objective):
    """The masked-LM head on all positions, and a score for copying each token."""

    def __init__(self, config, encoder_config, *, name="all_tokens_lm", seed=0, dtype=None):
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        self.copy = Linear(
            encoder_config.hidden_size,
            1,
            initializer=self.initializer,
            name="copy",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        super().build(input_shape)
        self.copy.build()

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """See `base.Objective`."""
        return {self.name: ops.sum(self._weights(batch))}

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; the metric is the mean loss of the replaced tokens alone."""
        hidden = encoded["sequence_output"]  # [B, T, D]
        rows = ops.reshape(hidden, (-1, self.encoder_config.hidden_size))
        targets = ops.reshape(batch["original_ids"], (-1,))  # [R]
        losses, _, _ = cross_entropy(self.logits(rows, encoder), targets)
        written = -ops.reshape(losses, ops.shape(batch["original_ids"]))  # [B, T], log p
        copy = self.as_loss(self.copy(hidden))[..., 0]  # [B, T]
        kept, fresh = -ops.softplus(-copy), -ops.softplus(copy)  # log c, log (1 - c)
        chance = ops.where(batch["replaced"], fresh + written, ops.logaddexp(kept, fresh + written))
        weights = self._weights(batch)
        replaced = weights * self.as_loss(batch["replaced"])
        return base.Terms(
            losses={self.name: -ops.sum(chance * weights)},
            metrics={f"{self.name}_replaced": (-ops.sum(chance * replaced), ops.sum(replaced))},
        )

    def _weights(self, batch: Batch) -> Tensor:
        """[B, T]."""
        return self.as_loss(batch["padding_mask"]) * self.example_weights(batch)[:, None]
