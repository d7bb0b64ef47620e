"""Sequence-to-sequence language modeling: predicts the targets of a decoder from left to right.

The decoder reads the targets shifted by one, with a start token before the first one (Raffel et al.
2020, section 3.1.1). For the targets `a b EOS` it reads `START a b`. If several examples share a
row, each begins with the start token.

Shapes: B batch, U targets of a row, D hidden, V vocabulary, R = B * U rows.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.encoders import EncoderDecoderConfig
from official.config.objectives import Seq2SeqLMConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor


class Objective(base.LanguageModel):
    """An output that is tied to the token table, or a separate kernel [D, V]."""

    config: Seq2SeqLMConfig
    encoder_config: EncoderDecoderConfig

    def __init__(
        self, config: Seq2SeqLMConfig, encoder_config: EncoderDecoderConfig, **options: Any
    ):
        super().__init__(config, encoder_config, **options)
        if not encoder_config.tied_output:
            self.make_output()

    @override
    def build(self, input_shape=None):
        if self.output_projection is not None:
            self.output_projection.build()

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Adds `decoder_ids` int [B, U], the targets shifted by one, and the decoder's masks."""
        return {**batch, "decoder_ids": self.shifted(batch)}

    def shifted(self, batch: Batch) -> Tensor:
        """Returns the targets with the start token before each example: int [B, U]."""
        targets = batch["target_ids"]
        start = ops.full_like(targets[:, :1], self.config.start_id)
        shifted = ops.concatenate([start, targets[:, :-1]], axis=1)
        if (parts := batch.get("target_part_ids")) is not None:
            same = ops.equal(parts[:, 1:], parts[:, :-1])
            same = ops.concatenate([ops.ones_like(same[:, :1]), same], axis=1)
            shifted = ops.where(same, shifted, self.config.start_id)
        return shifted

    def logits(self, hidden: Tensor, encoder: Encoder) -> Tensor:
        """Returns the scores of the vocabulary for states [R, D] of the decoder: [R, V]."""
        if self.output_projection is not None:
            return self.as_loss(self.output_projection(hidden))
        if self.encoder_config.scale_output:
            hidden = hidden * self.encoder_config.hidden_size**-0.5
        return self.as_loss(encoder.token_table.scores(hidden))

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: ops.sum(self._weights(batch))}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`. In training, z_loss * log(Z) ** 2 is added for each target."""
        logits, weights = self.matched_outputs(batch, encoded, encoder), self.matched_weights(batch)
        targets = ops.reshape(batch["target_ids"], (-1,))
        z_loss = 0.0 if rng is None else self.config.z_loss
        return base.token_terms(self.name, logits, targets, weights, z_loss)

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
        hidden = encoded["decoder_output"]
        return self.logits(ops.reshape(hidden, (-1, hidden.shape[-1])), encoder)

    @override
    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        """See `base.Objective`: [R]."""
        del positions
        return ops.reshape(self._weights(batch), (-1,))

    @override
    def text_targets(self, batch: Batch) -> dict[str, Any]:
        """See `base.Objective`: [B, U]."""
        return {self.name: (batch["target_ids"], self._weights(batch))}

    def _weights(self, batch: Batch) -> Tensor:
        """Returns the weight of each target: [B, U]."""
        return self.as_loss(batch["target_mask"]) * self.example_weights(batch)[:, None]
