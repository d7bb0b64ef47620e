"""Which of several choices answers a question: one score for each, a softmax over them.

Each choice is read with the text it is about, as [CLS] text [SEP] question and choice [SEP], and
its score is one affine map of the pooled output (Devlin et al., 2019, section 4.4; Radford et al.,
2018, section 3.3). A head knows nothing of how many choices there are.

Shapes: B batch, C choices, N = B * C, T length, D hidden.
"""

from keras import ops

from official.modeling.objectives import base, pooled


class Objective(pooled.Head):
    """Dropout, one affine map to a score for each choice, and a softmax over those of a question.

    A batch has token_ids, segment_ids and padding_mask [B, C, T]; the encoder gets them as [N, T].
    """

    def __init__(self, config, encoder_config, *, name="multiple_choice", seed=0, dtype=None):
        super().__init__(config, encoder_config, 1, name=name, seed=seed, dtype=dtype)

    def prepare(self, batch, rng=None):
        """Gives every choice a row of its own."""
        del rng
        return base.sequences_apart(batch)

    def logits(self, batch, encoded, rng=None):
        """Scores of the choices: [B, C]."""
        scores = self.outputs(encoded, rng)  # [N, 1]
        return ops.reshape(scores, (ops.shape(batch["example_weights"])[0], -1))

    def terms(self, batch, encoded, encoder, rng=None):
        """See `base.Objective`."""
        logits = self.logits(batch, encoded, rng)
        return base.class_terms(self.name, logits, batch["answer"], self.example_weights(batch))

    def predictions(self, batch, encoded, encoder):
        """Returns `probabilities` [B, C]."""
        return {"probabilities": ops.softmax(self.logits(batch, encoded))}
