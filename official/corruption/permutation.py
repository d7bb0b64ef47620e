"""Permutations: tokens keep their positions, and a random order defines what each attends to.

Permutation language modeling predicts some tokens, the targets, one after another in a random
order. Each is predicted from the tokens before it in the order, whatever their positions are (Yang
et al. 2019, sections 2.2 and 2.3). Here targets and special tokens have a rank in the order. All
other tokens are visible to all tokens. The encoder decides whether a position attends to itself: it
does in the content stream, and does not in the query stream (section 2.3).

A row is split into blocks of `perm_size` tokens (in XLNet's release the tokens that the next row
continues, then the rest). Each block has its own order and attends to all earlier blocks, but not
to later ones. An example of one block with the targets New and York and the order York, New, [SEP]:

  may attend      New   York  is    a     city  [SEP]
    New            .     x    x     x     x     .
    York           .     .    x     x     x     .
    is, a, city    .     .    x     x     x     .
    [SEP]          x     x    x     x     x     .

The draws of a row depend only on its seed, not on other rows or on padding. Padding has a rank in
the order, as special tokens have. The padding mask makes it invisible.

Shapes: B rows, T tokens with padding, N blocks of a row, P predictions (padded).
"""

import tensorflow as tf

from official.config.corruptions import PermutationConfig
from official.corruption import partial_prediction, units
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.seeding import Stream

_ORDER_BITS = 47  # the higher bits have the number of the block


def corrupt(
    config: PermutationConfig, vocabulary: Vocabulary, batch: dict[str, tf.Tensor], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Draws targets and an order for each row, eagerly or in a graph.

    Args:
      config: the config of the corruption.
      vocabulary: the vocabulary of the tokens.
      batch: has at least token_ids int32 [B, T] and padding_mask bool [B, T], and may have
        backward bool [B], true for rows of reversed text.
      seeds: a seed for each row, uint64 [B], from `official.utils.seeding.row_seeds`.

    Returns:
      The batch with permutation_mask bool [B, T, T], and the targets as masked_positions,
      masked_ids and masked_weights [B, P], see `official.corruption.units`.
    """
    token_ids = batch["token_ids"]
    length = tf.shape(token_ids)[1]
    number = units.words if config.unit != "token" else units.tokens
    numbered = number(vocabulary, batch)  # [B, T]
    text = numbered >= 0
    is_target = partial_prediction.choose(
        numbered,
        _numbers(config, text, batch["padding_mask"]),
        seeds,
        size=config.perm_size or length,
        max_targets=config.num_predict,
        k=config.k,
        max_span=0 if config.unit == "token" else config.max_span,
        whole=config.unit == "word_span",
        backward=batch.get("backward"),
    )
    is_target = tf.ensure_shape(is_target, token_ids.shape)
    mask = may_attend(orders(seeds, length), is_target | ~text, config.perm_size)
    return {
        **batch,
        **units.list_targets(is_target, token_ids, config.num_predict),
        "permutation_mask": mask,
    }


def orders(seeds: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
    """Draws a random number of 1 or more for each token, which orders them: int64 [B, length]."""
    draws = seeding.bits(seeds, Stream.PERMUTATION, length)
    shift = tf.constant(64 - _ORDER_BITS, tf.uint64)
    return 1 + tf.cast(tf.bitwise.right_shift(draws, shift), tf.int64)


def may_attend(order: tf.Tensor, ordered: tf.Tensor, perm_size: int | None = None) -> tf.Tensor:
    """Returns which tokens each position may attend to, without itself if it has a rank.

    Args:
      order: integers [B, T] from 1 to 2^47, different within a block.
      ordered: bool [B, T], the tokens with a rank in the order; all others are visible.
      perm_size: tokens of a block; None = the row is one block.

    Returns:
      bool [B, T, T], True where the row's position may attend to the column's.
    """
    order = tf.cast(order, tf.int64)
    # A token without a rank is visible to all tokens, and attends only to tokens without a rank.
    key = tf.where(ordered, order, 0)
    query = tf.where(ordered, order, 1)
    if perm_size is not None:
        block = tf.range(tf.shape(order)[1], dtype=tf.int64) // perm_size
        high_bits = block * 2 ** (_ORDER_BITS + 1)
        key, query = key + high_bits, query + high_bits
    return key[:, None, :] < query[:, :, None]


def _numbers(config: PermutationConfig, text: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the number of targets of each block, in proportion to its text: int32 [B, N]."""
    length = tf.shape(text)[1]
    size = config.perm_size or length
    count = -(-length // size)
    padded = tf.pad(tf.cast(text, tf.int32), [[0, 0], [0, count * size - length]])
    up_to = tf.cumsum(tf.reduce_sum(tf.reshape(padded, [-1, count, size]), axis=2), axis=1)
    total = up_to[:, -1:]  # [B, 1]
    real = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1, keepdims=True)
    number = tf.clip_by_value(real // config.k, 1, config.num_predict)
    number = tf.minimum(number, total)
    up_to = -(-number * up_to // tf.maximum(total, 1))  # rounded up
    return up_to - tf.pad(up_to[:, :-1], [[0, 0], [1, 0]])
