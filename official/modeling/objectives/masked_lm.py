"""Masked language modeling at masked positions (BERT) or all positions (ELECTRA's All-tokens MLM).

`MaskedLM` predicts the tokens of masked positions (Devlin et al. 2018). `AllTokensLM` predicts the
original token at every position. The encoder may then copy its input: at each position, the token
of the input has the weight c and the masked-LM softmax the weight 1 - c (Clark et al. 2020, section
3.5). The `Generator` of `replaced_tokens` replaces the tokens.

Shapes: B batch, T length, P predictions, D hidden, E embedding, V vocabulary, R = B * P rows, or
B * T of all positions.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.objectives import AllTokensLMConfig, MaskedLMConfig
from official.config.parts import EncoderConfig
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.modeling.encoders.base import Encoder
from official.modeling.encoders.inputs import encode
from official.modeling.layers.embeddings import Table, plus_bias
from official.modeling.layers.kernels import cross_entropy, flat_positions
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor


class MaskedLM(base.LanguageModel):
    """A linear layer, a norm and an output tied to the token table, only at masked positions.

    With the form `linear` there is a separate kernel [D, V] instead (NeoBERT), and with `kernel`
    the same without a bias (EuroBERT). With `enhanced_mask_decoder` there is a position table
    [T, D], which is added only to the inputs of the encoder's last layer (He et al. 2021, section
    3.2).
    """

    def __init__(
        self,
        config: MaskedLMConfig | AllTokensLMConfig | SparseEmbeddingConfig,
        encoder_config: EncoderConfig,
        **options: Any,
    ):
        super().__init__(config, encoder_config, **options)
        if config.form == "tied":
            embedding_size = encoder_config.embedding_size or encoder_config.hidden_size
            self.make_hidden(encoder_config.hidden_size, embedding_size)
        else:
            self.make_output()
        self.output_bias: Any = None
        self.position_table = None
        if config.enhanced_mask_decoder:
            self.position_table = Table(
                encoder_config.max_positions,
                encoder_config.hidden_size,
                initializer=self.initializer,
                name="position_embedding",
                dtype=self.dtype_policy,
            )

    @override
    def build(self, input_shape=None):
        if self.output_projection is None:
            self.transform.build()
            self.norm.build()
        else:
            self.output_projection.build()
        if self.position_table is not None:
            self.position_table.build()
        if self.config.form != "kernel":
            self.output_bias = self.add_weight(
                (self.encoder_config.known_vocab_size,), "zeros", name="output_bias", autocast=False
            )

    def logits(self, hidden: Tensor, encoder: Encoder) -> Tensor:
        """Returns the scores of the vocabulary for hidden states [R, D]: [R, V]."""
        if self.output_projection is None:
            return encoder.token_table.scores(self.hidden(hidden), self.output_bias)
        scores = self.output_projection(hidden)
        if self.output_bias is None:
            return self.as_loss(scores)
        return plus_bias(scores, self.output_bias)

    @override
    def positions_read(self, batch: Batch) -> tuple[Tensor, ...]:
        return (batch["masked_positions"],)

    @override
    def read_offsets(self, batch: Batch) -> Tensor | None:
        if self.position_table is None:
            return None
        (positions,) = self.positions_read(batch)
        return self._vectors_of(batch, positions)

    def states(self, batch: Batch, encoder: Encoder) -> Tensor:
        """Returns the states that `logits` maps to scores, at all positions: [B, T, D]."""
        if self.position_table is None:
            return encode(encoder, batch)["sequence_output"]
        rows, length = ops.shape(batch["token_ids"])
        every = ops.broadcast_to(ops.arange(length, dtype="int32"), (rows, length))
        offsets = self._vectors_of(batch, every)
        return encode(encoder, batch, read_positions=every, read_offsets=offsets)["sequence_output"]

    def _vectors_of(self, batch: Batch, positions: Tensor) -> Tensor:
        """Returns the rows of the position table for positions [B, P] in the rows: [B, P, D]."""
        assert self.position_table is not None
        if "positions" in batch:  # positions start at 0 in each of several texts of a row
            positions = ops.take_along_axis(batch["positions"], positions, axis=1)
        return self.position_table(positions)

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: ops.sum(self._weights(batch))}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        (hidden,) = self.states_read(batch, encoded)  # [B, P, D]
        hidden = ops.reshape(hidden, (-1, self.encoder_config.hidden_size))
        return self.terms_of(batch, self.logits(hidden, encoder))

    def terms_of(self, batch: Batch, logits: Tensor):
        """Returns the `Terms` for scores [R, V] of the masked positions."""
        targets = ops.reshape(batch["masked_ids"], (-1,))  # [R]
        weights = ops.reshape(self._weights(batch), (-1,))
        return base.token_terms(self.name, logits, targets, weights)

    @override
    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: [B * T, V], or [B * P, V] of the masked positions."""
        del rng
        hidden = encoded["sequence_output"]
        # for a teacher: its states are not those of the last layer
        if self.position_table is not None:
            hidden = self.states(batch, encoder)
        if positions == "masked":
            hidden = flat_positions(hidden, batch["masked_positions"])
        return self.logits(ops.reshape(hidden, (-1, hidden.shape[-1])), encoder)

    @override
    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        """See `base.Objective`: [B * T], or [B * P]."""
        weights = self.as_loss(batch["masked_weights" if positions == "masked" else "padding_mask"])
        return ops.reshape(weights * self.example_weights(batch)[:, None], (-1,))

    def _weights(self, batch: Batch) -> Tensor:
        """[B, P]."""
        return self.as_loss(batch["masked_weights"]) * self.example_weights(batch)[:, None]


class AllTokensLM(MaskedLM):
    """The masked-LM head on all positions, and a score for copying each token."""

    def __init__(self, config: AllTokensLMConfig, encoder_config: EncoderConfig, **options: Any):
        super().__init__(config, encoder_config, **options)
        self.copy = Linear(
            encoder_config.hidden_size,
            1,
            initializer=self.initializer,
            name="copy",
            dtype=self.dtype_policy,
        )

    @override
    def build(self, input_shape=None):
        super().build(input_shape)
        self.copy.build()

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: ops.sum(self._weights(batch))}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; the metric is the mean loss over replaced tokens only."""
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
