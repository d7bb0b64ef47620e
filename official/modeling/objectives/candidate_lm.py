"""Scores candidates for a pronoun by a masked LM (Kocijan et al., 2019; RoBERTa, section 5.1).

In each sentence, masks replace the pronoun, one for each token of a candidate. The score of the
candidate is the mean of the log probabilities of its tokens. In training, the right candidate is
compared with others by the loss

  - log P(right) + margin_weight * max(0, log P(other) - log P(right) + margin)

With several other candidates, the margin term is the mean over them. `margin_weight` and `margin`
are alpha and beta of Kocijan et al. With the loss `softmax`, the candidates are classes, and the
right candidate is the target.

The head is that of `masked_lm`. Its variables have the same paths, so a model starts with its
pretrained head.

Shapes: B batch, C candidates of an example, N = B * C, T length, P tokens of the longest candidate,
D hidden, R = N * P rows, V vocabulary.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers.kernels import cross_entropy
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, masked_lm, ranking
from official.modeling.types import Batch, Encoded, Tensor


class Objective(ranking.Ranker, masked_lm.MaskedLM):
    """A ranking of candidates, scored by a masked LM.

    A batch has `candidate_positions` and `candidate_ids` [B, C, P], the positions of the masks of
    each candidate and the tokens that they hide; the id is -1 where a candidate has fewer tokens.
    """

    def positions_read(self, batch: Batch) -> tuple[Tensor, ...]:
        """See `base.Objective`."""
        return (batch["candidate_positions"],)

    def scores(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> Tensor:
        """See `ranking.Ranker`."""
        del rng
        (hidden,) = self.states_read(batch, encoded)  # [N, P, D]
        ids = batch["candidate_ids"]  # [N, P]
        rows = ops.reshape(hidden, (-1, self.encoder_config.hidden_size))
        targets = ops.reshape(ops.maximum(ids, 0), (-1,))  # [R]
        losses, _, _ = cross_entropy(self.logits(rows, encoder), targets)
        real = self.as_loss(ids >= 0)
        logs = -self.as_loss(ops.reshape(losses, ops.shape(ids))) * real
        return ops.sum(logs, axis=1) / ops.maximum(ops.sum(real, axis=1), 1)

    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        """See `base.Objective`; a row is a candidate, not a token."""
        return base.Objective.matched_weights(self, batch, positions)

    def pair_losses(self, scores: Tensor) -> Tensor:
        """See `ranking.Ranker`."""
        if self.config.loss != "margin":
            return super().pair_losses(scores)
        right, others = scores[:, :1], scores[:, 1:]
        margins = ops.mean(ops.relu(others - right + self.config.margin), axis=1)
        return self.config.margin_weight * margins - right[:, 0]
