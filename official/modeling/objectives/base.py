"""The base class of objectives, and their common functions.

Shapes: B batch, R rows, V vocabulary.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops
from typing_extensions import override

from official.config.parts import EncoderConfig, ObjectiveConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.activation import ACTIVATIONS
from official.modeling.layers.kernels import accurate, cross_entropy, take_positions
from official.modeling.layers.linear import Linear
from official.modeling.layers.norm import make_norm
from official.modeling.layers.pooling import pooled
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.types import Batch, DType, Encoded, Size, Tensor
from official.utils.errors import UserError

NEVER = -1e9  # a score that a softmax makes 0


@dataclasses.dataclass(frozen=True)
class Terms:
    """The losses and metrics of an objective for a batch.

    Attributes:
        losses: {term: sum of the loss over the batch}, never a mean. The loop adds sums and
            weights over replicas and accumulation steps, and divides once.
        metrics: {metric: (sum, weight)}; the metric is the quotient. For the area under the ROC
            curve, the pair is the result of `score_histograms`.
    """

    losses: dict[str, Any]
    metrics: dict[str, tuple[Any, Any]]


class Objective(keras.Layer):
    """A training objective with its head.

    Its config is an `official.config.parts.ObjectiveConfig`. The config names the module and the
    class of the layer, by default `Objective` in the module that has the name of its `type`, the
    batch fields that the objective reads (`needs`), and those that `prepare` adds for other
    objectives (`gives`).

    For each part of a batch, the loop runs `prepare`, `weight_sums`, the encoder and `terms`.
    Every objective may read `example_weights` [B], which multiply all losses: 1 for a real example
    and 0 for one that only fills the batch. If they are missing, all are 1. An objective that needs
    `row_seeds` int32 [B, 2] gets a pair for `Draws` with each example. The pair is a function of
    (seed, epoch, example), so draws do not depend on how a batch is distributed.
    """

    # The function that turns `matched_outputs` into probabilities: "softmax" over the last axis or
    # "sigmoid"; None = they are not scores of classes.
    link: str | None = None
    # An instance of the class of configs of the objective.
    config: Any
    # The number of updates of a run, which its trainer sets.
    total_steps: int = 1
    # The norm of `hidden`; heads without `hidden` may set another norm.
    norm: Any

    def __init__(
        self,
        config: ObjectiveConfig,
        encoder_config: EncoderConfig,
        *,
        name: str | None = None,
        seed: int = 0,
        dtype: DType | None = None,
    ):
        """Describes the head; `build()` creates its variables.

        Args:
            config: the config of the objective.
            encoder_config: the config of the encoder that the head reads.
            name: the name of the loss term, and the first part of the variables' paths; None = the
                name in the config.
            seed: initial weights are a function of it and of the name.
            dtype: Keras dtype policy; None = the global one.
        """
        name = name or config.name
        super().__init__(name=name, dtype=dtype)
        self.config = config
        self.encoder_config = encoder_config
        self.initializer = RandomWeights(
            encoder_config.initializer,
            encoder_config.initializer_range,
            Draws.of_name(seed, name),
        )

    def make_hidden(self, inputs: int, outputs: int) -> None:
        """Makes the layers of `hidden`, whose variables are `transform/...` and `norm/...`."""
        config = self.encoder_config
        self.activation = ACTIVATIONS[config.activation]
        self.transform = Linear(
            inputs,
            outputs,
            initializer=self.initializer,
            use_bias=config.hidden_bias,
            name="transform",
            dtype=self.dtype_policy,
        )
        self.norm = make_norm(config.norms, outputs, name="norm", dtype=self.dtype_policy)

    def hidden(self, x: Tensor) -> Tensor:
        """Maps states [..., D] by a linear layer, the activation of the encoder and a norm."""
        return self.norm(self.activation(self.transform(x)))

    @property
    def term_weights(self) -> dict[str, float]:
        """The factor of each term in the loss: {term: float}."""
        return {self.name: self.config.weight}

    def ramps(self, step: Tensor) -> dict[str, Tensor]:
        """Returns what multiplies the factors of terms in an update: {term: scalar}; {} = nothing.

        Args:
            step: the number of earlier updates, int.
        """
        del step
        return {}

    @property
    def encoder_frozen(self) -> bool:
        """Whether only the head is trained."""
        return False

    @property
    def uses_all_layers(self) -> bool:
        """Whether the objective reads the states or the attention of all layers."""
        return False

    @property
    def compares_rows(self) -> bool:
        """Whether the loss of an example depends on the others; then it has `terms_of_vectors`."""
        return False

    def all_rows(self, x: Tensor) -> tuple[Tensor, Size]:
        """Returns the rows of all replicas, with gradient, and the index of the first row here.

        On several replicas, `official.distribution.strategies.all_rows` replaces this function.

        Args:
            x: [B, ...], the rows of this replica.
        """
        return x, 0

    def vectors(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """Returns the vectors that an objective with `compares_rows` compares: [B, ...].

        Args:
            batch: the batch after `prepare`.
            encoded: the outputs of the encoder for the batch.
            rng: `Draws`, or None for inference (no dropout).
        """
        raise NotImplementedError

    def terms_of_vectors(self, vectors: Tensor, batch: Batch, training: bool = True) -> Terms:
        """Returns the `terms` of an objective with `compares_rows`, from the `vectors` of a batch.

        Args:
            vectors: [B, ...].
            batch: the batch, before or after `prepare`.
            training: whether the model is trained with this batch.
        """
        raise NotImplementedError

    def attach(self, encoder: Encoder) -> None:
        """Makes networks that share layers with the encoder. Called before `build()`."""

    def join(self, objectives) -> None:
        """Finds objectives of the model that this one depends on. Called before `build()`."""

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Prepares a batch before the encoder runs, for example with another network.

        Returns:
            The batch for the encoder and `terms`.
        """
        del rng
        return batch

    @property
    def teachers(self):
        """The models of teachers, which are neither trained nor saved."""
        return ()

    def positions_read(self, batch: Batch) -> tuple[Tensor, ...] | None:
        """Returns the positions of the last layer that the objective reads.

        Returns:
            A tuple of int [B, P], empty if it reads only the pooled output; None = all positions.
        """
        del batch
        return None

    def read_offsets(self, batch: Batch) -> Tensor | None:
        """Returns vectors to add to the inputs of the last layer at its only `positions_read`.

        Returns:
            [B, P, D]; None = nothing is added. See the transformer encoder.
        """
        del batch
        return None

    def states_read(self, batch: Batch, encoded: Encoded) -> tuple[Tensor, ...]:
        """Returns the states at each of `positions_read`: a tuple of [B, P, D]."""
        if "states_read" in encoded:
            return encoded["states_read"][self.name]
        sequence = encoded["sequence_output"]
        positions = self.positions_read(batch)
        assert positions is not None, "the objective reads all positions"
        return tuple(take_positions(sequence, each) for each in positions)

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the divisor of each loss: {term: scalar}.

        It depends only on the batch, before or after `prepare`.
        """
        raise NotImplementedError

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> Terms:
        """Returns `Terms`.

        Args:
            batch: dict of tensors.
            encoded: the outputs of the encoder for the batch.
            encoder: the encoder, for outputs tied to its tables.
            rng: `Draws`, or None for inference (no dropout).
        """
        raise NotImplementedError

    def text_targets(self, batch: Batch) -> dict[str, Any]:
        """Returns the tokens of a text that a language model predicts, and their weights.

        Args:
            batch: a batch after `prepare`.

        Returns:
            {name of a loss: (tokens, weights)}, two tensors of one shape; empty if the objective is
            not a language model.
        """
        del batch
        return {}

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns a dict of tensors with one row for each example, by default empty."""
        del batch, encoded, encoder
        return {}

    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """Returns the outputs before a softmax, which distillation matches.

        A student matches the outputs of its teacher, and an ensemble averages those of its members.

        Args:
            batch: the batch after `prepare`.
            encoded: the outputs of the encoder for the batch.
            encoder: the encoder, for outputs tied to its tables.
            positions: for masked LM, 'real' = all tokens, 'masked' = the tokens that it predicts.
            rng: `Draws`, or None for inference (no dropout).

        Returns:
            [R, C]: a row for each prediction, of an example or of a token, with its C classes,
            choices, tokens of the vocabulary or tokens of the text.
        """
        raise NotImplementedError

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns the `predictions` of `matched_outputs`, or of their mean over an ensemble.

        Args:
            outputs: [R, C].
            batch: the batch after `prepare`. Only the heads of windows (spans and tags) read it.
        """
        raise NotImplementedError

    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        """Returns the weight of each row of `matched_outputs`, by default its example's: [R]."""
        del positions
        return self.example_weights(batch)

    def pool(self, encoded: Encoded) -> Tensor:
        """Returns one vector for each example, by `config.pooling`: [B, D].

        'pooled' is the output of the pooler (BERT, XLNet), 'first' the state at the first position
        (ELECTRA), and 'mean' the mean of the states without padding.
        """
        if self.config.pooling == "first":
            if "states_read" in encoded:
                return encoded["states_read"][self.name][0][:, 0]
            return encoded["sequence_output"][:, 0]
        if self.config.pooling == "mean":
            states = encoded["sequence_output"]
            real = encoded.get("padding_mask")
            real = ops.ones(ops.shape(states)[:2], "bool") if real is None else real
            return pooled(states, real, ["mean"])
        return encoded["pooled_output"]

    def example_weights(self, batch: Batch) -> Tensor:
        """Returns the weight of each example, in the dtype of losses: [B]."""
        weights = batch.get(self.config.field("example_weights"))
        if weights is None:
            return ops.ones(ops.shape(batch["token_ids"])[:1], accurate(self.compute_dtype))
        return ops.cast(weights, accurate(self.compute_dtype))

    def as_loss(self, x: Tensor) -> Tensor:
        """Casts scores to the dtype of losses."""
        return ops.cast(x, accurate(self.compute_dtype))


class LanguageModel(Objective):
    """An objective whose outputs are scores of the vocabulary.

    Attributes:
        output_projection: the kernel [D, V] of the output; None = it is tied to the token table.
    """

    output_projection: Linear | None = None

    def make_output(self) -> None:
        """Makes `output_projection`, with the variable `output/kernel`."""
        self.output_projection = Linear(
            self.encoder_config.hidden_size,
            self.encoder_config.known_vocab_size,
            initializer=self.initializer,
            name="output",
            use_bias=False,
            dtype=self.dtype_policy,
        )

    @override
    def attach(self, encoder: Encoder) -> None:
        """See `Objective`; gives the output projection the compute dtype of the encoder."""
        if self.output_projection is not None:
            self.output_projection.dtype_policy = encoder.dtype_policy


# Fields with an axis of sequences if an example has several sequences.
_SEQUENCE_FIELDS = ("token_ids", "segment_ids", "padding_mask", "text_mask", "character_ids")


def sequences_apart(batch: Batch) -> Batch:
    """Gives every sequence of an example its own row, for the encoder.

    Args:
        batch: has fields [B, C, T] (or other axes after C), or already [B * C, T].

    Returns:
        The batch with these fields as [B * C, T], and `example_rows` [B, C], the rows of each
        example. A batch with fields [B * C, T] is returned unchanged.
    """
    if len(batch["token_ids"].shape) < 3:
        return batch
    rows, count, _ = ops.shape(batch["token_ids"])
    flat = {
        name: ops.reshape(batch[name], (rows * count, *ops.shape(batch[name])[2:]))
        for name in _SEQUENCE_FIELDS
        if name in batch
    }
    rows_of = ops.reshape(ops.arange(rows * count, dtype="int32"), (rows, count))
    return {**batch, **flat, "example_rows": rows_of}


def first_sequences(batch: Batch) -> Batch:
    """Returns a batch with only the first sequence of every example.

    Args:
        batch: a result of `sequences_apart`, with `example_rows` [B, C].
    """
    rows = batch["example_rows"][:, 0]  # [B]
    fields = {
        name: ops.take(batch[name], rows, axis=0) for name in _SEQUENCE_FIELDS if name in batch
    }
    own = ops.expand_dims(ops.arange(ops.shape(rows)[0], dtype="int32"), 1)
    return {**batch, **fields, "example_rows": own}


def without_first(batch: Batch) -> Batch:
    """Returns a batch without the first sequence of every example.

    Args:
        batch: has fields [B, C, T].
    """
    fields = {name: batch[name][:, 1:] for name in _SEQUENCE_FIELDS if name in batch}
    return {**batch, **fields}


def repeated(batch: Batch, count: int) -> Batch:
    """Returns a batch with every sequence of an example repeated `count` times.

    Args:
        batch: has fields [B, C, T].
        count: the number of copies.
    """
    fields = {name: batch[name] for name in _SEQUENCE_FIELDS if name in batch}
    return {**batch, **{name: ops.repeat(each, count, axis=1) for name, each in fields.items()}}


def class_terms(
    name: str,
    logits: Tensor,
    labels: Tensor,
    weights: Tensor,
    class_weights: Sequence[float] = (),
    smoothing: float = 0.0,
    loss_weights: Tensor | None = None,
) -> Terms:
    """Returns the `Terms` of a classification: cross-entropy and accuracy.

    The loss of an example is that of PyTorch's `CrossEntropyLoss` with `reduction="none"`. The
    accuracy counts all examples alike.

    Args:
        name: name of the term.
        logits: [B, classes], in the dtype of losses.
        labels: int [B].
        weights: [B].
        class_weights: the weight of each class; empty = all are 1.
        smoothing: the share of the target that all classes have in equal parts.
        loss_weights: the weights of the losses, [B]; None = `weights`.
    """
    if class_weights or smoothing:
        losses = _weighted_losses(logits, labels, class_weights, smoothing)
    else:
        losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    hits = ops.cast(ops.equal(ops.argmax(logits, axis=-1), labels), weights.dtype)
    return Terms(
        losses={name: ops.sum(losses * (weights if loss_weights is None else loss_weights))},
        metrics={f"{name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
    )


def times_class_weights(weights: Tensor, labels: Tensor, class_weights: Sequence[float]) -> Tensor:
    """Multiplies each weight by that of the class of its label.

    Args:
        weights: of any shape; 0 where there is no label.
        labels: int, of the same shape; -1 = no label.
        class_weights: the weight of each class; empty = all are 1.
    """
    if not class_weights:
        return weights
    table = ops.convert_to_tensor(class_weights, weights.dtype)
    return weights * ops.take(table, ops.maximum(labels, 0), axis=0)


def _weighted_losses(
    logits: Tensor, labels: Tensor, class_weights: Sequence[float], smoothing: float
) -> Tensor:
    """Returns the cross-entropies of `class_terms` with weights or smoothing: [B]."""
    logs = ops.log_softmax(logits, axis=-1)  # [B, classes]
    if class_weights:
        logs *= ops.convert_to_tensor(class_weights, logits.dtype)
    right = ops.take_along_axis(logs, ops.cast(labels, "int32")[:, None], axis=-1)[:, 0]
    return -(1 - smoothing) * right - smoothing * ops.mean(logs, axis=-1)


def token_terms(
    name: str, logits: Tensor, targets: Tensor, weights: Tensor, z_loss: float = 0.0
) -> Terms:
    """Returns the `Terms` of predicted tokens: cross-entropy and accuracy.

    Args:
        name: name of the term.
        logits: [R, V], in the dtype of losses.
        targets: int [R].
        weights: [R].
        z_loss: the factor of log(Z) ** 2, which is added to each loss.
    """
    losses, log_z, hits = cross_entropy(logits, targets)
    if z_loss:
        losses = losses + z_loss * ops.square(log_z)
    hits = ops.cast(hits, weights.dtype)
    return Terms(
        losses={name: ops.sum(losses * weights)},
        metrics={f"{name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
    )


def row_losses(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the cross-entropies of rows, and whether no logit exceeds that of the target.

    Args:
        logits: [B, columns].
        targets: int [B].
    """
    right = ops.take_along_axis(logits, ops.expand_dims(targets, 1), axis=1)[:, 0]
    return ops.logsumexp(logits, axis=1) - right, right >= ops.max(logits, axis=1)


def rank_losses(
    objective: Objective, columns: Sequence[Tensor], weights: Tensor, added: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Returns the cross-entropy of each query's document among all, and whether it ranks first.

    The candidates of a query are the documents of the N rows of all replicas, and then all hard
    negatives of all rows. Rows of weight 0 are left out.

    Args:
        objective: has the rows of all replicas.
        columns: the scores of the queries of this replica for the documents of all rows, and for
            each column of hard negatives: [B, N] each.
        weights: the weights of the examples of this replica, [B].
        added: is added to the scores of a query and its own hard negatives.

    Returns:
        The losses [B], and bool [B].

    Raises:
        UserError: there is one example, without hard negatives.
    """
    every, first = objective.all_rows(weights)  # [N]
    rows = ops.shape(every)[0]
    if len(columns) == 1 and every.shape[0] == 1:
        raise UserError(
            f"{objective.name}: loss: multiple_negatives: a batch of one example has no negatives: "
            "raise recipe.batch_size"
        )
    own = ops.arange(ops.shape(weights)[0], dtype="int32") + first  # [B]
    is_own = ops.equal(ops.expand_dims(own, 1), ops.arange(rows, dtype="int32"))  # [B, N]
    hidden = ops.where(every > 0, 0.0, objective.as_loss(NEVER))
    added = added * objective.as_loss(is_own)
    logits = [each + hidden + (added if i else 0.0) for i, each in enumerate(columns)]
    return row_losses(ops.concatenate(logits, axis=1), own)


HISTOGRAM_BINS = 200
_HISTOGRAM_END = 10.0


def score_histograms(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Counts the scores of a binary classification by class, for the area under the ROC curve.

    Histograms are summed over batches and replicas. The area is exact except for pairs of scores in
    the same bin, which is 0.1 wide: they count as ties.

    Args:
        logits: any shape.
        labels: 0 or 1 for each.
        weights: the weight of each.

    Returns:
        The weights of class 1 and of class 0 in bins of rising score:
        [HISTOGRAM_BINS] each.
    """
    share = (ops.cast(logits, weights.dtype) + _HISTOGRAM_END) / (2 * _HISTOGRAM_END)
    bins = ops.clip(ops.floor(share * HISTOGRAM_BINS), 0, HISTOGRAM_BINS - 1)
    bins = ops.reshape(ops.cast(bins, "int32"), (-1,))
    labels = ops.cast(labels, weights.dtype)
    return tuple(
        ops.segment_sum(ops.reshape(counted, (-1,)), bins, num_segments=HISTOGRAM_BINS)
        for counted in (weights * labels, weights * (1 - labels))
    )
