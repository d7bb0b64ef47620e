"""Heads of tasks that read one vector for each row, and the base class of all heads of tasks.

A head reads the last layer of the encoder, a mix of all layers, or the outputs of a BiLSTM over
either (`Reader`). `Head` pools a vector for each row and maps it, after dropout, to its outputs:
the scores of classes (`Classification`), of labels (`MultiLabel`), of a choice (`MultipleChoice`),
or a number (`Regression`).

The outputs of a text in windows are the mean, or the largest, of those of its windows (`joined`).

Shapes: B batch, C classes, labels or choices, S sequences of an example (choices, or windows), N =
B * S or B rows of the encoder, T length, D hidden, W width of what a head reads, O outputs.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.config.heads import (
    ClassificationConfig,
    MultiLabelConfig,
    PooledConfig,
    ReaderConfig,
)
from official.config.parts import EncoderConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.activation import ACTIVATIONS
from official.modeling.layers.kernels import dropout
from official.modeling.layers.layer_mix import LayerMix
from official.modeling.layers.linear import Linear
from official.modeling.layers.lstm import BiLSTM
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor


class Reader(base.Objective):
    """The base class of heads of tasks: an objective that reads the states of the encoder.

    Its config is an `official.config.heads.ReaderConfig`. With `mix`, the variables `mix/weights`
    and `mix/gamma` come before those of the head, and the penalty of the weights is the term
    `NAME_mix`. With `bilstm`, a BiLSTM reads the last layer or the mix, after dropout, and the head
    its outputs (Devlin et al., 2019, section 5.1, on top of a left-to-right model). Its variables
    `bilstm/...` come before those of the head. With `transform`, the input of the head first passes
    a hidden layer like that of masked LM; the variables are `transform/...` and `norm/...`.

    Attributes:
        width: W, which is D, or 2 C with a BiLSTM of C cells.
        output_initializer: the initializer of the last layer, with the scale of the encoder. With
            `transform` the scale is W ** -0.5, so that the initial outputs have the size of the
            normalized states (ModernBERT's release).
    """

    config: ReaderConfig

    def __init__(
        self, config: ReaderConfig, encoder_config: EncoderConfig, *, seed: int = 0, **options: Any
    ):
        super().__init__(config, encoder_config, seed=seed, **options)
        self.mix = self.bilstm = None
        self.width = encoder_config.hidden_size
        if config.mix is not None:
            self.mix, self._mixed = self.make_mix("mix")
        if config.bilstm is not None:
            draws = Draws.of_name(seed, f"{self.name}/bilstm")
            self.bilstm = BiLSTM(self.width, config.bilstm, seed=draws, dtype=self.dtype_policy)
            self.width = 2 * config.bilstm
        self.output_initializer = self.initializer
        if config.transform:
            self.make_hidden(self.width, self.width)
            self.output_initializer = RandomWeights(
                self.initializer.law, self.width**-0.5, self.initializer.rng
            )

    def make_mix(self, key: str):
        """Returns the mix that a key of the config describes, and the indices of its layers."""
        config = getattr(self.config, key)
        layers = config.numbers(self.encoder_config.num_states)
        mix = LayerMix(len(layers), norm=config.norm, name=key, dtype=self.dtype_policy)
        return mix, layers

    @property
    def mixes(self):
        """The mixes of the head with their configs: a list of (config, `LayerMix`)."""
        return [] if self.mix is None else [(self.config.mix, self.mix)]

    def build(self, input_shape=None):
        """Creates the variables of the mix, the BiLSTM and the hidden layer."""
        hidden = (self.transform, self.norm) if self.config.transform else ()
        for layer in (self.mix, self.bilstm, *hidden):
            if layer is not None:
                layer.build()

    @property
    @override
    def uses_all_layers(self) -> bool:
        return self.mix is not None

    @property
    @override
    def term_weights(self) -> dict[str, float]:
        """See `base.Objective`; the weight of the head is not a factor of the penalty."""
        return super().term_weights | ({self._penalty_name: 1.0} if self._has_penalty else {})

    def read(self, encoded: Encoded, rng: Draws | None = None) -> Encoded:
        """Returns the outputs of the encoder with the input of the head as `sequence_output`.

        Args:
            encoded: the outputs of the encoder, with `hidden_states` if there is a mix.
            rng: `Draws`, or None for inference (no dropout).

        Returns:
            `encoded`, where `sequence_output` is [B, T, W].
        """
        encoded = self.read_mix(encoded, rng)
        if self.bilstm is None:
            return encoded
        states = dropout(encoded["sequence_output"], self.config.dropout, rng)
        return {**encoded, "sequence_output": self.bilstm(states, encoded.get("padding_mask"))}

    def read_mix(self, encoded: Encoded, rng: Draws | None = None) -> Encoded:
        """Returns the outputs of the encoder with the mix, if any, as `sequence_output` [B, T, D].

        The arguments are those of `read`.
        """
        if self.mix is None:
            return encoded
        states = [encoded["hidden_states"][layer] for layer in self._mixed]
        mixed = self.mix(states, encoded.get("padding_mask"))
        ((config, _), *_) = self.mixes
        return {**encoded, "sequence_output": dropout(mixed, config.dropout, rng)}

    def states(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the vectors that the head reads: [B, T, W]."""
        states = self.read(encoded, rng)["sequence_output"]
        return self.hidden(states) if self.config.transform else states

    def lacks(self, target: str, batch: Batch) -> bool:
        """Returns whether a head of weight 0 has no targets in a batch."""
        return not self.config.weight and self.config.field(target) not in batch

    def with_penalty_weight(self, sums):
        """Adds the divisor of the penalty, which is that of the head, to `weight_sums`."""
        return sums | ({self._penalty_name: sums[self.name]} if self._has_penalty else {})

    def with_penalty(self, terms, batch: Batch) -> base.Terms:
        """Adds the penalty of the mix to `Terms`.

        A term is a sum over the examples of a batch, so the penalty counts once for each example.
        """
        if not self._has_penalty:
            return terms
        count = self.weight_sums(batch)[self._penalty_name]
        penalty = sum(config.penalty * mix.squared_weights() for config, mix in self.mixes)
        losses = terms.losses | {self._penalty_name: count * self.as_loss(penalty)}
        return base.Terms(losses=losses, metrics=terms.metrics)

    @property
    def _has_penalty(self):
        return any(config.penalty > 0 for config, _ in self.mixes)

    @property
    def _penalty_name(self):
        return f"{self.name}_mix"


class Head(Reader):
    """Dropout and an affine map of the pooled output, with the variables `output/...`.

    `Reader` describes the states that are pooled. `config.activation` comes before the dropout.
    With `config.dense` there are the variables `dense/...`. The config is an
    `official.config.heads.PooledConfig`.
    """

    config: PooledConfig

    def __init__(self, config: PooledConfig, encoder_config: EncoderConfig, **options: Any):
        """Describes the head; see `base.Objective`.

        Raises:
            UserError: the labels are unknown.
        """
        super().__init__(config, encoder_config, **options)
        self.dense: Any = None
        if config.dense is not None:
            self.dense = Linear(
                self.width,
                self.width,
                initializer=self.initializer,
                name="dense",
                dtype=self.dtype_policy,
            )
        self.output_projection = Linear(
            self.width,
            self.size,
            initializer=self.output_initializer,
            name="output",
            dtype=self.dtype_policy,
        )

    @property
    def size(self) -> int:
        """O."""
        return 1

    @override
    def build(self, input_shape=None):
        super().build(input_shape)
        if self.dense is not None:
            self.dense.build()
        self.output_projection.build()

    @override
    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Gives every sequence of an example its own row."""
        del rng
        return base.sequences_apart(batch)

    @override
    def positions_read(self, batch: Batch) -> tuple[Tensor, ...] | None:
        if self.uses_all_layers or self.bilstm is not None or self.config.pooling == "mean":
            return None
        if self.config.pooling == "pooled":
            return ()
        return (ops.zeros((ops.shape(batch["token_ids"])[0], 1), "int32"),)

    @override
    def pool(self, encoded: Encoded) -> Tensor:
        """See `base.Objective`; with a BiLSTM, 'pooled' is the last output of each direction."""
        if self.bilstm is not None and self.config.pooling == "pooled":
            return self.bilstm.last(encoded["sequence_output"], encoded.get("padding_mask"))
        return super().pool(encoded)

    def outputs(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the outputs of each row, in the dtype of losses: [N, O]."""
        encoded = self.read(encoded, rng)
        if self.config.dense == "states":
            states = self._dense_layer(encoded["sequence_output"])
            encoded = {**encoded, "sequence_output": states}
        pooled = self.pool(encoded)
        if self.config.transform:
            pooled = self.hidden(pooled)
        if self.config.dense == "vector":
            pooled = self._dense_layer(pooled)
        if self.config.activation == "relu":
            pooled = ops.relu(pooled)
        return self.as_loss(self.output_projection(dropout(pooled, self.config.dropout, rng)))

    def _dense_layer(self, x: Tensor) -> Tensor:
        """Maps x [..., W] by the layer `dense` and GELU."""
        return ACTIVATIONS["gelu"](self.dense(x))

    @override
    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: [B, O]."""
        del encoder, positions
        outputs = self.outputs(encoded, rng)
        if (real := batch.get("windows_mask")) is None:
            return outputs
        windows = ops.take(outputs, batch["example_rows"], axis=0)  # [B, S, O]
        return joined(windows, ops.cast(real, "bool"), self.config.join)

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns the `predictions_of` the outputs."""
        return self.predictions_of(self.matched_outputs(batch, encoded, encoder), batch)

    def loss_weights(self, batch: Batch) -> Tensor:
        """Returns the weight of each example in the loss, with that of its row: [B]."""
        weights = self.example_weights(batch)
        if (given := batch.get("row_weight")) is None:
            return weights
        return weights * ops.cast(given, weights.dtype)

    @override
    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        del positions
        return self.loss_weights(batch)

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return self.with_penalty_weight({self.name: ops.sum(self.loss_weights(batch))})


def joined(outputs: Tensor, real: Tensor, how: str | None) -> Tensor:
    """Returns the outputs of texts from those of their windows: [B, O].

    Args:
        outputs: [B, S, O].
        real: bool [B, S], False for windows that fill the batch; a text has one window at least.
        how: a `PooledConfig.join`.
    """
    real = ops.expand_dims(real, -1)
    if how == "max":
        return ops.max(ops.where(real, outputs, ops.full_like(outputs, base.NEVER)), axis=1)
    total = ops.sum(ops.where(real, outputs, ops.zeros_like(outputs)), axis=1)
    return total / ops.sum(ops.cast(real, total.dtype), axis=1)


class LabelsHead(Head):
    """A head with an output for each of several labels."""

    config: ClassificationConfig | MultiLabelConfig

    @property
    def size(self) -> int:
        """C."""
        return self.config.label_count

    def logits(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the scores of the labels of each row: [N, C]."""
        return self.outputs(encoded, rng)


class Classification(LabelsHead):
    """Classification: one of several labels for each example."""

    config: ClassificationConfig

    link = "softmax"

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """See `base.Objective`; with weights of classes, the sum of those of the labels."""
        weights = self.loss_weights(batch)
        labels = batch.get(self.config.field("label"))
        if labels is not None:
            weights = base.times_class_weights(weights, labels, self.config.factors)
        return self.with_penalty_weight({self.name: ops.sum(weights)})

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; a head of weight 0 has no term if there are no labels."""
        if self.lacks("label", batch):
            return base.Terms(losses={}, metrics={})
        terms = base.class_terms(
            self.name,
            self.matched_outputs(batch, encoded, encoder, rng=rng),
            batch[self.config.field("label")],
            self.example_weights(batch),
            self.config.factors,
            self.config.label_smoothing,
            self.loss_weights(batch),
        )
        return self.with_penalty(terms, batch)

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns `probabilities` [B, C]; with several tasks the name of the task comes first."""
        return {self.config.field("probabilities"): ops.softmax(outputs)}


class Regression(Head):
    """Regression: a number for each example; the loss is the squared error."""

    def scores(self, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the predicted number of each row: [N]."""
        return self.outputs(encoded, rng)[:, 0]

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; a head of weight 0 has no term if there are no scores."""
        if self.lacks("score", batch):
            return base.Terms(losses={}, metrics={})
        weights = self.example_weights(batch)
        scores = self.matched_outputs(batch, encoded, encoder, rng=rng)[:, 0]
        errors = scores - self.as_loss(batch[self.config.field("score")])
        squared = ops.square(errors)
        terms = base.Terms(
            losses={self.name: ops.sum(squared * self.loss_weights(batch))},
            metrics={f"{self.name}_squared_error": (ops.sum(squared * weights), ops.sum(weights))},
        )
        return self.with_penalty(terms, batch)

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns `score` [B]; with several tasks the name of the task comes first."""
        return {self.config.field("score"): outputs[:, 0]}


class MultiLabel(LabelsHead):
    """Multi-label classification: any number of labels for each example.

    Labels are independent: the loss is the binary cross-entropy of their sigmoids, averaged over
    labels and examples (PyTorch's `BCEWithLogitsLoss`, as in transformers).
    """

    config: MultiLabelConfig

    link = "sigmoid"

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`; a head of weight 0 has no term if there are no labels."""
        if self.lacks("label_flags", batch):
            return base.Terms(losses={}, metrics={})
        logits = self.matched_outputs(batch, encoded, encoder, rng=rng)
        weights = self.example_weights(batch)
        flags = self.as_loss(batch["label_flags"])
        losses = ops.mean(self.label_losses(logits, flags), axis=-1)  # [B]
        same = ops.equal(ops.cast(logits > 0, flags.dtype), flags)
        hits = ops.mean(ops.cast(same, weights.dtype), axis=-1)
        terms = base.Terms(
            losses={self.name: ops.sum(losses * self.loss_weights(batch))},
            metrics={f"{self.name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
        )
        return self.with_penalty(terms, batch)

    def label_losses(self, logits: Tensor, flags: Tensor) -> Tensor:
        """Returns the loss of each label: [B, C]."""
        smoothing, weights = self.config.label_smoothing, self.config.factors
        targets = flags * (1 - smoothing) + smoothing / 2 if smoothing else flags
        if not weights:
            return ops.softplus(logits) - targets * logits
        weights = ops.convert_to_tensor(weights, logits.dtype)
        return (1 - targets) * ops.softplus(logits) + weights * targets * ops.softplus(-logits)

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns `probabilities` [B, C]."""
        return {"probabilities": ops.sigmoid(outputs)}


class MultipleChoice(Head):
    """Multiple choice: a score for each choice, and a softmax over the choices.

    Each choice is read with the text of the question, as [CLS] text [SEP] question and choice
    [SEP], and its score does not depend on the number of choices (Devlin et al., 2019, section 4.4;
    Radford et al., 2018, section 3.3). A batch has token_ids, segment_ids and padding_mask
    [B, C, T]; the encoder gets them as [N, T].
    """

    link = "softmax"

    def logits(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the scores of the choices: [B, C]."""
        scores = self.outputs(encoded, rng)  # [N, 1]
        return ops.reshape(scores, (ops.shape(batch["example_weights"])[0], -1))

    @override
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

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        logits = self.logits(batch, encoded, rng)
        weights = self.example_weights(batch)
        terms = base.class_terms(self.name, logits, batch["answer"], weights)
        return self.with_penalty(terms, batch)

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns `probabilities` [B, C]."""
        return {"probabilities": ops.softmax(outputs)}
