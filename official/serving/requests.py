"""Runs the graphs of a generator on a batch, with the settings of a request.

Shapes: B batch, T length, N maximum number of new tokens, K beams.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from official.serving import token_loop
from official.serving.generation_settings import Settings


def ids(
    write: Callable[..., tf.Tensor],
    search: Callable[..., tuple[tf.Tensor, tf.Tensor]],
    token_ids: np.ndarray,
    padding_mask: np.ndarray,
    settings: Settings,
    numbers: np.ndarray | None,
    vocab_size: int,
) -> np.ndarray:
    """Generates token ids.

    Args:
      write: the graph of greedy search and sampling.
      search: the graph of beam search.
      token_ids: int [B, T].
      padding_mask: bool [B, T].
      settings: the settings, with a temperature.
      numbers: the numbers of the rows, int [B]; None = 0, 1, ... The draws for a row depend on it.
      vocab_size: the number of tokens that can be drawn.

    Returns:
      int32 [B * num_return_sequences, N].
    """
    copies, count = settings.num_return_sequences, settings.max_new_tokens
    rules = token_loop.options(settings)
    if settings.num_beams > 1:
        return beams(search, token_ids, padding_mask, settings)[0][:, :copies].reshape(-1, count)
    numbers = np.arange(len(token_ids)) if numbers is None else numbers
    draws = token_loop.draws(settings, numbers, vocab_size)
    rows = np.repeat(token_ids, copies, axis=0), np.repeat(padding_mask, copies, axis=0)
    inputs = tf.constant(rows[0], tf.int32), tf.constant(rows[1], tf.bool)
    return write(*inputs, count, rules, **draws).numpy()


def beams(
    search: Callable[..., tuple[tf.Tensor, tf.Tensor]],
    token_ids: np.ndarray,
    padding_mask: np.ndarray,
    settings: Settings,
) -> tuple[np.ndarray, np.ndarray]:
    """Searches with beams; arguments as in `ids`.

    Returns:
      int32 [B, K, N], best first, and the scores float32 [B, K].
    """
    found, scores = search(
        tf.constant(token_ids, tf.int32),
        tf.constant(padding_mask, tf.bool),
        settings.max_new_tokens,
        settings.num_beams,
        settings.length_rule,
        tf.constant(settings.length_penalty, tf.float32),
        settings.early_stopping,
        token_loop.options(settings),
    )
    return found.numpy(), scores.numpy()
