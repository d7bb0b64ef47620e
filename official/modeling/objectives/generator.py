"""The generator of ELECTRA: a small masked language model (Clark et al. 2020).

The generator runs before the encoder. It reads the masked text, and each masked position is filled
with a token drawn from its distribution. The encoder then reads the filled text. Other objectives
predict which tokens are not the original ones (`replaced_tokens`, ELECTRA), the original tokens of
the masked positions (`masked_lm`, the paper's Replace MLM), or the original tokens of all positions
(`all_tokens_lm`, its All-tokens MLM).

Shapes: B batch, T length, P predictions, D hidden, V vocabulary, R = B * P rows.
"""

import math
import zlib

from keras import ops

from official.config.objectives import SHARED, MaskedLMConfig
from official.config.registry import module_of
from official.modeling.encoders.base import Encoder
from official.modeling.encoders.inputs import encode_read
from official.modeling.layers import gather
from official.modeling.layers.base import parts
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws, uniforms
from official.modeling.objectives import base, masked_lm
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError


def sample(logits: Tensor, row_seeds) -> Tensor:
    """Draws a token for each position, by the inverse of the cumulative softmax.

    The vocabulary is cut into blocks: a random number in [0, 1) chooses the block by its
    probability, and what is left of the number chooses the token in the block. The draws of a row
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
    """Returns the first index whose cumulative weight exceeds a number, and what is left of it.

    Rounding may leave a number that nothing exceeds: then it is the last index with a weight.

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


class Objective(base.Objective):
    """A second encoder (or the encoder itself) with a masked-LM head.

    The paths of variables begin with `generator/encoder/` and `generator/masked_lm/`, and continue
    as in an encoder and a masked LM. Shared variables have only the paths of the encoder.
    """

    def __init__(self, config, encoder_config, *, name="generator", seed=0, dtype=None):
        super().__init__(config, encoder_config, name=name, seed=seed, dtype=dtype)
        self.seed = seed ^ zlib.crc32(name.encode())  # other initial weights than the encoder
        try:
            self.network = config.network(encoder_config)
        except ValueError as error:
            raise UserError(f"{name}: {error}") from None
        self.head = masked_lm.Objective(
            MaskedLMConfig(), self.network, seed=self.seed, dtype=self.dtype_policy
        )
        self.generator = self.baseline = None
        if config.baseline:
            self.baseline = Linear(
                self.network.hidden_size,
                1,
                initializer=self.initializer,
                name="baseline",
                dtype=self.dtype_policy,
            )

    def attach(self, encoder: Encoder) -> None:
        """See `base.Objective`."""
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

    def build(self, input_shape=None):
        """Creates the variables."""
        if not self.generator.built:
            self.generator.build()
        self.head.build()
        if self.baseline is not None:
            self.baseline.build()
        if self.config.frozen:
            self.trainable = False

    @property
    def term_weights(self) -> dict[str, float]:
        """See `base.Objective`."""
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
        masked = gather.place(real, positions, length) > 0  # [B, T]

        def filled(ids):
            ids = gather.place(ops.cast(ids, "int32") * real, positions, length)
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

    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        """See `base.Objective`."""
        return {self.name: self.head.weight_sums(batch)["masked_lm"]}

    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        """See `base.Objective`."""
        terms = self.head.terms_of(batch, batch["generator_logits"])
        return base.Terms(
            losses={self.name: terms.losses["masked_lm"]},
            metrics={f"{self.name}_accuracy": terms.metrics["masked_lm_accuracy"]},
        )
