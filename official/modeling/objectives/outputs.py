"""The outputs of objectives that a student learns from its teacher, one row for each prediction.

Shapes: B batch, T length (of the targets of a decoder, if there is one), P predictions, D hidden,
C outputs of a row (classes, choices, the vocabulary or the tokens of a text), R rows: B, B * T,
B * P, or 2 * B for the starts and then the ends of answers.
"""

from keras import ops

from official.modeling.layers import gather
from official.modeling.objectives.span_answer import NEVER


def of_rows(head):
    """Returns whether an objective has outputs for a row, and none for its tokens."""
    return head.config.type in ("classification", "regression", "multiple_choice")


def rows(head, batch, encoded, encoder, positions="real", rng=None):
    """Returns the outputs of an objective before its softmax: [R, C].

    Args:
        head: an objective of a type in `official.config.distillation.HEADS`.
        batch: the batch after `prepare`.
        encoded: the outputs of the encoder for the batch.
        encoder: the encoder, for outputs tied to its tables.
        positions: of masked LM, 'real' for all tokens or 'masked' for those that it predicts.
        rng: `Draws`, or None for inference (no dropout).
    """
    kind = head.config.type
    if kind == "multiple_choice":
        return head.logits(batch, encoded, rng)
    if kind in ("classification", "regression"):
        return head.outputs(encoded, rng)
    if kind == "span_answer":
        boundaries = ops.concatenate(head.boundary_logits(head.states(encoded, rng)), axis=0)
        allowed = head.allowed(batch)
        return ops.where(ops.concatenate([allowed, allowed], axis=0), boundaries, NEVER)
    hidden = encoded["decoder_output" if kind == "seq2seq_lm" else "sequence_output"]
    if positions == "masked":
        hidden = gather.positions(hidden, batch["masked_positions"])
    return head.logits(ops.reshape(hidden, (-1, hidden.shape[-1])), encoder)


def weights(head, batch, positions="real"):
    """Returns the weight of each row of `rows`: [R].

    The batch of a causal LM is one after `prepare`.
    """
    kind = head.config.type
    if kind == "causal_lm":
        return ops.reshape(batch["causal_weights"], (-1,))
    examples = head.example_weights(batch)
    fields = {"masked_lm": "padding_mask", "seq2seq_lm": "target_mask"}
    if kind == "span_answer":  # the mean of start and end
        return ops.concatenate([examples, examples], axis=0) / 2
    if kind not in fields:
        return examples
    field = "masked_weights" if positions == "masked" else fields[kind]
    return ops.reshape(head.as_loss(batch[field]) * examples[:, None], (-1,))
