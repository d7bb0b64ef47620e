"""Permutation language modeling: predicts each target from the tokens before it in a random order.

The loss is the negative sum over the targets x_z of log p(x_z | the tokens visible to z). The
predictions come from the query stream of the encoder, which has the position of a target but not
its token (Yang et al. 2019, sections 2.2 and 2.3). `permutation_mask` defines which tokens are
visible. The output is the token table and a bias.

Shapes: B batch, P targets, D hidden, V vocabulary, R = B * P rows.
"""

from keras import ops
from typing_extensions import override

from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor


class Objective(base.Objective):
    """An output tied to the token table for the query stream; its only variable is a bias."""

    @override
    def build(self, input_shape=None):
        self.output_bias = self.add_weight(
            (self.encoder_config.known_vocab_size,), "zeros", name="output_bias", autocast=False
        )

    def logits(self, hidden: Tensor, encoder: Encoder) -> Tensor:
        """Returns the scores of the vocabulary for query states [R, D]: [R, V]."""
        return encoder.token_table.scores(hidden, self.output_bias)

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: ops.sum(self._weights(batch))}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        query = encoded["query_output"]  # [B, P, D]
        logits = self.logits(ops.reshape(query, (-1, query.shape[-1])), encoder)
        targets = ops.reshape(batch["masked_ids"], (-1,))  # [R]
        weights = ops.reshape(self._weights(batch), (-1,))
        return base.token_terms(self.name, logits, targets, weights)

    def _weights(self, batch: Batch) -> Tensor:
        """[B, P]."""
        return self.as_loss(batch["masked_weights"]) * self.example_weights(batch)[:, None]
