"""Bidirectional language modeling: the next word of a text, and of its sentences reversed.

The loss is half the sum of the means of both directions (Peters et al., 2018, section 3.1). Both
share one output layer, a kernel row and a bias for each word of the vocabulary, which is not tied
to an input table. In training the softmax is over sampled words (Jean et al., 2015): the words of
`sampled_classes`, and the target. The logarithm of the expected count of a word is subtracted from
its logit. Each direction draws different words, equal on all replicas. The gradients of kernel and
bias are sparse. Evaluation uses all words, so the losses of training and evaluation are not
comparable.

Shapes: B batch, T length, R = B * T rows, P projection, V vocabulary, N sampled words.
"""

import math
from typing import Any

from keras import ops
from typing_extensions import override

from official.config.encoders import BilmConfig
from official.config.objectives import BidirectionalLMConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.embeddings import products
from official.modeling.layers.kernels import cross_entropy
from official.modeling.layers.random import Draws, RandomWeights, uniforms
from official.modeling.objectives import base
from official.modeling.types import Batch, Encoded, Tensor

DIRECTIONS = {"forward": "target_ids", "backward": "backward_target_ids"}
_MASKED = -1e9  # the logit of a sampled word that is the target
_LOGITS_AT_ONCE = 1 << 24  # logits that an evaluation computes at once
_DTYPE = "float32"  # the dtype of random numbers


class Objective(base.Objective):
    """Predicts the next word of both directions."""

    config: BidirectionalLMConfig
    encoder_config: BilmConfig

    def __init__(
        self,
        config: BidirectionalLMConfig,
        encoder_config: BilmConfig,
        *,
        seed: int = 0,
        **options: Any,
    ):
        super().__init__(config, encoder_config, seed=seed, **options)
        draws = Draws.of_name(seed, self.name)
        self._normal = RandomWeights("normal", encoder_config.projection_size**-0.5, draws)

    def build(self, input_shape=None):
        """Creates the kernel [V, P] and the bias [V]."""
        size, projection = self.encoder_config.known_vocab_size, self.encoder_config.projection_size
        # Rows are cast after the lookup, because casting the whole variable would make its gradient
        # dense.
        self.kernel = self.add_weight(
            (size, projection), self._normal, name="kernel", autocast=False
        )
        self.bias = self.add_weight((size,), "zeros", name="bias", autocast=False)

    @property
    def term_weights(self) -> dict[str, float]:
        """The factor of each term in the loss: {term: float}."""
        return {f"{self.name}_{direction}": self.config.weight / 2 for direction in DIRECTIONS}

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        total = ops.sum(self._weights(batch))
        return dict.fromkeys(self.term_weights, total)

    @override
    def text_targets(self, batch: Batch) -> dict[str, Any]:
        """See `base.Objective`: [B, T] of each direction."""
        weights = self._weights(batch)
        return {f"{self.name}_{name}": (batch[ids], weights) for name, ids in DIRECTIONS.items()}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`.

        The first P features of `sequence_output` [B, T, 2P] belong to the forward rows, the last P
        to the backward rows.
        """
        weights = ops.reshape(self._weights(batch), (-1,))
        states = ops.split(encoded["sequence_output"], 2, axis=-1)
        losses, metrics = {}, {}
        for (direction, field), hidden in zip(DIRECTIONS.items(), states, strict=True):
            name = f"{self.name}_{direction}"
            hidden = ops.reshape(hidden, (-1, self.encoder_config.projection_size))
            targets = ops.reshape(batch[field], (-1,))
            if rng is not None and self.config.samples:
                loss = self.sampled_losses(hidden, targets, rng)
            else:
                loss, hits = self.full_losses(hidden, targets, in_blocks=rng is None)
                hits = ops.sum(ops.cast(hits, weights.dtype) * weights)
                metrics[f"{name}_accuracy"] = (hits, ops.sum(weights))
            losses[name] = ops.sum(loss * weights)
        return base.Terms(losses=losses, metrics=metrics)

    def sampled_losses(self, hidden: Tensor, targets: Tensor, rng: Draws) -> Tensor:
        """Returns the cross-entropy of targets among sampled words.

        Args:
            hidden: [R, P].
            targets: int [R].
            rng: `Draws` of the words.

        Returns:
            [R], in the dtype of losses.
        """
        size = self.encoder_config.known_vocab_size
        sampled, tries = sampled_classes(self.config.samples, size, rng)
        offsets = [
            ops.take(self.bias, ids, axis=0)
            - ops.cast(log_expected_counts(ids, tries, size), self.bias.dtype)
            for ids in (targets, sampled)
        ]
        right, others = (
            ops.cast(ops.take(self.kernel, ids, axis=0), self.compute_dtype)
            for ids in (targets, sampled)
        )
        right = ops.sum(self.as_loss(hidden) * self.as_loss(right), axis=-1)  # [R]
        right = right + self.as_loss(offsets[0])
        logits = self.as_loss(products(hidden, others))  # [R, N]
        logits = logits + self.as_loss(offsets[1])
        logits = ops.where(ops.equal(targets[:, None], sampled), _MASKED, logits)
        logits = ops.concatenate([right[:, None], logits], axis=1)
        return cross_entropy(logits, ops.zeros_like(targets))[0]

    def full_losses(self, hidden: Tensor, targets: Tensor, in_blocks: bool = False):
        """Returns the cross-entropy of targets over all words, and whether each ranks first.

        Args:
            hidden: [R, P].
            targets: int [R].
            in_blocks: whether rows are computed in blocks to save memory; then there are no
              gradients.

        Returns:
            [R] in the dtype of losses, and bool [R].
        """
        kernel = ops.cast(self.kernel, self.compute_dtype)
        bias = self.as_loss(self.bias)

        def of_rows(rows):
            logits = self.as_loss(products(rows[0], kernel)) + bias
            losses, _, hits = cross_entropy(logits, rows[1])
            return losses, hits

        at_once = max(1, _LOGITS_AT_ONCE // self.encoder_config.known_vocab_size)
        count = ops.shape(targets)[0]
        if not in_blocks or count <= at_once:
            return of_rows((hidden, targets))
        blocks = -(-count // at_once)
        more = blocks * at_once - count
        hidden = ops.reshape(ops.pad(hidden, ((0, more), (0, 0))), (blocks, at_once, -1))
        targets = ops.reshape(ops.pad(targets, ((0, more),)), (blocks, at_once))
        losses, hits = ops.map(of_rows, (hidden, targets))
        return ops.reshape(losses, (-1,))[:count], ops.reshape(hits, (-1,))[:count]

    def _weights(self, batch: Batch) -> Tensor:
        """Returns the weight of each target: [B, T]."""
        return self.as_loss(batch["padding_mask"]) * self.example_weights(batch)[:, None]


def sampled_classes(count: int, size: int, rng: Draws) -> tuple[Tensor, Tensor]:
    """Draws distinct classes by a log-uniform distribution, without replacement.

    It suits classes in the order of descending counts: p(k) = log((k + 2) / (k + 1)) / log(V + 1).
    Tries are draws with replacement, until there are enough distinct classes. After t tries, class
    k is among them with the probability 1 - (1 - p)^t, its expected count (the sampler of ELMo's
    release).

    Here t is a real number, a time, and each class arrives at an independent random time, which is
    exponential with the rate -log(1 - p). It has arrived by time t with the same probability, and
    no loop is needed. The tries of N classes are the time at which the next class, N + 1, arrives,
    which is not among them. Then a class that is drawn and weighted with 1 / its expected count has
    exactly the expectation 1 (bottom-k sampling with exponential ranks: Cohen and Kaplan, 2007).
    With the integer number of tries up to class N, the weights would be too large by a factor of
    about 1 + 1 / 2N.

    Args:
        count: N, at most V.
        size: V.
        rng: `official.modeling.layers.random.Draws`.

    Returns:
        The classes in order of arrival, int32 [N], and the tries, a scalar: infinite if N = V.
    """
    rates = -ops.log1p(-log_uniform_probabilities(ops.arange(size, dtype="int32"), size))
    times = -ops.log1p(-uniforms(rng.next_pair(), size)) / rates
    if count == size:
        return ops.argsort(times), ops.convert_to_tensor(math.inf, _DTYPE)
    first, classes = ops.top_k(-times, count + 1)
    return ops.cast(classes[:count], "int32"), -first[count]


def log_uniform_probabilities(classes: Tensor, size: int) -> Tensor:
    """Returns the probability of classes, int [...], in one try: [...].

    `size` is V.
    """
    classes = ops.cast(classes, _DTYPE)
    return ops.log1p(1 / (classes + 1)) / math.log(size + 1)


def log_expected_counts(classes: Tensor, tries: Tensor, size: int) -> Tensor:
    """Returns the logarithm of the probability that classes are drawn in some tries: [...].

    Args:
        classes: int [...].
        tries: scalar, the number of tries.
        size: V.
    """
    return ops.log(-ops.expm1(tries * ops.log1p(-log_uniform_probabilities(classes, size))))
