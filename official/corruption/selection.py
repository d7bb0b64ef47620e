"""Which units are hidden: random ones, until a row's number of tokens is reached, never beyond.

Units that are taken whole (tokens, words, phrases) come in random order, each one if it fits into
what is left; runs of words (n-grams, spans) begin at random places. A row that has units never ends
up with none of them: `or_part_of_one` sees to it.

Shapes: B rows, T tokens with padding, R lengths.
"""

import tensorflow as tf

from official.corruption.units import sum_at
from official.utils import seeding
from official.utils.seeding import Stream


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


def each_unit(units: tf.Tensor, rate: float, seeds: tf.Tensor) -> tf.Tensor:
    """Keeps each unit with the probability `rate`, whatever becomes of the others.

    Args:
      units: number of each token's unit, -1 = none; int32 [B, T].
      rate: between 0 and 1.
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: `units`, -1 where a unit is not kept.
    """
    draws = seeding.uniforms(seeds, Stream.MASK_NUMBER, tf.shape(units)[1])  # of each unit
    draws = tf.gather(draws, tf.maximum(units, 0), batch_dims=1)
    return tf.where(draws < rate, units, -1)


def with_replacement(tokens: tf.Tensor, number: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Draws tokens of each row `number` times, each time from all of them.

    Args:
      tokens: the tokens to draw from, numbered from 0, -1 = none; int32 [B, T].
      number: of draws, at most T; int32 [B].
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: how often each token was drawn.
    """
    places = tf.shape(tokens)[1]
    count = tf.reduce_max(tokens, axis=1, keepdims=True) + 1  # [B, 1]
    draws = seeding.uniforms(seeds, Stream.MASK_ORDER, places)
    draws = tf.cast(draws * tf.cast(count, tf.float32), tf.int32)
    draws = tf.minimum(draws, count - 1)  # a product may be rounded up
    draws = tf.where(tf.range(places) < number[:, None], draws, -1)
    times = sum_at(draws, tf.ones_like(draws))  # [B, T] by the token's number
    return tf.where(tokens >= 0, tf.gather(times, tf.maximum(tokens, 0), batch_dims=1), 0)


def or_part_of_one(
    taken: tf.Tensor, units: tf.Tensor, number: tf.Tensor, seeds: tf.Tensor
) -> tf.Tensor:
    """Takes one unit, cut to `number` tokens, in each row of which nothing is taken.

    No unit of such a row fits into its number, or each unit was passed over by chance. The unit is
    that of a random token, and the part of it is random too.

    Args:
      taken: number of the taken unit that a token is in, -1 = none; int32 [B, T].
      units: number of each token's unit, -1 = none; int32 [B, T].
      number: tokens to take, at least 1; int32 [B].
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: `taken`, with the number of the one unit in rows that had none.
    """
    draws = tf.where(units >= 0, _draws(seeds, units), tf.int64.max)
    one = _at(units, tf.argmin(draws, axis=1, output_type=tf.int32))  # [B]
    mine = (units == one[:, None]) & (units >= 0)
    place = tf.cumsum(tf.cast(mine, tf.int32), axis=1) - 1  # of a token in the unit
    spare = tf.maximum(place[:, -1] + 1 - number, 0)
    begin = seeding.uniforms(seeds, Stream.CONTEXT, 1)[:, 0] * tf.cast(spare + 1, tf.float32)
    begin = tf.cast(begin, tf.int32)[:, None]
    part = tf.where(mine & (place >= begin) & (place < begin + number[:, None]), units, -1)
    return tf.where(tf.reduce_any(taken >= 0, axis=1, keepdims=True), taken, part)


def runs(
    words: tf.Tensor, number: tf.Tensor, lengths: tf.Tensor, cut: bool, seeds: tf.Tensor
) -> tf.Tensor:
    """Takes runs of words, one try after the other, in all rows at the same time.

    A run ends before the next special token, however long it was to be. (In ALBERT's release one
    may go on behind a [SEP].)

    With `cut` (SpanBERT's release, `masking.py`) a try is a random token that is not taken yet. The
    run begins with the word of that token and may meet earlier runs, of which no token is taken
    again. The last run ends where `number` is reached, within a word if need be. Without `cut`
    (ALBERT's release, `create_masked_lm_predictions`) a try is a random word. A run that exceeds
    what is left is shortened by whole words, and a run that meets an earlier one is not taken.

    Args:
      words: number of each token's word, -1 = none; int32 [B, T].
      number: tokens to take, int32 [B].
      lengths: of the run of the first, second, ... try, in words; int32 [B, R], R >= T.
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
    candidates = words >= 0 if cut else exists
    order = tf.argsort(tf.where(candidates, _draws(seeds, words), tf.int64.max), axis=1)
    tries = tf.reduce_sum(tf.cast(candidates, tf.int32), axis=1)  # [B]

    def take(i, taken, placed, left):
        place = order[:, i]  # [B]
        word = tf.maximum(_at(words, place), 0) if cut else place
        start = _at(first, word)
        end = _at(ends, tf.minimum(word + lengths[:, i] - 1, _at(last, word)))
        free = taken < 0
        if not cut:
            # The last word that still fits ends where the first one that does not begins.
            beyond = tf.minimum(start + left, final_column)
            shorter = _at(first, tf.maximum(_at(words, beyond), 0))
            end = tf.where(end - start > left, shorter, end)
        inside = (columns >= start[:, None]) & (columns < end[:, None])  # [B, T]
        suits = (i < tries) & (left > 0)
        if cut:
            suits &= _at(free, place)
            inside &= free
            inside &= tf.cumsum(tf.cast(inside, tf.int32), axis=1) <= left[:, None]
        else:
            suits &= tf.reduce_all(free | ~inside, axis=1)
        inside &= suits[:, None]
        taken = tf.where(inside, placed[:, None], taken)
        took = tf.reduce_sum(tf.cast(inside, tf.int32), axis=1)
        return i + 1, taken, placed + tf.cast(took > 0, tf.int32), left - took

    final_column = tf.shape(words)[1] - 1
    most = tf.reduce_max(tries)
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
