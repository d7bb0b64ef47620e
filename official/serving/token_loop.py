"""The loop that generates a token at a time, greedily or by draws, for all kinds of generators.

Shapes: B batch, N maximum number of new tokens, V vocabulary.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from official.serving.generation_settings import Settings, drawn, likeliest
from official.serving.logits_processors import Processors
from official.utils import seeding

# Chooses token i, int32 [B], from its logits [B, V].
Choice = Callable[[tf.Tensor, int | tf.Tensor], tf.Tensor]
# Computes the logits of token i + 1, [B, V], and the next cache from token i, int32 [B].
Read = Callable[[tf.Tensor, tf.Tensor, Any], tuple[tf.Tensor, Any]]


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
        return lambda logits, _: likeliest(logits)
    uniforms = seeding.uniforms(seeds, seeding.Stream.GENERATION, count)  # [B, N]

    def choose(logits: tf.Tensor, i: int | tf.Tensor) -> tf.Tensor:
        return drawn(logits, tf.gather(uniforms, i, axis=1), temperature, top_k, top_p)

    return choose


@dataclasses.dataclass(frozen=True)
class TokenLoop:
    """Generates tokens until all rows have ended.

    Attributes:
      count: N.
      end_id: the last token of a text.
      pad_id: fills the places after the end token.
      process: changes the logits [B, V] by the tokens before, see
        `logits_processors.Processors`; None = it does not.
    """

    count: int
    end_id: int
    pad_id: int
    process: Processors | None = None

    def run(self, choose: Choice, read: Read, logits: tf.Tensor, cache: Any) -> tf.Tensor:
        """Generates tokens.

        Args:
          choose: chooses a token from its logits.
          read: reads a token.
          logits: those of token 0, float [B, V].
          cache: nested tensors of static shapes.

        Returns:
          int32 [B, N].
        """
        columns = tf.range(self.count)
        if self.process is not None:
            nothing = tf.fill([tf.shape(logits)[0], self.count], self.pad_id)
            logits = self.process(logits, nothing, 0)
        token = choose(logits, 0)
        written = tf.where(columns == 0, token[:, None], self.pad_id)  # [B, N]

        def step(i, token, ended, written, cache):
            logits, cache = read(token, i - 1, cache)
            if self.process is not None:
                logits = self.process(logits, written, i)
            token = tf.where(ended, self.pad_id, choose(logits, i))
            written = tf.where(columns == i, token[:, None], written)
            return i + 1, token, ended | (token == self.end_id), written, cache

        def is_unfinished(i, token, ended, written, cache):
            del token, written, cache
            return (i < self.count) & ~tf.reduce_all(ended)

        state = tf.constant(1), token, token == self.end_id, written, cache
        return tf.while_loop(is_unfinished, step, state)[3]
