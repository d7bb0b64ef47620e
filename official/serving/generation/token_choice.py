"""How the next token is chosen from its logits: rules, then the likeliest token or a sample.

The rules are the logits processors of transformers in its order: the penalty of repeated tokens
(Keskar et al. 2019, section 4.1), n-grams that occur once, and the minimum number of new tokens.
The tokens before the next one are the prompt of a causal LM, or the start token of a decoder, and
the new tokens. The padding of a prompt does not count.

In a graph of the loop, the key-value cache is written in place, without a copy.

Shapes: B or R rows, N maximum number of new tokens, P tokens of the prompts, V vocabulary.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from official.modeling.layers import kernels
from official.modeling.token_loop import likeliest
from official.saving.generation_settings import Settings
from official.utils import seeding

# Chooses token i, int32 [B], from its logits [B, V].
Choice = Callable[[tf.Tensor, int | tf.Tensor], tf.Tensor]


def options(settings: Settings) -> dict[str, Any] | None:
    """Returns the arguments of `Processors` for a request; None if all rules are off.

    Numbers that graphs need not be made anew for are tensors.
    """
    rules: dict[str, Any] = {}
    if settings.repetition_penalty != 1:
        rules["repetition_penalty"] = tf.constant(settings.repetition_penalty, tf.float32)
    if settings.no_repeat_ngram_size:
        rules["no_repeat_ngram_size"] = settings.no_repeat_ngram_size
    if settings.min_new_tokens:
        rules["min_new_tokens"] = tf.constant(settings.min_new_tokens, tf.int32)
    return rules or None


@dataclasses.dataclass(frozen=True)
class Processors:
    """The rules of a search.

    Attributes:
      prompt: the tokens before the new ones, int32 [R, P].
      padding: the number of places of padding on the left of each prompt, int32 [R].
      end_id: the token that ends a text.
      repetition_penalty: divides positive scores of tokens that are there, and multiplies negative
        ones; None = no penalty.
      no_repeat_ngram_size: the length of the n-grams that occur once; None = there are none.
      min_new_tokens: the number of new tokens before the end token; None = 0.
    """

    prompt: tf.Tensor
    padding: tf.Tensor
    end_id: int
    repetition_penalty: float | tf.Tensor | None = None
    no_repeat_ngram_size: int | None = None
    min_new_tokens: int | tf.Tensor | None = None

    def __call__(self, scores: tf.Tensor, new: tf.Tensor, i: int | tf.Tensor) -> tf.Tensor:
        """Applies the rules to the scores of new token `i`.

        Args:
          scores: logits or log-probabilities, float [R, V].
          new: the new tokens, int32 [R, N], of which the first `i` are written.
          i: the number of this token.

        Returns:
          float32 [R, V].
        """
        shape = scores.shape
        scores = tf.cast(scores, tf.float32)
        if self.repetition_penalty is not None or self.no_repeat_ngram_size is not None:
            tokens = tf.concat([self.prompt, new], axis=1)  # [R, P + N]
            length = tf.shape(self.prompt)[1] + i
        if self.repetition_penalty is not None:
            columns = tf.range(tf.shape(tokens)[1])
            there = (columns >= self.padding[:, None]) & (columns < length)
            there = _marked(tokens, there, scores)
            penalty = tf.cast(self.repetition_penalty, scores.dtype)
            penalized = tf.where(scores < 0, scores * penalty, scores / penalty)
            scores = tf.where(there, penalized, scores)
        if self.no_repeat_ngram_size is not None:
            banned = self._banned(tokens, length, self.no_repeat_ngram_size)
            scores = tf.where(_marked(tokens, banned, scores), float("-inf"), scores)
        if self.min_new_tokens is not None:
            ends = tf.range(tf.shape(scores)[1]) == self.end_id
            scores = tf.where(ends & (i < self.min_new_tokens), float("-inf"), scores)
        return tf.ensure_shape(scores, shape)

    def _banned(self, tokens: tf.Tensor, length: tf.Tensor, size: int) -> tf.Tensor:
        """Returns which tokens follow an earlier copy of the last `size` - 1 tokens: [R, S]."""
        columns = tf.range(tf.shape(tokens)[1])
        banned = (columns >= self.padding[:, None] + size - 1) & (columns < length)
        # The token `back` places before a column is compared with the one `back` places before the
        # next token. What `roll` brings from the other end is not in `banned`.
        for back in range(1, min(size, tokens.shape[1])):
            last = tf.gather(tokens, tf.maximum(length - back, 0), axis=1)  # [R]
            banned &= tf.roll(tokens, back, axis=1) == last[:, None]
        return banned


def _marked(tokens: tf.Tensor, chosen: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns which entries of the vocabulary are among the chosen tokens [R, S]: bool [R, V]."""
    rows = tf.broadcast_to(tf.range(tf.shape(tokens)[0])[:, None], tf.shape(tokens))
    places = tf.stack([rows, tokens], axis=2)  # [R, S, 2]
    return tf.scatter_nd(places, tf.cast(chosen, tf.int32), tf.shape(scores)) > 0


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
      uniforms: random numbers in [0, 1), [B]. Small numbers choose the most probable tokens.
      temperature: scalar; 0 = the most probable token, whatever the other settings are.
      top_k: scalar int; 0 = all.
      top_p: scalar.

    Returns:
      int32 [B].
    """
    probabilities, tokens = likeliest_first(logits, temperature, top_k, top_p)
    sums = tf.cumsum(probabilities, axis=-1)
    bounds = tf.cast(uniforms, sums.dtype)[:, None] * sums[:, -1:]
    ranks = tf.reduce_sum(tf.cast(sums <= bounds, tf.int32), axis=-1)
    # The product may be rounded up to the total.
    last = tf.reduce_sum(tf.cast(probabilities > 0, tf.int32), axis=-1) - 1
    ranks = tf.where(temperature > 0, tf.minimum(ranks, last), 0)
    return tf.gather(tokens, ranks, batch_dims=1)


def likeliest_first(
    logits: tf.Tensor, temperature: tf.Tensor, top_k: tf.Tensor, top_p: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns probabilities [B, K] in descending order and their tokens; arguments as in `drawn`.

    K is `top_k`, V if that is 0, and 1 if `temperature` is 0: only for V the vocabulary is sorted.
    The probability of a token that cannot be drawn is 0. The most probable token can always be
    drawn, however small `temperature` and `top_p` are.
    """
    size = logits.shape[-1]
    count = tf.where(top_k > 0, tf.minimum(top_k, size), size)
    count = tf.where(temperature > 0, count, 1)
    scores, tokens = tf.math.top_k(logits, k=count)
    # With differences from the best score, a tiny temperature gives -inf and never inf.
    scores = (scores - scores[:, :1]) / tf.cast(_divisor(temperature), scores.dtype)
    probabilities = tf.nn.softmax(scores)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)
    top_p = tf.cast(top_p, probabilities.dtype)
    kept = (tf.range(count) == 0) | (before < top_p) | (top_p >= 1)
    return tf.where(kept, probabilities, 0), tokens


def _divisor(temperature: tf.Tensor) -> tf.Tensor:
    """Returns the temperature, or 1 for 0. A value that would be rounded to 0 is raised above 0."""
    tiny = tf.constant(np.finfo(temperature.dtype.as_numpy_dtype).tiny, temperature.dtype)
    return tf.where(temperature > 0, tf.maximum(temperature, tiny), 1)


def draws(settings: Settings, numbers: np.ndarray, vocab_size: int) -> dict[str, tf.Tensor]:
    """Returns the arguments of `choice` for a request, empty if the search is greedy.

    Args:
      settings: the settings of sampling.
      numbers: the numbers of the texts, int [B]. The draws for a text depend on its number. With
        `num_return_sequences`, there are so many rows of each text.
      vocab_size: V.
    """
    if not settings.temperature:
        return {}
    copies = settings.num_return_sequences
    numbers = np.repeat(numbers, copies)
    again = tf.constant(np.arange(len(numbers)) % copies, tf.int64)
    return {
        "seeds": seeding.row_seeds(settings.seed, again, tf.constant(numbers, tf.int64)),
        "temperature": tf.constant(settings.temperature, tf.float32),
        "top_k": tf.constant(min(settings.top_k, vocab_size), tf.int32),
        "top_p": tf.constant(settings.top_p, tf.float32),
    }


def choice(
    count: int,
    seeds: tf.Tensor | None = None,
    temperature: tf.Tensor | None = None,
    top_k: tf.Tensor | None = None,
    top_p: tf.Tensor | None = None,
) -> Choice:
    """Returns the function that chooses `count` tokens; without `seeds`, uint64 [B], greedily."""
    if seeds is None:
        return likeliest
    uniforms = seeding.uniforms(seeds, seeding.Stream.GENERATION, count)  # [B, N]

    def choose(logits: tf.Tensor, i: int | tf.Tensor) -> tf.Tensor:
        return drawn(logits, tf.gather(uniforms, i, axis=1), temperature, top_k, top_p)

    return choose


def write_slots(slots: tf.Tensor, new: tf.Tensor, first: int | tf.Tensor) -> tf.Tensor:
    """Writes `new` [B, N, T, H] into slots [B, N, S, H], from slot `first` on.

    The result has the memory of `slots` if nothing else reads them, as in a loop that carries them.
    XLA cannot compile this function.
    """
    size = slots.shape[3]
    start, length = first * size, new.shape[2] * size
    # Rows of two axes are copied in one piece each.
    rows = tf.raw_ops.TensorStridedSliceUpdate(
        input=tf.reshape(slots, [-1, slots.shape[2] * size]),
        begin=tf.stack([0, start]),
        end=tf.stack([0, start + length]),
        strides=[1, 1],
        value=tf.reshape(new, [-1, length]),
        begin_mask=1,
        end_mask=1,
    )  # [B * N, S * H]
    return tf.reshape(rows, tf.shape(slots))


def in_place_graph(function: Callable) -> tf.types.experimental.PolymorphicFunction:
    """Returns the graph of a function, in which writing to a cache makes no copy."""

    def traced(*args, **kwargs):
        with kernels.using(write_slots=write_slots):
            return function(*args, **kwargs)

    return tf.function(traced, autograph=False)
