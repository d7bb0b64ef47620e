"""Replaced token detection: finds replaced tokens (Clark et al. 2020, ELECTRA).

`official.modeling.objectives.generator` replaces the tokens.

Shapes: B batch, T length, D hidden.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers import gather
from official.modeling.layers.activation import ACTIVATIONS
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor


class Objective(base.Objective):
    """A layer with an activation, and a score for each token; the loss is binary cross-entropy."""

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
        """Creates the variables."""
        self.transform.build()
        self.output_projection.build()

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the scores of being replaced, for hidden states [B, T, D]: [B, T]."""
        hidden = self.activation(self.transform(hidden))
        return self.as_loss(self.output_projection(hidden))[..., 0]

    @property
    def term_weights(self) -> dict[str, float]:
        """See `base.Objective`."""
        weights = {self.name: self.config.weight}
        if weight := self.config.adversarial_weight:
            weights |= {"adversarial": weight, "adversarial_baseline": weight}
        return weights

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """See `base.Objective`."""
        counted = "padding_mask" if self.config.tokens == "all" else "masked_weights"
        sums = {self.name: ops.sum(self._weights(batch, counted))}
        if self.config.adversarial_weight:
            masked = ops.sum(self._weights(batch, "masked_weights"))
            sums |= {"adversarial": masked, "adversarial_baseline": masked}
        return sums

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`."""
        logits = self.logits(encoded["sequence_output"])
        counted = "padding_mask" if self.config.tokens == "all" else "masked"
        weights = self._weights(batch, counted)  # [B, T]
        labels = self.as_loss(batch["replaced"])
        losses = ops.softplus(logits) - logits * labels
        hits = self.as_loss(ops.equal(logits > 0, batch["replaced"]))
        total = ops.sum(weights)
        adversarial = self._adversarial(batch, losses) if self.config.adversarial_weight else {}
        return base.Terms(
            losses={self.name: ops.sum(losses * weights), **adversarial},
            metrics={
                f"{self.name}_accuracy": (ops.sum(hits * weights), total),
                f"{self.name}_rate": (ops.sum(labels * weights), total),
                f"{self.name}_auc": base.score_histograms(logits, labels, weights),
            },
        )

    def _adversarial(self, batch: Batch, losses: Tensor):
        """Returns the losses of the generator and its baseline, from the losses [B, T] of tokens.

        The reward of a draw is the loss at its position. REINFORCE raises the probability of draws
        whose reward is above the baseline b = -log sigmoid(w h), where h is the hidden state of the
        generator. exp(-b) is fitted by cross-entropy to exp(-reward), the probability that the
        encoder gave to the right answer.
        """
        positions = batch["masked_positions"]
        rewards = gather.positions(ops.stop_gradient(losses)[..., None], positions)
        rewards = ops.reshape(rewards, ops.shape(positions))  # [B, P]
        guesses, weights = batch["baseline_logits"], self._weights(batch, "masked_weights")
        surprise = rewards - ops.stop_gradient(ops.softplus(-guesses))
        misfit = ops.softplus(guesses) - guesses * ops.exp(-rewards)
        return {
            "adversarial": -ops.sum(surprise * batch["sample_log_probs"] * weights),
            "adversarial_baseline": ops.sum(misfit * weights),
        }

    def _weights(self, batch: Batch, counted) -> Tensor:
        """Returns the weight of each element of the field `counted`, in its shape."""
        return self.as_loss(batch[counted]) * self.example_weights(batch)[:, None]
