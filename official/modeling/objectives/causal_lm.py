"""Causal language modeling: predicts each token from the tokens before it, or after it.

With the direction `backward` the model reads reversed text, the last separator first. The text
x₁ … xₙ then has the probability Π p(xₜ | xₜ₊₁ … xₙ). For a row with two tokens of text:

              input            targets
  forward     [CLS] a b        a b [SEP]
  backward    [SEP] b a        b a [CLS]  (b after [SEP], a after b, [CLS] after a)

A row of blocks or of a stream (`next_id`) is read to its end, and the token after it is also a
target, so no target is lost between two rows. In these formats [SEP] only marks the end of
documents. Rows of other formats begin with [CLS] and end with [SEP] even within a document, and
these tokens are targets too, so a model trained on such rows may end a text anywhere.

The output is tied to the token table and has no bias (Radford et al. 2019, as released).

Shapes: B batch, T length of the input, one token less than the row with its next token, D hidden,
V vocabulary, R = B * T rows.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.modeling import masks
from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor

# Fields of a batch with a value for each token, which are cut together with the tokens.
_PER_TOKEN = ("token_ids", "segment_ids", "padding_mask", "part_ids", "positions")


class Objective(base.Objective):
    """Predicts the next token at every position by the token table; has no variables."""

    def build(self, input_shape=None):
        """Creates no variables: the output is the token table."""

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Separates inputs and targets: all tokens but the last, and all tokens but the first.

        With `next_id` the last token is the one after the row. The batch gets `causal_ids` int
        [B, T] and `causal_weights` [B, T], 0 where no token follows.
        """
        batch = with_next_token(batch)
        if self.config.direction == "backward":
            batch = reversed_rows(batch)
        inputs = {n: v[:, :-1] if n in _PER_TOKEN else v for n, v in batch.items()}
        return {
            **inputs,
            "causal_ids": batch["token_ids"][:, 1:],
            "causal_weights": self._weights(batch),
        }

    def _weights(self, batch: Batch) -> Tensor:
        """Returns the weight of the token after each token but the last: [B, T]."""
        follows = ops.cast(batch["padding_mask"], "bool")[:, 1:]
        if (parts := batch.get("part_ids")) is not None:
            follows = ops.logical_and(follows, ops.equal(parts[:, 1:], parts[:, :-1]))
        return self.as_loss(follows) * self.example_weights(batch)[:, None]

    def logits(self, hidden: Tensor, encoder: Encoder) -> Tensor:
        """Returns the scores of the vocabulary for hidden states [R, D]: [R, V]."""
        return self.as_loss(encoder.token_table.scores(hidden))

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        weights = batch.get("causal_weights")
        if weights is None:
            weights = self._weights(with_next_token(batch))
        return {self.name: ops.sum(weights)}

    @override
    def text_targets(self, batch: Batch) -> dict[str, Any]:
        """See `base.Objective`: [B, T]."""
        return {self.name: (batch["causal_ids"], batch["causal_weights"])}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        logits = self.matched_outputs(batch, encoded, encoder)
        targets = ops.reshape(batch["causal_ids"], (-1,))  # [R]
        return base.token_terms(self.name, logits, targets, self.matched_weights(batch))

    @override
    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: [R, V]."""
        del batch, positions, rng
        rows = ops.reshape(encoded["sequence_output"], (-1, self.encoder_config.hidden_size))
        return self.logits(rows, encoder)

    @override
    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        """See `base.Objective`: [R], of a batch after `prepare`."""
        del positions
        return ops.reshape(batch["causal_weights"], (-1,))


def with_next_token(batch: Batch) -> Batch:
    """Appends the token after each row (`next_id` [B], if the batch has it) to the row.

    In short rows it comes before the padding.
    """
    if (after := batch.get("next_id")) is None:
        return batch
    longer = {
        name: ops.concatenate([batch[name], batch[name][:, -1:]], axis=1)
        for name in _PER_TOKEN
        if name in batch
    }
    mask = batch["padding_mask"]  # [B, T]
    longer["padding_mask"] = ops.concatenate([ops.ones_like(mask[:, :1]), mask], axis=1)
    before = ops.concatenate([mask, ops.zeros_like(mask[:, :1])], axis=1)
    appended = ops.not_equal(longer["padding_mask"], before)
    longer["token_ids"] = ops.where(appended, after[:, None], longer["token_ids"])
    return {**batch, **longer}


def reversed_rows(batch: Batch) -> Batch:
    """Reverses the tokens of each row, or of each part of a row.

    Padding stays on the right, and positions and parts do not change.
    """
    real = ops.cast(batch["padding_mask"], "int32")  # [B, T + 1]
    length = ops.shape(real)[1]
    if (parts := batch.get("part_ids")) is None:
        positions = ops.arange(length, dtype="int32")[None, :]
        lengths = ops.sum(real, axis=1, keepdims=True)
    else:
        positions = batch["positions"]
        lengths = ops.sum(ops.cast(masks.parts(parts), "int32")[:, 0], axis=-1)
    moves = ops.where(real > 0, lengths - 1 - 2 * positions, 0)
    sources = ops.arange(length, dtype="int32")[None, :] + moves
    reversed_fields = {
        name: ops.take_along_axis(batch[name], sources, axis=1)
        for name in ("token_ids", "segment_ids")
        if name in batch
    }
    return {**batch, **reversed_fields}
