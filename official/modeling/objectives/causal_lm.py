"""Causal language modelling: each token from those before it, or from those after it.

From right to left the model reads the text turned round, the closing separator first: x₁ … xₙ has
the probability Π p(xₜ | xₜ₊₁ … xₙ) then. One row of two tokens of text, and what is made of it:

              reads            is asked for
  forward     [CLS] a b        a b [SEP]
  backward    [SEP] b a        b a [CLS]  (b after [SEP], a after b, [CLS] after a)

A row of blocks or of a stream (`next_id`) is read to its end, and asked for the token after it too:
nothing is lost between the row and the one that goes on from it. There [SEP] stands where documents
end and nowhere else. Rows of the other formats begin with [CLS] and end with [SEP] whether or not a
document does, and they are asked for too: a model that learns from these rows ends a text anywhere.

The output is tied to the token table and has no bias (Radford et al. 2019, as released).

Shapes: B batch, T length of what is read, one token less than the row with what follows it, D
hidden, V vocabulary, R = B * T rows.
"""

from keras import ops

from official.modeling import masks
from official.modeling.objectives import base
from official.utils.errors import UserError

# Fields of a batch with something for each token, which are cut with the tokens.
_PER_TOKEN = ("token_ids", "segment_ids", "padding_mask", "part_ids", "positions")


class Objective(base.Objective):
    """Scores of the whole vocabulary at every position; no variables of its own."""

    def __init__(self, config, encoder_config, *, name="causal_lm", seed=0, dtype=None):
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        try:
            config.check_encoder(encoder_config)
        except ValueError as error:
            raise UserError(f"objectives: causal_lm: {error}") from None

    def build(self, input_shape=None):
        """Makes no variables: the output is the token table."""

    def prepare(self, batch, rng=None):
        """Leaves out the last token of what is read, and the first of what is asked for.

        The last one is the one after the row, where there is `next_id`. The batch gets
        `causal_ids` int [B, T] and `causal_weights` [B, T], 0 where nothing follows.
        """
        batch = continued(batch)
        if self.config.direction == "backward":
            batch = turned_round(batch)
        read = {n: v[:, :-1] if n in _PER_TOKEN else v for n, v in batch.items()}
        return {
            **read,
            "causal_ids": batch["token_ids"][:, 1:],
            "causal_weights": self._weights(batch),
        }

    def _weights(self, batch):
        """Of what follows each token of whole rows but the last, in either direction: [B, T]."""
        follows = ops.cast(batch["padding_mask"], "bool")[:, 1:]
        if (parts := batch.get("part_ids")) is not None:
            follows = ops.logical_and(follows, ops.equal(parts[:, 1:], parts[:, :-1]))
        return self.as_loss(follows) * self.example_weights(batch)[:, None]

    def logits(self, hidden, encoder):
        """Scores of the whole vocabulary for hidden states [R, D]: [R, V]."""
        return self.as_loss(encoder.token_table.scores(hidden))

    def weight_sums(self, batch):
        """See `base.Objective`."""
        weights = batch.get("causal_weights")
        if weights is None:
            weights = self._weights(continued(batch))
        return {self.name: ops.sum(weights)}

    def terms(self, batch, encoded, encoder, rng=None):
        """See `base.Objective`."""
        rows = ops.reshape(encoded["sequence_output"], (-1, self.encoder_config.hidden_size))
        targets = ops.reshape(batch["causal_ids"], (-1,))  # [R]
        weights = ops.reshape(batch["causal_weights"], (-1,))
        return base.token_terms(self.name, self.logits(rows, encoder), targets, weights)


def continued(batch):
    """The batch with what follows its rows (`next_id` [B], where there is one) as a last token.

    It stands behind the last token of its row, before the padding of a short one.
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
    behind = ops.not_equal(longer["padding_mask"], before)
    longer["token_ids"] = ops.where(behind, after[:, None], longer["token_ids"])
    return {**batch, **longer}


def turned_round(batch):
    """The batch with the tokens of each row, or of each of its parts, in the opposite order.

    Padding stays where it is, on the right, and so do positions and parts.
    """
    real = ops.cast(batch["padding_mask"], "int32")  # [B, T + 1]
    length = ops.shape(real)[1]
    if (parts := batch.get("part_ids")) is None:
        places = ops.arange(length, dtype="int32")[None, :]
        lengths = ops.sum(real, axis=1, keepdims=True)
    else:
        places = batch["positions"]
        lengths = ops.sum(ops.cast(masks.parts(parts), "int32")[:, 0], axis=-1)
    moves = ops.where(real > 0, lengths - 1 - 2 * places, 0)
    sources = ops.arange(length, dtype="int32")[None, :] + moves
    turned = {
        name: ops.take_along_axis(batch[name], sources, axis=1)
        for name in ("token_ids", "segment_ids")
        if name in batch
    }
    return {**batch, **turned}
