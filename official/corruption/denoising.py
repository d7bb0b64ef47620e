"""The objectives of T5's study beside span corruption (Raffel et al. 2020, section 3.3.1).

Each makes an input and a target of one text; `official.config.corruptions.DenoisingConfig` lists
them. The draws of a row depend only on its seed.

Shapes: B rows, T tokens with padding.
"""

import numpy as np
import tensorflow as tf

from official.config.corruptions import DenoisingConfig
from official.corruption.sentinels import batch_of, compact
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.seeding import Stream


def corrupt(
    config: DenoisingConfig, vocabulary: Vocabulary, batch: dict[str, tf.Tensor], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Makes inputs and targets of the texts of a batch, eagerly or in a graph.

    Args:
      config: the config of the corruption.
      vocabulary: the vocabulary of the tokens.
      batch: has token_ids int32 [B, T] and padding_mask bool [B, T]. T is the number of raw tokens
        of a row and static.
      seeds: a seed for each row, uint64 [B], from `official.utils.seeding.row_seeds`.

    Returns:
      The batch of `sentinels.batch_of`.
    """
    ids, real = batch["token_ids"], batch["padding_mask"]
    lengths = config.lengths_of_row(ids.shape[1])
    shown, is_input = _METHODS[config.method](config, vocabulary, ids, real, seeds)
    is_target = real & ~is_input if config.method == "prefix_lm" else real
    return batch_of(
        batch,
        compact(shown, is_input, lengths.inputs, vocabulary),
        compact(ids, is_target, lengths.targets, vocabulary),
    )


def _masked(
    config: DenoisingConfig,
    vocabulary: Vocabulary,
    ids: tf.Tensor,
    real: tf.Tensor,
    seeds: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the ids with some of them masked or random, and the real ones."""
    width = ids.shape[1]
    noise = real & (seeding.uniforms(seeds, Stream.MASK_ORDER, width) < config.noise_density)
    masked = tf.where(noise, vocabulary.sentinel_ids[0], ids)
    if config.method == "bert_style":
        action = seeding.uniforms(seeds, Stream.MASK_ACTION, width)
        # As in the release, all ids but the special ones: 3 to V - 1, with the sentinels.
        choices = np.setdiff1d(np.arange(vocabulary.size, dtype=np.int32), vocabulary.special_ids)
        drawn = seeding.integers(seeds, Stream.MASK_TOKEN, width, len(choices))
        is_random = noise & (action < config.random_prob)
        masked = tf.where(is_random, tf.gather(choices, drawn), masked)
    return masked, real


def _shuffled(
    config: DenoisingConfig,
    vocabulary: Vocabulary,
    ids: tf.Tensor,
    real: tf.Tensor,
    seeds: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the real ids of each row in random order."""
    draws = seeding.uniforms(seeds, Stream.MASK_ORDER, ids.shape[1])
    order = tf.argsort(tf.where(real, draws, 2.0), axis=1, stable=True)
    return tf.gather(ids, order, batch_dims=1), real


def _prefix(
    config: DenoisingConfig,
    vocabulary: Vocabulary,
    ids: tf.Tensor,
    real: tf.Tensor,
    seeds: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the ids, and those before a random place: 1 to n - 1 of n."""
    length = tf.reduce_sum(tf.cast(real, tf.int32), axis=1)
    draw = seeding.uniforms(seeds, Stream.MASK_NUMBER, 1)[:, 0]
    cut = 1 + tf.cast(draw * tf.cast(length - 1, tf.float32), tf.int32)
    cut = tf.clip_by_value(cut, 0, tf.maximum(length - 1, 0))
    return ids, real & (tf.range(ids.shape[1]) < cut[:, None])


def _nothing(
    config: DenoisingConfig,
    vocabulary: Vocabulary,
    ids: tf.Tensor,
    real: tf.Tensor,
    seeds: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns no ids."""
    return ids, tf.zeros_like(real)


_METHODS = {
    "bert_style": _masked,
    "mass_style": _masked,
    "deshuffle": _shuffled,
    "prefix_lm": _prefix,
    "lm": _nothing,
}
