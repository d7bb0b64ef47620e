"""Multiple choice: one score for each choice, and a softmax over the choices.

Each choice is read with the text of the question, as [CLS] text [SEP] question and choice [SEP].
Its score is an affine map of the pooled output (Devlin et al., 2019, section 4.4; Radford et al.,
2018, section 3.3). The head does not depend on the number of choices.

Shapes: B batch, C choices, N = B * C, T length, D hidden.
"""

from keras import ops

from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor


class Objective(heads.Head):
    """Dropout, an affine map to the score of each choice, and a softmax over the choices.

    A batch has token_ids, segment_ids and padding_mask [B, C, T]; the encoder gets them as [N, T].
    """

    def __init__(self, config, encoder_config, *, name="multiple_choice", seed=0, dtype=None):
        super().__init__(config, encoder_config, 1, name=name, seed=seed, dtype=dtype)

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Gives every choice its own row."""
        del rng
        return base.sequences_apart(batch)

    def logits(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the scores of the choices: [B, C]."""
        scores = self.outputs(encoded, rng)  # [N, 1]
        return ops.reshape(scores, (ops.shape(batch["example_weights"])[0], -1))

    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: [B, C]."""
        del encoder, positions
        return self.logits(batch, encoded, rng)

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`."""
        logits = self.logits(batch, encoded, rng)
        weights = self.example_weights(batch)
        terms = base.class_terms(self.name, logits, batch["answer"], weights)
        return self.with_penalty(terms, batch)

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `probabilities` [B, C]."""
        return {"probabilities": ops.softmax(self.logits(batch, encoded))}
