"""Token classification: a tag for each word, from its first token (Devlin et al. 2018).

`word_ids` marks the positions that are read: the index of a word at its first token, and -1
elsewhere. A word in several windows of a text is read in one of them. A BiLSTM between the encoder
and the tags (Peters et al., 2018) reads all tokens.

Shapes: B batch, T length, D hidden, C tags, R = B * T rows.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.heads import TokenClassificationConfig
from official.config.parts import EncoderConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.kernels import dropout
from official.modeling.layers.linear import Linear
from official.modeling.layers.linear_chain import LinearChain
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor


class Objective(heads.Reader):
    """Dropout and an affine map of each state to the tags; with `crf`, a CRF over the tags.

    The states are those of `heads.Reader`, joined with those of `output_mix` if it is set.
    """

    config: TokenClassificationConfig

    link = "softmax"

    def __init__(
        self, config: TokenClassificationConfig, encoder_config: EncoderConfig, **options: Any
    ):
        super().__init__(config, encoder_config, **options)
        self.num_labels = config.label_count
        size, self.output_mix = self.width, None
        if config.output_mix is not None:
            self.output_mix, self._output_layers = self.make_mix("output_mix")
            size += encoder_config.hidden_size
        self.output_projection = Linear(
            size,
            self.num_labels,
            initializer=self.output_initializer,
            name="output",
            dtype=self.dtype_policy,
        )
        self.crf = LinearChain(self.num_labels, dtype=self.dtype_policy) if config.crf else None

    @override
    def build(self, input_shape=None):
        super().build(input_shape)
        if self.output_mix is not None:
            self.output_mix.build()
        self.output_projection.build()
        if self.crf is not None:
            self.crf.build()

    @property
    @override
    def uses_all_layers(self) -> bool:
        return super().uses_all_layers or self.output_mix is not None

    @property
    @override
    def mixes(self):
        output = [] if self.output_mix is None else [(self.config.output_mix, self.output_mix)]
        return super().mixes + output

    def logits(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the scores of the tags at each position, in the dtype of losses: [B, T, C]."""
        states = self.states(encoded, rng)
        if self.output_mix is not None:
            layers = [encoded["hidden_states"][layer] for layer in self._output_layers]
            other = self.output_mix(layers, encoded.get("padding_mask"))
            other = dropout(other, self.mixes[-1][0].dropout, rng)
            states = ops.concatenate([states, other], axis=-1)
        return self.as_loss(self.output_projection(dropout(states, self.config.dropout, rng)))

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the number of labeled words: losses are means over words, as in transformers.

        With weights of classes, it is the sum of those of the tags of these words.
        """
        weights = self._weights(batch)
        if "tag_ids" in batch:
            factors = self.config.factors
            weights = base.times_class_weights(weights, batch["tag_ids"], factors)
        return self.with_penalty_weight({self.name: ops.sum(weights)})

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; the loss of a CRF is minus the log-likelihood of its chains.

        It is also divided by the number of labeled words, so losses with and without a CRF are
        comparable. A head of weight 0 has no term if there are no tags.
        """
        if self.lacks("tag_ids", batch):
            return base.Terms(losses={}, metrics={})
        logits = self.logits(encoded, rng)
        weights = self._weights(batch)  # [B, T]
        tags = ops.maximum(batch["tag_ids"], 0)
        if self.crf is None:
            rows = ops.reshape(logits, (-1, self.num_labels))
            tags, weights = ops.reshape(tags, (-1,)), ops.reshape(weights, (-1,))
            factors, smoothing = self.config.factors, self.config.label_smoothing
            if factors or smoothing:
                terms = base.class_terms(self.name, rows, tags, weights, factors, smoothing)
            else:
                terms = base.token_terms(self.name, rows, tags, weights)
            return self.with_penalty(terms, batch)
        mask = batch["tag_ids"] >= 0
        likelihood = self.crf.log_likelihood(logits, tags, mask)
        hits = ops.cast(ops.equal(self.crf.decode(logits, mask), tags), weights.dtype)
        terms = base.Terms(
            losses={self.name: -ops.sum(likelihood * self.example_weights(batch))},
            metrics={f"{self.name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
        )
        return self.with_penalty(terms, batch)

    @override
    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: the scores of the tags at each position, [R, C]."""
        del batch, encoder, positions
        return ops.reshape(self.logits(encoded, rng), (-1, self.num_labels))

    @override
    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        """See `base.Objective`; the first token of each word counts, tagged or not: [R]."""
        del positions
        words = self.as_loss(batch["word_ids"] >= 0)
        return ops.reshape(words * self.example_weights(batch)[:, None], (-1,))

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns the `predictions_of` the outputs."""
        return self.predictions_of(self.matched_outputs(batch, encoded, encoder), batch)

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns the tag of each word: `tags` int32 [B, T] and `tag_probabilities` [B, T].

        The probability is that of the softmax or, with a CRF, the marginal probability of the tag.
        The result also has the `word_ids` of the batch. Values at other positions than the first
        tokens of words have no meaning.
        """
        mask = batch["word_ids"] >= 0
        logits = ops.reshape(outputs, (*ops.shape(mask), self.num_labels))
        if self.crf is None:
            probabilities = ops.softmax(logits)
            tags = ops.cast(ops.argmax(logits, axis=-1), "int32")
        else:
            probabilities = self.crf.marginals(logits, mask)
            tags = self.crf.decode(logits, mask)
        probability = ops.take_along_axis(probabilities, tags[:, :, None], axis=-1)[:, :, 0]
        return {"tags": tags, "tag_probabilities": probability, "word_ids": batch["word_ids"]}

    def _weights(self, batch: Batch) -> Tensor:
        """Returns the weights of tagged words, or of all words if there are no tags: [B, T]."""
        labeled = self.as_loss(batch.get("tag_ids", batch["word_ids"]) >= 0)
        return labeled * self.example_weights(batch)[:, None]
