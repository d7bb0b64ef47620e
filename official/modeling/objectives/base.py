"""What every objective is.

Shapes: B batch, R rows, V vocabulary.
"""

import dataclasses
import zlib
from typing import Any

import keras
from keras import ops

from official.modeling.layers.precision import accurate
from official.modeling.layers.random import Draws, initializer
from official.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Terms:
    """What an objective makes of a batch.

    Attributes:
        losses: the sum of the loss over the batch for each term, never a mean: the loop adds up
            sums and weights over replicas and accumulation steps, and divides once.
        metrics: (sum, weight) for each metric, whose quotient is the metric; or what
            `score_histograms` gives, from which the area under the ROC curve comes.
    """

    losses: dict[str, Any]
    metrics: dict[str, tuple[Any, Any]]


class Objective(keras.Layer):
    """A question put to an encoder, with the head that answers it.

    A module of `official.modeling.objectives` has a frozen dataclass `Config` (with a `weight`), a
    function `needs(config)` that names the batch fields it reads, and a subclass `Objective`. Where
    `prepare` adds fields that other objectives may read, a function `gives(config)` names them.
    `PACKS = True` says that the objective may be asked of rows that several sequences share, and a
    function `check(config, whole)` raises ValueError where the whole config does not suit it.

    The loop runs, for each part of a batch, `prepare`, `weight_sums`, the encoder and `terms`.
    Fields of a batch that every objective may read: `example_weights` [B], 1 for a real example
    and 0 for one that only fills up the batch (all 1 where missing); it multiplies everything.
    An objective that needs `row_seeds` int32 [B, 2] gets a pair for `Draws` with each example, a
    function of (seed, epoch, example): its draws do not depend on how a batch is shared out.
    """

    def __init__(self, config, encoder_config, *, name, seed=0, dtype=None):
        """Describes the head; `build()` makes its variables.

        Args:
            config: the `Config` of the module.
            encoder_config: `Config` of the encoder that the head reads.
            name: the term's name, and the first part of the variables' paths.
            seed: initial weights are a function of it and of the name.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.config = config
        self.encoder_config = encoder_config
        self.initializer = initializer(
            encoder_config.initializer,
            encoder_config.initializer_range,
            Draws((seed, zlib.crc32(name.encode()))),
        )

    @property
    def term_weights(self):
        """The factor of each term in the loss that is minimised: {term: float}."""
        return {self.name: self.config.weight}

    @property
    def encoder_frozen(self):
        """Whether the head alone learns."""
        return False

    @property
    def uses_first_position_only(self):
        """Whether the objective reads no position of the last layer but the first."""
        return False

    def attach(self, encoder):
        """Makes what shares layers with the encoder, a generator for example; before `build()`."""

    def prepare(self, batch, rng=None):
        """What has to happen before the encoder runs, another network's work for example.

        Returns:
            The batch that the encoder and `terms` get to see.
        """
        del rng
        return batch

    def weight_sums(self, batch):
        """Returns {term: scalar}: what to divide each loss by.

        It depends on the batch alone, which may be as it was read or as `prepare` left it.
        """
        raise NotImplementedError

    def terms(self, batch, encoded, encoder, rng=None):
        """Returns `Terms`.

        Args:
            batch: dict of tensors.
            encoded: what the encoder returned for it.
            encoder: the encoder, for outputs tied to its tables.
            rng: `Draws`, or None for inference (no dropout).
        """
        raise NotImplementedError

    def predictions(self, batch, encoded, encoder):
        """Returns a dict of tensors with one row for each example; empty where there is none."""
        del batch, encoded, encoder
        return {}

    def pool(self, encoded):
        """One vector for each example, as `config.pooling` says: [B, D].

        'pooled' is the pooler's output (BERT, and of its last position XLNet), 'first' the last
        layer's first position (ELECTRA), 'mean' the mean of its positions without padding.
        """
        if self.config.pooling == "first":
            return encoded["sequence_output"][:, 0]
        if self.config.pooling == "mean":
            return _mean(encoded["sequence_output"], encoded.get("padding_mask"))
        return encoded["pooled_output"]

    def example_weights(self, batch):
        """The weight of each example, in the type of losses: [B]."""
        weights = batch.get(self.config.field("example_weights"))
        if weights is None:
            return ops.ones(ops.shape(batch["token_ids"])[:1], accurate(self.compute_dtype))
        return ops.cast(weights, accurate(self.compute_dtype))

    def as_loss(self, x):
        """Brings scores to the type in which losses are computed."""
        return ops.cast(x, accurate(self.compute_dtype))


def _mean(states, real):
    """The mean of states [B, T, D] over the positions that are real: [B, D].

    Args:
        states: [B, T, D].
        real: bool [B, T], False for padding; None = there is none.
    """
    if real is None:
        return ops.mean(states, axis=1)
    weights = ops.cast(real, states.dtype)[:, :, None]
    return ops.sum(states * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1)


# What has an axis of sequences where an example is several of them.
_SEQUENCE_FIELDS = ("token_ids", "segment_ids", "padding_mask", "text_mask")


def sequences_apart(batch):
    """Gives every sequence of an example a row, for the encoder.

    Args:
        batch: fields [B, C, T], or [B * C, T] already.

    Returns:
        The batch with these fields as [B * C, T] and `example_rows` [B, C], the rows of each
        example; all others as they are, which is all of it where these are [B * C, T] already.
    """
    if len(batch["token_ids"].shape) < 3:
        return batch
    rows, count, length = ops.shape(batch["token_ids"])
    flat = {
        name: ops.reshape(batch[name], (rows * count, length))
        for name in _SEQUENCE_FIELDS
        if name in batch
    }
    return {**batch, **flat, "example_rows": ops.reshape(ops.arange(rows * count), (rows, count))}


def check_pooled(name, pooling, encoder):
    """Raises UserError where the encoder with the `Config` given has nothing to pool like that."""
    if pooling == "pooled" and not encoder.pooler:
        raise UserError(
            f"{name} reads the pooled output: set encoder.pooler to true, or pooling to first or "
            "mean"
        )
    if pooling == "first" and encoder.pooled_position != "first":
        raise UserError(
            f"{name}.pooling: first, and this encoder has encoder.pooled_position: "
            f"{encoder.pooled_position}: take pooled"
        )


def class_terms(name, logits, labels, weights):
    """`Terms` of a choice between classes: cross-entropy and accuracy.

    Args:
        name: the term.
        logits: [B, classes], in the type of losses.
        labels: int [B].
        weights: [B].
    """
    losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    hits = ops.cast(ops.equal(ops.argmax(logits, axis=-1), labels), weights.dtype)
    return Terms(
        losses={name: ops.sum(losses * weights)},
        metrics={f"{name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
    )


def token_terms(name, logits, targets, weights):
    """`Terms` of predicted tokens: cross-entropy and accuracy.

    Args:
        name: the term.
        logits: [R, V], in the type of losses.
        targets: int [R].
        weights: [R].
    """
    losses = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    # One pass over [R, V], which is large; an arg-max takes several.
    scores = ops.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    hits = ops.cast(scores >= ops.max(logits, axis=-1), weights.dtype)
    return Terms(
        losses={name: ops.sum(losses * weights)},
        metrics={f"{name}_accuracy": (ops.sum(hits * weights), ops.sum(weights))},
    )


HISTOGRAM_BINS = 200
_HISTOGRAM_END = 10.0


def score_histograms(logits, labels, weights):
    """Counts the scores of a yes-or-no question by class, for the area under the ROC curve.

    Sums of histograms over batches and replicas give the area over all of them; it is exact but
    for pairs of scores within the same bin, a logit difference of 0.1, which count as ties.

    Args:
        logits: any shape.
        labels: 0 or 1 for each.
        weights: of each.

    Returns:
        Weights of the scores of class 1, and of class 0, in bins of rising score:
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
