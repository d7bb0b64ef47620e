"""The units of a row that may be hidden: numbers them, selects some, and lists what is selected.

Units are tokens, words, phrases or entities: sequences of tokens, numbered from 0 in each row.
Special tokens and padding have the number -1. They are never hidden and separate units.

Units that are taken whole (tokens, words, phrases) are tried in random order, and each is taken if
it fits into the number of tokens left. Runs of words (n-grams, spans) begin at random positions.
`or_part_of_one` makes sure that each row with units has something hidden. `list_targets` lists the
positions to predict.

Shapes: B rows, T tokens with padding, R lengths, P predictions (padded).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.seeding import Stream

# The fields of `list_targets`.
TARGETS = ("masked_positions", "masked_ids", "masked_weights")
_FEW = 8  # ids: comparisons with so few are faster than a gather


def tokens(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Numbers the tokens: int32 [B, T]."""
    maskable = maskable_tokens(vocabulary, batch)
    return numbered(maskable, maskable)


def words(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Numbers the words: int32 [B, T]."""
    return _joined(vocabulary, batch, False)


def phrases(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Numbers the phrases, and the words outside phrases: int32 [B, T]."""
    return _joined(vocabulary, batch, batch["phrase_inner"])


def entities(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Numbers the entities, and the words outside entities: int32 [B, T]."""
    return _joined(vocabulary, batch, batch["entity_inner"])


def sequences(flags: tf.Tensor) -> tf.Tensor:
    """Numbers the sequences of true flags [B, T]: int32 [B, T], -1 where a flag is false."""
    return numbered(flags & ~_previous(flags), flags)


def _joined(
    vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor], inner: tf.Tensor | bool
) -> tf.Tensor:
    """Numbers words; where `inner` [B, T] is true, a word is joined to the word before.

    In rows of reversed text (`backward` [B]) the first piece of a word comes last.
    """
    maskable = maskable_tokens(vocabulary, batch)
    starts = tf.gather(vocabulary.word_starts, batch["token_ids"])
    ends = tf.zeros_like(starts)
    if vocabulary.word_ends is not None:
        ends = tf.gather(vocabulary.word_ends, batch["token_ids"])
    first = starts | _previous(ends)  # of its word
    if "backward" in batch:
        first = tf.where(batch["backward"][:, None], _previous(starts) | ends, first)
    first &= ~tf.convert_to_tensor(inner)
    return numbered(maskable & (first | ~_previous(maskable)), maskable)


def maskable_tokens(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns which tokens may be hidden, bool [B, T]."""
    token_ids, maskable = batch["token_ids"], batch["padding_mask"]
    if len(vocabulary.never_masked) > _FEW:
        return maskable & tf.gather(vocabulary.maskable, token_ids)
    for other in vocabulary.never_masked:
        maskable &= token_ids != other
    return maskable


def _previous(flags: tf.Tensor) -> tf.Tensor:
    """Returns the flags [B, T] of the previous token; false for the first."""
    return tf.pad(flags[:, :-1], [[0, 0], [1, 0]])


def numbered(starts: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
    """Numbers the units of each row.

    Args:
      starts: bool [B, N], whether a unit begins at an element.
      inside: bool [B, N], whether an element is in a unit.

    Returns:
      int32 [B, N], from 0; -1 where `inside` is false.
    """
    # A product with a triangular matrix is a cumulative sum. It is exact, as every sum is at most
    # N, and faster than `tf.cumsum` along the last axis.
    length = tf.shape(starts)[1]
    triangle = tf.linalg.band_part(tf.ones([length, length]), 0, -1)
    count = tf.cast(tf.matmul(tf.cast(starts, tf.float32), triangle), tf.int32)
    return tf.where(inside, count - 1, -1)


def sum_at(
    columns: tf.Tensor, values: tf.Tensor, length: int | tf.Tensor | None = None
) -> tf.Tensor:
    """Sums the values [B, N] of each row by their column [B, N]; -1 = no column.

    Returns:
      [B, length]; without a length [B, N].
    """
    rows = tf.shape(columns)[0]
    length = tf.shape(columns)[1] if length is None else length
    cells = tf.where(columns < 0, -1, columns + tf.range(rows)[:, None] * length)
    return tf.reshape(tf.math.unsorted_segment_sum(values, cells, rows * length), [rows, length])


def choose_tokens(
    units: tf.Tensor, number: tf.Tensor, max_predictions: int, seeds: tf.Tensor
) -> tf.Tensor:
    """Takes tokens at random: what `whole_units` takes if each unit is a token.

    Args:
      units: number of each token that can be taken, from 0, -1 = none; int32 [B, T].
      number: tokens to take, int32 [B].
      max_predictions: the largest number of tokens to take in a row.
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: `units`, -1 where a token is not taken.
    """
    draws = tf.bitcast(seeding.bits(seeds, Stream.MASK_ORDER, units), tf.int64)
    draws = tf.where(units >= 0, draws, tf.int64.max)
    # NthElement takes one rank for all rows, P = max_predictions. With P - number smaller values
    # beside the draws of a row, its P-th smallest value is the number-th smallest draw.
    below = tf.range(max_predictions) < max_predictions - number[:, None]  # [B, P]
    filled = tf.concat([draws, tf.where(below, tf.int64.min, tf.int64.max)], axis=1)
    last = tf.raw_ops.NthElement(input=filled, n=max_predictions - 1)
    return tf.where(draws <= last[:, None], units, -1)


def runs_of_windows(
    units: tf.Tensor,
    width: int,
    lengths: tf.Tensor,
    number: tf.Tensor,
    most: int,
    seeds: tf.Tensor,
) -> tf.Tensor:
    """Takes a run of units of each of the first windows.

    This is `NGramMaskGenerator` of DeBERTa's release. The window of a run of n units has
    n * `width` units. The run begins at any of them; if it ends behind the window, the next window
    begins behind the run. Whole units are taken from the left until `number` tokens are reached;
    those beyond `most` tokens are not taken.

    Args:
      units: number of each token's unit, from 0, -1 = none; int32 [B, T].
      width: see above.
      lengths: n of each window, int32 [B, R]; windows behind the last one take nothing.
      number: tokens to take, int32 [B].
      most: the largest number of tokens to take.
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: the number of the window that a token is taken from, -1 = it is not taken.
    """
    count = tf.reduce_max(units, axis=1, keepdims=True) + 1  # [B, 1]
    draws = seeding.uniforms(seeds, Stream.MASK_ORDER, tf.shape(lengths)[1])  # by window

    def place(sizes: tf.Tensor) -> tf.Tensor:
        return tf.cast(draws * tf.cast(sizes, draws.dtype), tf.int32)

    # Only the last window is shorter, and none comes after it.
    sizes = lengths * width
    ends = tf.cumsum(tf.maximum(sizes, place(sizes) + lengths), axis=1)  # [B, R]
    starts = tf.pad(ends[:, :-1], [[0, 0], [1, 0]])
    first = starts + place(tf.clip_by_value(count - starts, 0, sizes))
    windows = tf.searchsorted(ends, units, side="right")  # [B, T]
    run = [tf.gather(each, windows, batch_dims=1) for each in (first, first + lengths)]
    inside = (units >= run[0]) & (units < run[1])
    before = numbered(inside, inside)  # tokens that are taken before a token
    before = sum_at(units, tf.where(_begins(units), before, 0))  # [B, T], before a unit
    after = before + sum_at(units, tf.ones_like(units))
    fits = (before < number[:, None]) & (after <= most)
    inside &= tf.gather(fits, tf.maximum(units, 0), batch_dims=1)
    return tf.where(inside, windows, -1)


def whole_units(units: tf.Tensor, number: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Takes units in random order, each if it fits into the number of tokens left.

    The loop runs in rounds over whole rows. A round takes all units before the first one that does
    not fit. That unit is larger than the number then left, so the largest unit that can still be
    taken shrinks in each round, and few rounds are needed.

    Args:
      units: number of each token's unit, -1 = none; int32 [B, T].
      number: tokens to take, int32 [B].
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: the number of the taken unit that a token is in, -1 = the token is not taken.
    """
    sizes = sum_at(units, tf.ones_like(units))  # [B, T], by unit; 0 after the last one
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
    taken = sum_at(order, tf.cast(taken, tf.int32)) > 0  # [B, T], by unit
    return tf.where(tf.gather(taken, tf.maximum(units, 0), batch_dims=1), units, -1)


def each_unit(units: tf.Tensor, rate: float, seeds: tf.Tensor) -> tf.Tensor:
    """Keeps each unit with the probability `rate`, independently of the others.

    Args:
      units: number of each token's unit, -1 = none; int32 [B, T].
      rate: between 0 and 1.
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: `units`, -1 where a unit is not kept.
    """
    draws = seeding.uniforms(seeds, Stream.MASK_NUMBER, tf.shape(units)[1])  # by unit
    draws = tf.gather(draws, tf.maximum(units, 0), batch_dims=1)
    return tf.where(draws < rate, units, -1)


def with_replacement(candidates: tf.Tensor, number: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Draws tokens of each row with replacement.

    Args:
      candidates: number of each token that can be drawn, from 0, -1 = none; int32 [B, T].
      number: number of draws, at most T; int32 [B].
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: how often each token is drawn.
    """
    length = tf.shape(candidates)[1]
    count = tf.reduce_max(candidates, axis=1, keepdims=True) + 1  # [B, 1]
    draws = seeding.uniforms(seeds, Stream.MASK_ORDER, length)
    draws = tf.cast(draws * tf.cast(count, tf.float32), tf.int32)
    draws = tf.minimum(draws, count - 1)  # a product may be rounded up
    draws = tf.where(tf.range(length) < number[:, None], draws, -1)
    times = sum_at(draws, tf.ones_like(draws))  # [B, T], by the number of the token
    return tf.where(candidates >= 0, tf.gather(times, tf.maximum(candidates, 0), batch_dims=1), 0)


def or_part_of_one(
    taken: tf.Tensor, units: tf.Tensor, number: tf.Tensor, seeds: tf.Tensor
) -> tf.Tensor:
    """Takes one unit, cut to `number` tokens, in each row in which nothing is taken.

    In such a row no unit fits into the number, or no unit was drawn. The function takes the unit of
    a random token, and if the unit is too long a random part of it.

    Args:
      taken: number of the taken unit that a token is in, -1 = none; int32 [B, T].
      units: number of each token's unit, -1 = none; int32 [B, T].
      number: tokens to take, at least 1; int32 [B].
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: `taken`, with the number of one unit in the rows that had none.
    """
    draws = tf.where(units >= 0, _draws(seeds, units), tf.int64.max)
    one = at(units, tf.argmin(draws, axis=1, output_type=tf.int32))  # [B]
    mine = (units == one[:, None]) & (units >= 0)
    offset = tf.cumsum(tf.cast(mine, tf.int32), axis=1) - 1  # of a token in the unit
    spare = tf.maximum(offset[:, -1] + 1 - number, 0)
    begin = seeding.uniforms(seeds, Stream.CONTEXT, 1)[:, 0] * tf.cast(spare + 1, tf.float32)
    begin = tf.cast(begin, tf.int32)[:, None]
    part = tf.where(mine & (offset >= begin) & (offset < begin + number[:, None]), units, -1)
    return tf.where(tf.reduce_any(taken >= 0, axis=1, keepdims=True), taken, part)


def draw_lengths(shares: np.ndarray, seeds: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Draws lengths of runs.

    Args:
      shares: how often each length from 1 up is drawn, in proportion; [longest].
      seeds: uint64 [B].
      number: R.

    Returns:
      int32 [B, R].
    """
    bounds = np.cumsum(shares / shares.sum())[:-1].astype(np.float32)
    draws = seeding.uniforms(seeds, Stream.RUN_LENGTH, number)
    return 1 + tf.reduce_sum(tf.cast(draws[:, :, None] >= bounds, tf.int32), axis=2)


def runs(
    words: tf.Tensor, number: tf.Tensor, lengths: tf.Tensor, cut: bool, seeds: tf.Tensor
) -> tf.Tensor:
    """Takes runs of words, one try after another, in all rows at the same time.

    A run ends before the next special token. (In ALBERT's release it may continue after a [SEP].)

    With `cut` (SpanBERT's release, `masking.py`) a try is a random token that is not taken yet. The
    run begins with the word of that token. It may overlap earlier runs, whose tokens are not taken
    again. The last run ends where `number` is reached, if need be within a word. Without `cut`
    (ALBERT's release, `create_masked_lm_predictions`) a try is a random word. A run that exceeds
    the number of tokens left is shortened by whole words, and a run that overlaps an earlier one is
    not taken.

    Args:
      words: number of each token's word, -1 = none; int32 [B, T].
      number: tokens to take, int32 [B].
      lengths: length in words of the run of each try, int32 [B, R], R >= T.
      cut: see above.
      seeds: uint64 [B].

    Returns:
      int32 [B, T]: the number of the run that a token is taken with, from 0 in the order of the
      tries; -1 = the token is not taken.
    """
    table = _word_table(words)
    candidates = words >= 0 if cut else table.exists
    order = tf.argsort(tf.where(candidates, _draws(seeds, words), tf.int64.max), axis=1)
    tries = tf.reduce_sum(tf.cast(candidates, tf.int32), axis=1)  # [B]
    run_tokens = _cut_run if cut else _whole_run

    def take(i, taken, runs, left):
        inside = run_tokens(words, table, order[:, i], lengths[:, i], taken < 0, left)
        inside &= ((i < tries) & (left > 0))[:, None]
        taken = tf.where(inside, runs[:, None], taken)
        size = tf.reduce_sum(tf.cast(inside, tf.int32), axis=1)
        return i + 1, taken, runs + tf.cast(size > 0, tf.int32), left - size

    max_tries = tf.reduce_max(tries)
    _, taken, _, _ = tf.while_loop(
        lambda i, taken, runs, left: (i < max_tries) & tf.reduce_any(left > 0),
        take,
        (0, tf.zeros_like(words) - 1, tf.zeros_like(number), number),
    )
    return taken


def list_targets(
    times: tf.Tensor, token_ids: tf.Tensor, max_predictions: int
) -> dict[str, tf.Tensor]:
    """Lists the chosen positions of each row.

    Args:
      times: how often each position is chosen, int32 or bool [B, T]; at most P of a row are.
      token_ids: the tokens at the positions, int32 [B, T].
      max_predictions: P.

    Returns:
      masked_positions int32 [B, P], ascending; masked_ids int32 [B, P]; masked_weights float32
      [B, P], how often the position is chosen. All three are 0 after the last prediction.
    """
    cells = tf.where(tf.cast(times, tf.bool))  # [chosen tokens, 2], row by row
    rows, positions = cells[:, 0], tf.cast(cells[:, 1], tf.int32)
    shape = [times.shape[0], max_predictions]

    def padded(values: tf.Tensor) -> tf.Tensor:
        return tf.RaggedTensor.from_value_rowids(
            values, rows, tf.shape(times, tf.int64)[0], validate=False
        ).to_tensor(shape=shape)

    return {
        "masked_positions": padded(positions),
        "masked_ids": padded(tf.gather_nd(token_ids, cells)),
        "masked_weights": padded(tf.cast(tf.gather_nd(times, cells), tf.float32)),
    }


class _WordTable(NamedTuple):
    """The words of each row, by number.

    Attributes:
      exists: bool [B, T], whether the row has a word of this number.
      first: int32 [B, T], the first token.
      end: int32 [B, T], the token after the last one.
      last: int32 [B, T], the last word that no special token separates from this word.
    """

    exists: tf.Tensor
    first: tf.Tensor
    end: tf.Tensor
    last: tf.Tensor


def _word_table(words: tf.Tensor) -> _WordTable:
    columns = tf.range(tf.shape(words)[1])
    sizes = sum_at(words, tf.ones_like(words))
    first = sum_at(words, tf.where(_begins(words), columns, 0))
    specials = tf.cumsum(tf.cast(words < 0, tf.int32), axis=1)
    before = tf.gather(specials, first, batch_dims=1)  # [B, T]: special tokens before each word
    exists = columns < tf.reduce_max(words, axis=1, keepdims=True) + 1
    # Words without a special token between them have the same number of special tokens before them.
    last = tf.searchsorted(tf.where(exists, before, columns.dtype.max), before, side="right")
    return _WordTable(exists, first, first + sizes, tf.maximum(last - 1, 0))


def _cut_run(
    words: tf.Tensor,
    table: _WordTable,
    token: tf.Tensor,
    length: tf.Tensor,
    free: tf.Tensor,
    left: tf.Tensor,
) -> tf.Tensor:
    """Returns the free tokens of the run of a token's word, at most `left`: bool [B, T]."""
    word = tf.maximum(at(words, token), 0)
    inside = _between(at(table.first, word), _run_end(table, word, length), words) & free
    inside &= tf.cumsum(tf.cast(inside, tf.int32), axis=1) <= left[:, None]
    return inside & at(free, token)[:, None]


def _whole_run(
    words: tf.Tensor,
    table: _WordTable,
    word: tf.Tensor,
    length: tf.Tensor,
    free: tf.Tensor,
    left: tf.Tensor,
) -> tf.Tensor:
    """Returns the tokens of a word's run, at most `left`, if all are free: bool [B, T]."""
    start, end = at(table.first, word), _run_end(table, word, length)
    # The shortened run ends where the first word begins that does not fit.
    beyond = tf.minimum(start + left, tf.shape(words)[1] - 1)
    shortened = at(table.first, tf.maximum(at(words, beyond), 0))
    inside = _between(start, tf.where(end - start > left, shortened, end), words)
    return inside & tf.reduce_all(free | ~inside, axis=1, keepdims=True)


def _run_end(table: _WordTable, word: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Returns the token after a run of words: int32 [B]."""
    return at(table.end, tf.minimum(word + length - 1, at(table.last, word)))


def _between(start: tf.Tensor, end: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Returns which columns of a table [B, T] are from `start` [B] to before `end` [B]."""
    columns = tf.range(tf.shape(like)[1])
    return (columns >= start[:, None]) & (columns < end[:, None])


def _draws(seeds: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Draws random numbers that order the units of a row: int64 [B, T]."""
    return tf.bitcast(seeding.bits(seeds, Stream.MASK_ORDER, tf.shape(like)[1]), tf.int64)


def at(table: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Takes one value from each row of a table [B, ...]: [B]."""
    return tf.gather(table, columns, batch_dims=1)


def _begins(words: tf.Tensor) -> tf.Tensor:
    """Returns which tokens are the first of their word: bool [B, T]."""
    before = tf.pad(words[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    return (words >= 0) & (words != before)
