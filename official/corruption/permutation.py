"""Permutation: every token stays in its place, and an order says which ones each may see.

Permutation language modelling predicts some tokens, the targets, one after the other in a random
order, each from those before it in the order wherever they stand (Yang et al. 2019, sections 2.2
and 2.3). Here targets and special tokens have a place in the order; all other tokens are visible to
everyone and see one another. Whether a position also sees itself is the encoder's affair: in the
content stream it does, in the query stream it does not (section 2.3).

A row is taken in blocks of `perm_size` tokens (XLNet's release: the tokens that the next row goes
on after, then the rest): each has an order of its own and sees all of the blocks before it, and
nothing of those behind it. One block, targets New and York in the order York, New, [SEP]:

  may attend      New   York  is    a     city  [SEP]
    New            .     x    x     x     x     .
    York           .     .    x     x     x     .
    is, a, city    .     .    x     x     x     .
    [SEP]          x     x    x     x     x     .

A row's draws depend on its seed alone, neither on its neighbours nor on its padding. Padding has a
place in the order as special tokens have; that nobody sees it is said by the padding mask.

Shapes: B rows, T tokens with padding, N blocks of a row, P predictions (padded).
"""

from typing import TYPE_CHECKING

import tensorflow as tf

from official.config.corruption import PermutationConfig
from official.corruption import partial_prediction, targets, units
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.seeding import Stream

if TYPE_CHECKING:
    pass

_ORDER_BITS = 47  # blocks are counted in the bits above


def corrupt(
    config: PermutationConfig, vocabulary: Vocabulary, batch: dict[str, tf.Tensor], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Draws targets and an order for each row; works the same eagerly and in a graph.

    Args:
      config: what is predicted.
      vocabulary: of the tokens.
      batch: holds at least token_ids int32 [B, T] and padding_mask bool [B, T], and may hold
        backward bool [B], true for rows of reversed text.
      seeds: one for each row, uint64 [B], from `official.utils.seeding.row_seeds`.

    Returns:
      The batch with permutation_mask bool [B, T, T], and the targets as masked_positions,
      masked_ids and masked_weights [B, P], see `official.corruption.targets`.
    """
    token_ids = batch["token_ids"]
    places = tf.shape(token_ids)[1]
    number = units.words if config.unit != "token" else units.tokens
    numbered = number(vocabulary, batch)  # [B, T]
    text = numbered >= 0
    is_target = partial_prediction.choose(
        numbered,
        _numbers(config, text, batch["padding_mask"]),
        seeds,
        size=config.perm_size or places,
        max_targets=config.num_predict,
        k=config.k,
        max_span=0 if config.unit == "token" else config.max_span,
        whole=config.unit == "word_span",
        backward=batch.get("backward"),
    )
    is_target = tf.ensure_shape(is_target, token_ids.shape)
    mask = may_attend(orders(seeds, places), is_target | ~text, config.perm_size)
    return {
        **batch,
        **targets.listed(is_target, token_ids, config.num_predict),
        "permutation_mask": mask,
    }


def orders(seeds: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
    """Draws each token's place in the order: int64 [B, length], 1 and above, but not ranks."""
    draws = seeding.bits(seeds, Stream.PERMUTATION, length)
    shift = tf.constant(64 - _ORDER_BITS, tf.uint64)
    return 1 + tf.cast(tf.bitwise.right_shift(draws, shift), tf.int64)


def may_attend(order: tf.Tensor, ordered: tf.Tensor, perm_size: int | None = None) -> tf.Tensor:
    """Says which tokens each position may see, itself left out if it has a place in the order.

    Args:
      order: 1 ... 2^47, different within a block; integers [B, T].
      ordered: who has a place in the order, bool [B, T]; all others are visible.
      perm_size: tokens of a block; None = there is one.

    Returns:
      bool [B, T, T], True where the row's position may attend to the column's.
    """
    order = tf.cast(order, tf.int64)
    seen = tf.where(ordered, order, 0)  # before everyone ...
    sees = tf.where(ordered, order, 1)  # ... and behind the visible alone
    if perm_size is not None:
        block = tf.range(tf.shape(order)[1], dtype=tf.int64) // perm_size
        above = block * 2 ** (_ORDER_BITS + 1)
        seen, sees = seen + above, sees + above
    return seen[:, None, :] < sees[:, :, None]


def _numbers(config: PermutationConfig, text: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """How many targets each block of a row has, int32 [B, N]: in proportion to its text."""
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
