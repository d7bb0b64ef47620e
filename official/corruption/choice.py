"""Which units are hidden: random ones, until a row's number of tokens is reached, never beyond.

Units that are taken whole (tokens, words, phrases) come in random order, each one if it fits into
what is left. Runs of words (n-grams, spans) are drawn by their length first, and then find a place.

Shapes: B rows, T tokens with padding, R lengths.
"""

import tensorflow as tf

from official import seeding
from official.corruption.units import sum_at
from official.seeding import Stream


def whole_units(units: tf.Tensor, number: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Takes units in random order, each if it fits into what is left of `number`.

    Done in rounds over whole rows rather than unit by unit: a round takes all units before the
    first one that does not fit. That one is larger than what is then left, so the largest unit
    that can still be taken shrinks in each round, and few rounds are needed.

    Args:
      units: number of each token's unit, -1 = none; int32 [B, T].
      number: tokens to take, int32 [B].
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: the number of the taken unit that a token is in, -1 where none was taken.
    """
    sizes = sum_at(units, tf.ones_like(units))  # [B, T]: of each unit; 0 past the last one
    order = tf.argsort(_draws(seeds, units), axis=1)
    sizes = tf.gather(sizes, order, batch_dims=1)

    def take(left, waiting, taken):
        total = tf.cumsum(tf.where(waiting, sizes, 0), axis=1)
        taken |= waiting & (total <= left[:, None])
        left = number - tf.reduce_sum(tf.where(taken, sizes, 0), axis=1)
        return left, waiting & ~taken & (sizes <= left[:, None]), taken

    _, _, taken = tf.while_loop(
        lambda left, waiting, taken: tf.reduce_any(waiting),
        take,
        (number, (sizes > 0) & (sizes <= number[:, None]), tf.zeros_like(order, tf.bool)),
        shape_invariants=(tf.TensorShape([None]), *[tf.TensorShape([None, None])] * 2),
    )
    taken = sum_at(order, tf.cast(taken, tf.int32)) > 0  # [B, T]: of each unit
    return tf.where(tf.gather(taken, tf.maximum(units, 0), batch_dims=1), units, -1)


def runs(
    words: tf.Tensor, number: tf.Tensor, lengths: tf.Tensor, cut: bool, seeds: tf.Tensor
) -> tf.Tensor:
    """Takes runs of words, of lengths that were drawn before their places.

    Words are tried as the beginning of the next run in random order, each once and in all rows at
    the same time. A place that does not suit is passed over and the run tries the next one, so
    lengths stay distributed as they were drawn. No run reaches over a special token; where a
    stretch without one has fewer words than the run, its first word takes all of it.

    With `cut` (SpanBERT, section 3.1) a run may meet earlier ones, only its first word must be
    free, and the last one ends where `number` is reached, within a word if need be. Without
    (ALBERT, section 4.1) runs keep apart, and one that exceeds what is left is shortened by whole
    words.

    Args:
      words: number of each token's word, -1 = none; int32 [B, T].
      number: tokens to take, int32 [B].
      lengths: of the first, second, ... run taken, in words; int32 [B, R], R >= `number`.
      cut: see above.
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: the number of the run that a token was taken with, from 0 in the order of
      taking; -1 where it was not.
    """
    columns = tf.range(tf.shape(words)[1])
    sizes = sum_at(words, tf.ones_like(words))  # [B, T] by word; 0 past the last one
    first = sum_at(words, tf.where(_begins(words), columns, 0))  # [B, T]: first token of each word
    ends = first + sizes
    specials = tf.cumsum(tf.cast(words < 0, tf.int32), axis=1)
    before = tf.gather(specials, first, batch_dims=1)  # [B, T]: specials before each word
    count = tf.reduce_max(words, axis=1, keepdims=True) + 1  # [B, 1]
    exists = columns < count
    # The last word of each word's stretch: the words up to it have as many specials before them.
    last = tf.searchsorted(tf.where(exists, before, columns.dtype.max), before, side="right")
    last = tf.maximum(last - 1, 0)
    opens = tf.pad(before[:, 1:] > before[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    order = tf.argsort(tf.where(exists, _draws(seeds, words), tf.int64.max), axis=1)

    def take(i, taken, placed, left):
        word = order[:, i]  # [B]
        length = _at(lengths, tf.minimum(placed, tf.shape(lengths)[1] - 1))
        final = _at(last, word)
        suits = (word + length <= final + 1) | _at(opens, word)
        start = _at(first, word)
        end = _at(ends, tf.minimum(word + length - 1, final))
        free = taken < 0
        if cut:
            suits &= _at(free, start)
        else:
            # The last word that still fits ends where the first one that does not begins.
            over = _at(first, tf.maximum(_at(words, tf.minimum(start + left, final_column)), 0))
            end = tf.where(end - start > left, over, end)
        inside = (columns >= start[:, None]) & (columns < end[:, None])  # [B, T]
        if cut:
            inside &= free
            inside &= tf.cumsum(tf.cast(inside, tf.int32), axis=1) <= left[:, None]
        else:
            suits &= tf.reduce_all(free | ~inside, axis=1)
        inside &= (suits & (i < count[:, 0]))[:, None]
        taken = tf.where(inside, placed[:, None], taken)
        took = tf.reduce_sum(tf.cast(inside, tf.int32), axis=1)
        return i + 1, taken, placed + tf.cast(took > 0, tf.int32), left - took

    final_column = tf.shape(words)[1] - 1
    most = tf.reduce_max(count)
    _, taken, _, _ = tf.while_loop(
        lambda i, taken, placed, left: (i < most) & tf.reduce_any(left > 0),
        take,
        (0, tf.zeros_like(words) - 1, tf.zeros_like(number), number),
    )
    return taken


def _draws(seeds: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Random numbers to order a row's units by, int64 [B, T]."""
    return tf.bitcast(seeding.bits(seeds, Stream.MASK_ORDER, tf.shape(like)[1]), tf.int64)


def _at(table: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """One value from each row of a table [B, ...]: [B]."""
    return tf.gather(table, columns, batch_dims=1)


def _begins(words: tf.Tensor) -> tf.Tensor:
    """True at the first token of each word, bool [B, T]."""
    before = tf.pad(words[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    return (words >= 0) & (words != before)
