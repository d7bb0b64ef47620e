"""How the next token is chosen: the likeliest one, or one drawn from the likely ones.

Shapes: B rows, V vocabulary.
"""

import dataclasses
import numbers

import numpy as np
import tensorflow as tf

from official.utils.errors import UserError

# What is wrong with a value, behind the value.
_TEMPERATURE = "is not a finite number of at least 0; 0 takes the likeliest token"
_TOP_K = "is negative; 0 stands for all tokens"
_TOP_P = "is not in (0, 1]; 1 stands for all tokens"


@dataclasses.dataclass(frozen=True)
class Settings:
    """How tokens are chosen.

    Attributes:
      max_new_tokens: N; a row ends earlier with the token that ends a sequence.
      temperature: scores are divided by it; 0 = always the likeliest token (greedy).
      top_k: only so many of the likeliest tokens; 0 = all.
      top_p: only the likeliest tokens whose chances, after `top_k`, add up to this; 1 = all.
      seed: of the draws, which are a function of it, the prompt's number and the token's.
    """

    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self):
        """Raises UserError where a value cannot be."""
        for name in ("max_new_tokens", "top_k", "seed"):
            if not isinstance(getattr(self, name), numbers.Integral):
                raise UserError(f"{name}: {getattr(self, name)!r} is not a whole number")
        for name in ("temperature", "top_p"):
            if not isinstance(getattr(self, name), numbers.Real):
                raise UserError(f"{name}: {getattr(self, name)!r} is not a number")
        if self.max_new_tokens < 1:
            raise UserError(f"max_new_tokens: {self.max_new_tokens} is less than 1")
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"temperature: {self.temperature} {_TEMPERATURE}")
        if self.top_k < 0:
            raise UserError(f"top_k: {self.top_k} {_TOP_K}")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p: {self.top_p} {_TOP_P}")
        if not self.temperature and (self.top_k or self.top_p < 1):
            raise UserError(
                f"top_k: {self.top_k}, top_p: {self.top_p}: with temperature 0 the likeliest token "
                "is taken and none is drawn: leave these out, or give another temperature"
            )


def checked(
    temperature: tf.Tensor, top_k: tf.Tensor, top_p: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the settings of a served request after it is known that `Settings` takes them.

    The graph raises InvalidArgumentError otherwise, and names the setting and its value.
    """
    finite = (temperature >= 0) & (temperature < np.inf)
    checks = [
        tf.debugging.Assert(finite, ["temperature:", temperature, _TEMPERATURE]),
        tf.debugging.Assert(top_k >= 0, ["top_k:", top_k, _TOP_K]),
        tf.debugging.Assert((top_p > 0) & (top_p <= 1), ["top_p:", top_p, _TOP_P]),
    ]
    with tf.control_dependencies(checks):
        return tf.identity(temperature), tf.identity(top_k), tf.identity(top_p)


def likeliest(logits: tf.Tensor) -> tf.Tensor:
    """The likeliest token of each row [B, V], the first of several: int32 [B]."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def drawn(
    logits: tf.Tensor,
    uniforms: tf.Tensor,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
) -> tf.Tensor:
    """Draws a token for each row.

    Args:
      logits: float [B, V].
      uniforms: [B], in [0, 1); the draw is a rising function of it, likelier tokens first.
      temperature: scalar; 0 = the likeliest token whatever the rest says.
      top_k: scalar int; 0 = all.
      top_p: scalar.

    Returns:
      int32 [B].
    """
    chances, tokens = likeliest_first(logits, temperature, top_k, top_p)
    sums = tf.cumsum(chances, axis=-1)
    bounds = tf.cast(uniforms, sums.dtype)[:, None] * sums[:, -1:]
    places = tf.reduce_sum(tf.cast(sums <= bounds, tf.int32), axis=-1)
    # The product may be rounded up to the whole sum.
    last = tf.reduce_sum(tf.cast(chances > 0, tf.int32), axis=-1) - 1
    places = tf.where(temperature > 0, tf.minimum(places, last), 0)
    return tf.gather(tokens, places, batch_dims=1)


def likeliest_first(
    logits: tf.Tensor, temperature: tf.Tensor, top_k: tf.Tensor, top_p: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Chances [B, V], falling, 0 for what is left out, and their tokens; as in `drawn`.

    The likeliest token always stays, however small `temperature` and `top_p` are.
    """
    size = logits.shape[-1]
    scores, tokens = tf.math.top_k(logits, k=size)
    # Differences from the best score: a tiny temperature makes them -inf, and never inf.
    scores = (scores - scores[:, :1]) / tf.cast(_divisor(temperature), scores.dtype)
    kept = tf.range(size) < tf.where(top_k > 0, top_k, size)
    chances = tf.nn.softmax(tf.where(kept, scores, -np.inf))
    before = tf.cumsum(chances, axis=-1, exclusive=True)
    top_p = tf.cast(top_p, chances.dtype)
    kept = (tf.range(size) == 0) | (before < top_p) | (top_p >= 1)
    return tf.where(kept, chances, 0), tokens


def _divisor(temperature: tf.Tensor) -> tf.Tensor:
    """The temperature, or 1 for 0; one that the processor rounds to 0 is raised above it."""
    tiny = tf.constant(np.finfo(temperature.dtype.as_numpy_dtype).tiny, temperature.dtype)
    return tf.where(temperature > 0, tf.maximum(temperature, tiny), 1)
