"""Token masks that are drawn from all tokens of a batch, rare ones more often.

DistilBERT's release draws ceil(0.15 n) of the n tokens of a batch without replacement, each with a
weight of max(count, 1)^-0.7, and never a special token. (The paper has BERT's masks.) Rows
therefore have different numbers of predictions. A batch is what a replica reads in a step, and
the draws of a row depend on the other rows of it, unlike those of `token_masks`.

Shapes: B rows, T tokens with padding, V pieces of the vocabulary, P predictions (padded).
"""

import numpy as np
import tensorflow as tf

from official.config.corruptions import RareTokenMasksConfig
from official.corruption import token_masks, units
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.errors import UserError
from official.utils.seeding import Stream


def corrupt(
    config: RareTokenMasksConfig,
    vocabulary: Vocabulary,
    batch: dict[str, tf.Tensor],
    seeds: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Hides tokens of a batch, eagerly or in a graph.

    Args:
      config: the config of the corruption.
      vocabulary: the vocabulary of the tokens, with their counts.
      batch: has at least token_ids int32 [B, T] and padding_mask bool [B, T]. Rows with
        `example_weights` [B] of 0 have no predictions.
      seeds: a seed for each row, uint64 [B], from `official.utils.seeding.row_seeds`.

    Returns:
      The batch with masked token_ids, and with masked_positions, masked_ids and masked_weights
      [B, P] as `official.corruption.token_masks` gives them.

    Raises:
      UserError: the counts are unknown.
    """
    token_ids = batch["token_ids"]
    taken = _taken(config, _log_weights(config, vocabulary), batch, seeds)
    times = tf.cast(taken, tf.int32)
    listed = units.list_targets(times, token_ids, config.max_predictions)
    return {
        **batch,
        **listed,
        "token_ids": token_masks.replaced(config, vocabulary, token_ids, times - 1, listed, seeds),
    }


def _log_weights(config: RareTokenMasksConfig, vocabulary: Vocabulary) -> np.ndarray:
    """Returns the logarithm of the weight of each piece, float32 [V]; -inf for special tokens."""
    if vocabulary.counts is None:
        raise UserError(
            "corruption.type: rare_token_masks draws tokens by their counts in the corpus, and "
            "these shards have none: make them again with build_shards"
        )
    weights = -config.exponent * np.log(np.maximum(vocabulary.counts, 1)).astype(np.float32)
    weights[list(vocabulary.special_ids)] = -np.inf
    return weights


def _taken(
    config: RareTokenMasksConfig,
    log_weights: np.ndarray,
    batch: dict[str, tf.Tensor],
    seeds: tf.Tensor,
) -> tf.Tensor:
    """Draws the tokens to predict: bool [B, T].

    The tokens with the largest sums of a log weight and Gumbel noise are a draw without
    replacement (Efraimidis and Spirakis, 2006).
    """
    real = tf.cast(batch["padding_mask"], tf.bool)
    if "example_weights" in batch:
        real &= (batch["example_weights"] > 0)[:, None]
    uniform = seeding.uniforms(seeds, Stream.MASK_ORDER, tf.shape(real)[1])
    noise = -tf.math.log(-tf.math.log(uniform + np.float32(2.0**-25)))
    keys = tf.gather(log_weights, batch["token_ids"]) + noise  # [B, T]
    keys = tf.where(real, keys, -np.inf)
    total = tf.reduce_sum(tf.cast(real, tf.float64))
    number = tf.math.ceil(total * tf.constant(config.mask_rate, tf.float64))
    flat = tf.reshape(keys, [-1])
    taken = tf.reshape(_ranks(flat) < tf.cast(number, tf.int32), tf.shape(keys))
    return taken & (keys > -np.inf) & (_ranks(keys) < config.max_predictions)


def _ranks(keys: tf.Tensor) -> tf.Tensor:
    """Returns the number of larger keys along the last axis: int32, in the shape of `keys`."""
    order = tf.argsort(keys, axis=-1, direction="DESCENDING", stable=True)
    return tf.argsort(order, axis=-1, stable=True)
