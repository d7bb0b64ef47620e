"""Logits processors: rules that change the scores of the next token by the tokens before it.

They are those of transformers, in its order: the penalty of repeated tokens (Keskar et al. 2019,
section 4.1), n-grams that occur once, and the minimum number of new tokens. The tokens before the
next one are the prompt of a causal LM, or the start token of a decoder, and the new tokens. The
padding of a prompt does not count.

Shapes: R rows, P tokens of the prompts, N maximum number of new tokens, V vocabulary.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from official.serving.generation_settings import Settings


def options(settings: Settings) -> dict[str, Any] | None:
    """Returns the arguments of `Processors` for a request; None if all rules are off.

    Numbers that graphs need not be made anew for are tensors.
    """
    asked: dict[str, Any] = {}
    if settings.repetition_penalty != 1:
        asked["repetition_penalty"] = tf.constant(settings.repetition_penalty, tf.float32)
    if settings.no_repeat_ngram_size:
        asked["no_repeat_ngram_size"] = settings.no_repeat_ngram_size
    if settings.min_new_tokens:
        asked["min_new_tokens"] = tf.constant(settings.min_new_tokens, tf.int32)
    return asked or None


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

    def repeated(self, count: int) -> "Processors":
        """Returns the rules for `count` rows in place of each."""
        prompt, padding = (tf.repeat(x, count, axis=0) for x in (self.prompt, self.padding))
        return dataclasses.replace(self, prompt=prompt, padding=padding)

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
