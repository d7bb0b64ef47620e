"""Targets that stand in contexts of their own: partial prediction (Yang et al. 2019, section 2.3).

A block is walked through from its first token to its last. For each span a length n of 1, 2, ...
units is drawn, p(n) ~ 1/n, and a context of n·k tokens, of which a random part lies before the
span and the rest behind it; the span begins with the first word that begins there. Where a block
has more room than that contexts are longer in proportion, so that targets come from all of it;
where it has less, what the walk leaves of the number is single units from anywhere. A block of
reversed text is walked through in the order in which the text is read, from its last token to its
first (the release's `_sample_mask`, `reverse`). With n = 2 and k = 3:

  a quick brown fox jumps over the lazy dog
  ------- ^^^^^^^^^ --------------------
  2       the span  4 tokens of context

Shapes: B rows, T tokens with padding, N blocks of a row, R = B * N, S tokens of a block, P
predictions of a row.
"""

import numpy as np
import tensorflow as tf

from official.corruption.units import sum_at
from official.utils import seeding
from official.utils.seeding import Stream


def choose(
    units: tf.Tensor,
    number: tf.Tensor,
    seeds: tf.Tensor,
    *,
    size: int | tf.Tensor,
    most: int,
    k: int,
    max_span: int,
    whole: bool,
    backward: tf.Tensor | None = None,
) -> tf.Tensor:
    """Chooses exactly `number` tokens of each block, or all that are in a unit if these are fewer.

    Args:
      units: number of each token's unit, -1 = none; int32 [B, T].
      number: tokens to choose in each block, int32 [B, N].
      seeds: uint64 [B].
      size: S; blocks are cut at its multiples, so N * S >= T > (N - 1) * S.
      most: P, at least every `number`.
      k: tokens of context for each unit of a span.
      max_span: the most units of a span; 0 = no spans: all are drawn one by one.
      whole: spans are measured in units and taken whole; else they only begin where a unit begins,
        and are measured in tokens (XLNet's release). Either way one is cut where `number` is
        reached, at a special token and at the end of its block.
      backward: which rows are of reversed text, bool [B]; None = none is.

    Returns:
      bool [B, T].
    """
    rows, places = tf.unstack(tf.shape(units))
    blocks = tf.shape(number)[1]
    before = tf.pad(units[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    if backward is not None:
        after = tf.pad(units[:, 1:], [[0, 0], [0, 1]], constant_values=-1)
        before = tf.where(backward[:, None], after, before)

    def as_read(values):
        """[R, S] with the blocks of reversed text turned around, or turned back."""
        if backward is None:
            return values
        return tf.where(tf.repeat(backward, blocks)[:, None], tf.reverse(values, [1]), values)

    def cut(flags):
        """[B, T] to [R, S]."""
        more = tf.pad(flags, [[0, 0], [0, blocks * size - places]])
        return as_read(tf.reshape(more, [-1, size]))

    begins = cut((units >= 0) & (units != before))
    text = cut(units >= 0)
    left = tf.reshape(number, [-1])  # [R]
    taken = tf.zeros_like(text)
    if max_span:
        draws = _draws(seeds, blocks, tf.minimum(most, size), max_span)
        taken, left = _walk(text, begins, left, *draws, k=k, whole=whole)
    order = tf.bitcast(seeding.bits(seeds, Stream.MASK_ORDER, blocks * size), tf.int64)
    order = tf.reshape(order, [-1, size])
    if whole:
        # What a block begins with in the middle of a word is one more unit.
        opens = begins | (tf.range(size) == 0)
        firsts, _ = _listed(opens)
        nth = tf.cumsum(tf.cast(opens, tf.int32), axis=1) - 1
        order = tf.gather(order, tf.gather(firsts, nth, batch_dims=1), batch_dims=1)
    order = tf.argsort(tf.where(text & ~taken, order, tf.int64.max), axis=1, stable=True)
    filled = tf.cast(tf.range(size) < left[:, None], tf.int32)
    taken |= (sum_at(order, filled) > 0) & text
    return tf.reshape(as_read(taken), [rows, -1])[:, :places]


def span_lengths(seeds: tf.Tensor, count: int | tf.Tensor, max_span: int) -> tf.Tensor:
    """Draws lengths 1 ... max_span with p(n) ~ 1/n: int32 [B, count]."""
    shares = 1.0 / np.arange(1, max_span + 1)
    bounds = np.cumsum(shares / shares.sum())[:-1].astype(np.float32)
    draws = seeding.uniforms(seeds, Stream.RUN_LENGTH, count)
    return 1 + tf.reduce_sum(tf.cast(draws[:, :, None] >= bounds, tf.int32), axis=2)


def _draws(
    seeds: tf.Tensor, blocks: tf.Tensor, steps: tf.Tensor, max_span: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Lengths int32 [R, steps] of spans, and uniform numbers [R, steps] for their places."""
    lengths = span_lengths(seeds, blocks * steps, max_span)
    places = seeding.uniforms(seeds, Stream.CONTEXT, blocks * steps)
    return tf.reshape(lengths, [-1, steps]), tf.reshape(places, [-1, steps])


def _walk(
    text: tf.Tensor,
    begins: tf.Tensor,
    number: tf.Tensor,
    lengths: tf.Tensor,
    places: tf.Tensor,
    *,
    k: int,
    whole: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes spans from left to right in all blocks at the same time.

    Returns:
      What is taken, bool [R, S], and how many tokens are still to be taken, int32 [R].
    """
    size = tf.shape(text)[1]
    columns = tf.range(size)
    first, count = _listed(begins)  # [R, S], [R]
    nth = tf.cumsum(tf.cast(begins, tf.int32), axis=1, exclusive=True)  # units before each token
    closes, closings = _listed(~text)
    closed = tf.cumsum(tf.cast(~text, tf.int32), axis=1, exclusive=True)

    def stretch(column):
        """Where the stretch of text ends that a position is in."""
        i = tf.gather(closed, column, batch_dims=1)
        found = tf.gather(closes, tf.minimum(i, size - 1), batch_dims=1)
        return tf.where(i < closings, found, size)

    def take(step, at, left, taken):
        n = tf.minimum(lengths[:, step], left)
        context = tf.cast(n, tf.float32) * stretched
        ahead = tf.cast(at + places[:, step] * context, tf.int32)  # where the span may begin
        beyond = tf.minimum(ahead, size - 1)
        unit = tf.gather(nth, beyond, batch_dims=1)
        walking = (left > 0) & (ahead < size) & (unit < count)
        begin = tf.gather(first, tf.minimum(unit, size - 1), batch_dims=1)
        end = stretch(begin)
        if whole:
            following = tf.gather(first, tf.minimum(unit + n, size - 1), batch_dims=1)
            end = tf.where(unit + n < count, tf.minimum(end, following), end)
            end = tf.minimum(end, begin + left)
        else:
            end = tf.minimum(end, begin + n)
        inside = (columns >= begin[:, None]) & (columns < end[:, None])
        taken |= inside & walking[:, None]
        left -= tf.where(walking, end - begin, 0)
        behind = at + context - tf.cast(ahead, tf.float32)
        at = tf.where(walking, tf.cast(end, tf.float32) + behind, tf.cast(size, tf.float32))
        return step + 1, at, left, taken

    room = tf.reduce_max(tf.where(text, columns + 1, 0), axis=1)
    # (One token more than there are, or the last one would never be reached.)
    fitting = tf.cast((room + 1) / tf.maximum(number, 1) - 1, tf.float32)
    stretched = tf.maximum(float(k), fitting)
    _, _, left, taken = tf.while_loop(
        lambda step, at, left, taken: (
            (step < tf.shape(lengths)[1])
            & tf.reduce_any((left > 0) & (at < tf.cast(size, tf.float32)))
        ),
        take,
        (0, tf.zeros_like(stretched), number, tf.zeros_like(text)),
    )
    return taken, left


def _listed(flags: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The columns of true flags [R, S], 0 past the last one [R, S], and their number [R]."""
    counted = tf.cumsum(tf.cast(flags, tf.int32), axis=1)
    columns = tf.range(tf.shape(flags)[1])
    listed = sum_at(tf.where(flags, counted - 1, -1), tf.where(flags, columns, 0))
    return listed, counted[:, -1]
