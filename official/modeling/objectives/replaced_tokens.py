"""Replaced token detection: a generator replaces tokens, and the encoder finds them (ELECTRA).

The `Generator`, a small masked language model, runs before the encoder (Clark et al. 2020). It
reads the masked text, and each masked position is filled with a token drawn from its distribution.
The encoder then reads the filled text. `ReplacedTokens` predicts which tokens are not the original
ones. Alternatively, `masked_lm` predicts the original tokens of the masked positions (the paper's
Replace MLM), or `all_tokens_lm` those of all positions (its All-tokens MLM).

Shapes: B batch, T length, P predictions, D hidden, V vocabulary, R = B * P rows.
"""

import math
import zlib
from typing import Any

from keras import ops
from typing_extensions import override

from official.config.objectives import SHARED, GeneratorConfig, MaskedLMConfig, ReplacedTokensConfig
from official.config.parts import EncoderConfig
from official.config.registry import module_of
from official.modeling.encoders.base import Encoder
from official.modeling.encoders.inputs import encode_read
from official.modeling.layers.activation import ACTIVATIONS
from official.modeling.layers.base import parts
from official.modeling.layers.kernels import add_at_positions, flat_positions, take_positions
from official.modeling.layers.linear import Linear
from official.modeling.layers.norm import LayerNorm
from official.modeling.layers.random import Draws, uniforms
from official.modeling.objectives import base, masked_lm
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError


class Generator(base.Objective):
    """A second encoder (or the encoder itself) with a masked-LM head.

    The paths of variables begin with `generator/encoder/` and `generator/masked_lm/`, and continue
    as in an encoder and a masked LM. Shared variables have only the paths of the encoder.

    Attributes:
        generator: the second encoder, or the encoder itself; set by `attach`.
    """

    config: GeneratorConfig

    generator: Encoder

    def __init__(
        self,
        config: GeneratorConfig,
        encoder_config: EncoderConfig,
        *,
        seed: int = 0,
        **options: Any,
    ):
        super().__init__(config, encoder_config, seed=seed, **options)
        # initial weights differ from the encoder's
        self.seed = seed ^ zlib.crc32(self.name.encode())
        try:
            self.network = config.network(encoder_config)
        except ValueError as error:
            raise UserError(f"{self.name}: {error}") from None
        self.head = masked_lm.MaskedLM(
            MaskedLMConfig(enhanced_mask_decoder=config.enhanced_mask_decoder),
            self.network,
            seed=self.seed,
            dtype=self.dtype_policy,
        )
        self.baseline = None
        if config.baseline:
            self.baseline = Linear(
                self.network.hidden_size,
                1,
                initializer=self.initializer,
                name="baseline",
                dtype=self.dtype_policy,
            )

    @override
    def attach(self, encoder: Encoder) -> None:
        shared = SHARED[self.config.sharing]
        if shared is None:
            self.generator = encoder
            return
        with parts():
            self.generator = module_of(self.network).Encoder(
                self.network,
                seed=self.seed,
                shared={part: getattr(encoder.embeddings, part) for part in shared},
                dtype=self.dtype_policy,
            )
        if self.config.sharing == "gdes":
            encoder.token_table.add_to(self.generator.token_table)

    @override
    def build(self, input_shape=None):
        if not self.generator.built:
            self.generator.build()
        self.head.build()
        if self.baseline is not None:
            self.baseline.build()
        if self.config.frozen:
            self.trainable = False

    @property
    @override
    def term_weights(self) -> dict[str, float]:
        return {self.name: 0.0 if self.config.frozen else self.config.weight}

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Fills the masked positions with draws from the generator.

        Returns:
            The batch with filled `token_ids`, and with `original_ids` int [B, T] (the text before
            masking), `masked` bool [B, T] (the positions to predict), `replaced` bool [B, T]
            (where the draw differs from the original) and the scores of the generator
            `generator_logits` [R, V]. With `baseline` also `sample_log_probs` [B, P], the log
            probability of each draw, and `baseline_logits` [B, P].
        """
        positions, weights = batch["masked_positions"], batch["masked_weights"]  # [B, P]
        rng = None if self.config.frozen else rng
        encoded = encode_read(self.generator, [self.head], batch, rng)
        (hidden,) = self.head.states_read(batch, encoded)  # [B, P, D]
        hidden = ops.reshape(hidden, (-1, self.network.hidden_size))  # [R, D]
        logits = self.head.logits(hidden, self.generator)  # [R, V]
        scores = ops.reshape(logits / self.config.temperature, (*ops.shape(positions), -1))
        drawn = sample(scores, batch["row_seeds"])  # [B, P]
        length = ops.shape(batch["token_ids"])[1]
        real = ops.cast(weights > 0, "int32")
        masked = add_at_positions(real, positions, length) > 0  # [B, T]

        def filled(ids):
            ids = add_at_positions(ops.cast(ids, "int32") * real, positions, length)
            return ops.where(masked, ids, ops.cast(batch["token_ids"], "int32"))

        original_ids, token_ids = filled(batch["masked_ids"]), filled(drawn)
        if self.baseline is not None:
            chances = ops.take_along_axis(ops.log_softmax(scores), drawn[..., None], axis=-1)
            # The loss of the baseline does not train the generator.
            guesses = self.as_loss(self.baseline(ops.stop_gradient(hidden)))
            batch = {
                **batch,
                "sample_log_probs": chances[..., 0],
                "baseline_logits": ops.reshape(guesses, ops.shape(positions)),
            }
        return {
            **batch,
            "token_ids": token_ids,
            "original_ids": original_ids,
            "masked": masked,
            "replaced": ops.not_equal(token_ids, original_ids),
            "generator_logits": logits,
        }

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: self.head.weight_sums(batch)["masked_lm"]}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        terms = self.head.terms_of(batch, batch["generator_logits"])
        return base.Terms(
            losses={self.name: terms.losses["masked_lm"]},
            metrics={f"{self.name}_accuracy": terms.metrics["masked_lm_accuracy"]},
        )


class ReplacedTokens(base.Objective):
    """A layer with an activation, and a score for each token; the loss is binary cross-entropy.

    In the form of DeBERTa-v3's release, the input of the layer is the norm of each state plus the
    state of the first token of its text.
    """

    config: ReplacedTokensConfig

    def __init__(self, config: ReplacedTokensConfig, encoder_config: EncoderConfig, **options: Any):
        super().__init__(config, encoder_config, **options)
        self.activation = ACTIVATIONS[encoder_config.activation]

        def linear(size, name):
            return Linear(
                encoder_config.hidden_size,
                size,
                initializer=self.initializer,
                name=name,
                dtype=self.dtype_policy,
            )

        self.norm = None
        if config.form == "deberta":
            self.norm = LayerNorm(
                encoder_config.hidden_size,
                epsilon=encoder_config.norm_epsilon,
                name="norm",
                dtype=self.dtype_policy,
            )
        self.transform = linear(encoder_config.hidden_size, "transform")
        self.output_projection = linear(1, "output")

    @override
    def build(self, input_shape=None):
        for layer in (self.norm, self.transform, self.output_projection):
            if layer is not None:
                layer.build()

    def logits(self, hidden: Tensor, batch: Batch | None = None) -> Tensor:
        """Returns the scores of being replaced, for hidden states [B, T, D]: [B, T].

        Only the form of DeBERTa reads the batch, for rows of several texts.
        """
        if self.norm is not None:
            first = hidden[:, :1]
            if (
                batch is not None and "part_starts" in batch
            ):  # the first token of each part of a row
                last = ops.shape(batch["part_starts"])[1] - 1  # padding also gets the last part
                own = ops.minimum(batch["part_ids"], last)
                starts = ops.take_along_axis(batch["part_starts"], own, axis=1)
                first = take_positions(hidden, starts)
            hidden = self.norm(hidden + first)
        hidden = self.activation(self.transform(hidden))
        return self.as_loss(self.output_projection(hidden))[..., 0]

    @property
    @override
    def term_weights(self) -> dict[str, float]:
        weights = {self.name: self.config.weight}
        if weight := self.config.adversarial_weight:
            weights |= {"adversarial": weight, "adversarial_baseline": weight}
        return weights

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        counted = "padding_mask" if self.config.tokens == "all" else "masked_weights"
        sums = {self.name: ops.sum(self._weights(batch, counted))}
        if self.config.adversarial_weight:
            masked = ops.sum(self._weights(batch, "masked_weights"))
            sums |= {"adversarial": masked, "adversarial_baseline": masked}
        return sums

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        logits = self.logits(encoded["sequence_output"], batch)
        counted = "padding_mask" if self.config.tokens == "all" else "masked"
        weights = self._weights(batch, counted)  # [B, T]
        labels = self.as_loss(batch["replaced"])
        losses = ops.softplus(logits) - logits * labels
        hits = self.as_loss(ops.equal(logits > 0, batch["replaced"]))
        total = ops.sum(weights)
        adversarial = self._adversarial(batch, losses) if self.config.adversarial_weight else {}
        return base.Terms(
            losses={self.name: ops.sum(losses * weights), **adversarial},
            metrics={
                f"{self.name}_accuracy": (ops.sum(hits * weights), total),
                f"{self.name}_rate": (ops.sum(labels * weights), total),
                f"{self.name}_auc": base.score_histograms(logits, labels, weights),
            },
        )

    def _adversarial(self, batch: Batch, losses: Tensor):
        """Returns the losses of the generator and its baseline, from the losses [B, T] of tokens.

        The reward of a draw is the loss at its position. REINFORCE raises the probability of draws
        whose reward is above the baseline b = -log sigmoid(w h), where h is the hidden state of the
        generator. exp(-b) is fitted by cross-entropy to exp(-reward), the probability that the
        encoder gave to the right answer.
        """
        positions = batch["masked_positions"]
        rewards = flat_positions(ops.stop_gradient(losses)[..., None], positions)
        rewards = ops.reshape(rewards, ops.shape(positions))  # [B, P]
        guesses, weights = batch["baseline_logits"], self._weights(batch, "masked_weights")
        surprise = rewards - ops.stop_gradient(ops.softplus(-guesses))
        misfit = ops.softplus(guesses) - guesses * ops.exp(-rewards)
        return {
            "adversarial": -ops.sum(surprise * batch["sample_log_probs"] * weights),
            "adversarial_baseline": ops.sum(misfit * weights),
        }

    def _weights(self, batch: Batch, counted) -> Tensor:
        """Returns the weight of each element of the field `counted`, in its shape."""
        return self.as_loss(batch[counted]) * self.example_weights(batch)[:, None]


def sample(logits: Tensor, row_seeds) -> Tensor:
    """Draws a token for each position, by the inverse of the cumulative softmax.

    The vocabulary is cut into blocks: a random number in [0, 1) chooses the block by its
    probability, and the remainder of the number chooses the token in the block. The draws of a row
    depend only on its seed, not on the other rows of the batch. They have no gradient.

    Args:
        logits: [B, P, V].
        row_seeds: int32 [B, 2].

    Returns:
        int32 [B, P].
    """
    logits = ops.stop_gradient(logits)
    batch, count, size = ops.shape(logits)
    width = math.isqrt(size - 1) + 1
    weights = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))
    weights = ops.pad(weights, [[0, 0], [0, 0], [0, -size % width]])
    blocks = ops.reshape(weights, (batch, count, -1, width))
    sums = ops.sum(blocks, axis=-1)  # [B, P, V / width]
    ends = ops.cumsum(sums, axis=-1)
    draws = ops.cast(uniforms(row_seeds, count), weights.dtype)[..., None]
    block, left = _first_beyond(ends, draws * ends[..., -1:], sums)
    own = ops.take_along_axis(blocks, block[..., None], axis=2)[:, :, 0]  # [B, P, width]
    token, _ = _first_beyond(ops.cumsum(own, axis=-1), left, own)
    return (block * width + token)[..., 0]


def _first_beyond(ends: Tensor, number, weights: Tensor):
    """Returns the first index whose cumulative weight exceeds a number, and the remainder.

    If, by rounding, no cumulative weight exceeds the number, it is the last index with a weight.

    Args:
        ends: the cumulative sums of `weights`, [B, P, K].
        number: [B, P, 1].
        weights: [B, P, K].

    Returns:
        int32 [B, P, 1]; the number less the weights before the index, [B, P, 1].
    """
    index = ops.sum(ops.cast(ends <= number, "int32"), axis=-1, keepdims=True)
    places = ops.arange(ends.shape[-1], dtype="int32")
    last = ops.max(ops.where(weights > 0, places, 0), axis=-1, keepdims=True)
    index = ops.minimum(index, last)
    before = ops.take_along_axis(ends - weights, index, axis=-1)
    return index, number - before
