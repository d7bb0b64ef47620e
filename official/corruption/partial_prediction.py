"""Chooses targets with a context of their own: partial prediction (Yang et al. 2019, section 2.3).

A block is walked through from its first token to its last. For each span, a length of n = 1, 2, ...
units is drawn with p(n) ~ 1/n, together with a context of n * k tokens. A random part of the
context is before the span and the rest after it. The span begins with the first word that begins
after the first part. If the block has more room than its spans need, contexts are longer in
proportion, so that targets come from the whole block. If it has less, the remaining targets are
single units from anywhere in the block. A block of reversed text is walked through in reading
order, from its last token to its first (the release's `_sample_mask`, `reverse`). With n = 2 and
k = 3:

  a quick brown fox jumps over the lazy dog
  ------- ^^^^^^^^^ --------------------
  2       the span  4 tokens of context

Shapes: B rows, T tokens with padding, N blocks of a row, R = B * N, S tokens of a block, P
predictions of a row.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.corruption.units import at, draw_lengths, sum_at
from official.utils import seeding
from official.utils.seeding import Stream


def choose(
    units: tf.Tensor,
    number: tf.Tensor,
    seeds: tf.Tensor,
    *,
    size: int | tf.Tensor,
    max_targets: int,
    k: int,
    max_span: int,
    whole: bool,
    backward: tf.Tensor | None = None,
) -> tf.Tensor:
    """Chooses `number` tokens of each block, or all that are in a unit if these are fewer.

    Args:
      units: number of each token's unit, -1 = none; int32 [B, T].
      number: tokens to choose in each block, int32 [B, N].
      seeds: uint64 [B].
      size: S; blocks are cut at its multiples, so N * S >= T > (N - 1) * S.
      max_targets: P, at least every `number`.
      k: tokens of context for each unit of a span.
      max_span: the largest number of units in a span; 0 = no spans, units are drawn one by one.
      whole: True = spans are measured in units and taken whole. False = spans begin where a unit
        begins, and are measured in tokens (XLNet's release). In both cases a span is cut where
        `number` is reached, at a special token and at the end of its block.
      backward: rows of reversed text, bool [B]; None = no row.

    Returns:
      bool [B, T].
    """
    blocks = _Blocks(tf.shape(units), tf.shape(number)[1], size, backward)
    begins = blocks.split(_begins(units, backward))
    text = blocks.split(units >= 0)
    left = tf.reshape(number, [-1])  # [R]
    taken = tf.zeros_like(text)
    if max_span:
        draws = _draws(seeds, blocks.count, tf.minimum(max_targets, size), max_span)
        taken, left = _walk(text, begins, left, draws, k=k, whole=whole)
    order = tf.bitcast(seeding.bits(seeds, Stream.MASK_ORDER, blocks.count * size), tf.int64)
    order = tf.reshape(order, [-1, size])
    if whole:
        order = _same_for_units(order, begins)
    order = tf.argsort(tf.where(text & ~taken, order, tf.int64.max), axis=1, stable=True)
    filled = tf.cast(tf.range(size) < left[:, None], tf.int32)
    taken |= (sum_at(order, filled) > 0) & text
    return blocks.join(taken)


class _Blocks:
    """Cuts rows into blocks in reading order, and joins the blocks again.

    Attributes:
      count: N.
    """

    def __init__(
        self,
        shape: tf.Tensor,
        count: tf.Tensor,
        size: int | tf.Tensor,
        backward: tf.Tensor | None,
    ):
        self.count = count
        self._rows, self._length = tf.unstack(shape)
        self._size = size
        self._backward = backward

    def split(self, flags: tf.Tensor) -> tf.Tensor:
        """Cuts rows [B, T] into blocks [R, S]."""
        padding = self.count * self._size - self._length
        padded = tf.pad(flags, [[0, 0], [0, padding]])
        return self._reverse(tf.reshape(padded, [-1, self._size]))

    def join(self, flags: tf.Tensor) -> tf.Tensor:
        """Joins blocks [R, S] to rows [B, T]."""
        return tf.reshape(self._reverse(flags), [self._rows, -1])[:, : self._length]

    def _reverse(self, flags: tf.Tensor) -> tf.Tensor:
        """Reverses the blocks [R, S] of reversed text."""
        if self._backward is None:
            return flags
        backward = tf.repeat(self._backward, self.count)[:, None]
        return tf.where(backward, tf.reverse(flags, [1]), flags)


def _begins(units: tf.Tensor, backward: tf.Tensor | None) -> tf.Tensor:
    """Returns which tokens are the first of their unit in reading order: bool [B, T]."""
    before = tf.pad(units[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    if backward is not None:
        after = tf.pad(units[:, 1:], [[0, 0], [0, 1]], constant_values=-1)
        before = tf.where(backward[:, None], after, before)
    return (units >= 0) & (units != before)


def _same_for_units(order: tf.Tensor, begins: tf.Tensor) -> tf.Tensor:
    """Gives all tokens of a unit the number of its first token: [R, S]."""
    # A block that begins within a word has the rest of that word as one more unit.
    begins |= tf.range(tf.shape(begins)[1]) == 0
    firsts, _ = _columns_of(begins)
    unit = tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1
    return tf.gather(order, tf.gather(firsts, unit, batch_dims=1), batch_dims=1)


def span_lengths(seeds: tf.Tensor, count: int | tf.Tensor, max_span: int) -> tf.Tensor:
    """Draws lengths from 1 to max_span with p(n) ~ 1/n: int32 [B, count]."""
    return draw_lengths(1.0 / np.arange(1, max_span + 1), seeds, count)


class _Draws(NamedTuple):
    """The draws for the spans of each block.

    Attributes:
      lengths: int32 [R, steps], the length of each span.
      offsets: [R, steps], uniform numbers: which part of the context is before the span.
    """

    lengths: tf.Tensor
    offsets: tf.Tensor


def _draws(seeds: tf.Tensor, blocks: tf.Tensor, steps: tf.Tensor, max_span: int) -> _Draws:
    lengths = span_lengths(seeds, blocks * steps, max_span)
    offsets = seeding.uniforms(seeds, Stream.CONTEXT, blocks * steps)
    return _Draws(tf.reshape(lengths, [-1, steps]), tf.reshape(offsets, [-1, steps]))


class _Units(NamedTuple):
    """The units of blocks.

    Attributes:
      first: int32 [R, S], the first token of each unit.
      count: int32 [R].
      before: int32 [R, S], the number of units that begin before each token.
      text_end: int32 [R, S], the end of the text around each token: the next special token, or S.
    """

    first: tf.Tensor
    count: tf.Tensor
    before: tf.Tensor
    text_end: tf.Tensor


def _units(text: tf.Tensor, begins: tf.Tensor) -> _Units:
    size = tf.shape(text)[1]
    first, count = _columns_of(begins)
    before = tf.cumsum(tf.cast(begins, tf.int32), axis=1, exclusive=True)
    specials, special_count = _columns_of(~text)
    passed = tf.cumsum(tf.cast(~text, tf.int32), axis=1, exclusive=True)
    following = tf.gather(specials, tf.minimum(passed, size - 1), batch_dims=1)
    text_end = tf.where(passed < special_count[:, None], following, size)
    return _Units(first, count, before, text_end)


def _walk(
    text: tf.Tensor, begins: tf.Tensor, number: tf.Tensor, draws: _Draws, *, k: int, whole: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes spans in reading order, in all blocks at the same time.

    Returns:
      The taken tokens, bool [R, S], and how many are still to be taken, int32 [R].
    """
    size = tf.shape(text)[1]
    columns = tf.range(size)
    units = _units(text, begins)
    context_per_unit = _context_per_unit(text, number, k)

    def take(step, position, left, taken):
        n = tf.minimum(draws.lengths[:, step], left)
        context = tf.cast(n, tf.float32) * context_per_unit
        earliest = tf.cast(position + draws.offsets[:, step] * context, tf.int32)
        unit = at(units.before, tf.minimum(earliest, size - 1))
        walking = (left > 0) & (earliest < size) & (unit < units.count)
        begin = at(units.first, tf.minimum(unit, size - 1))
        end = _span_end(units, unit, begin, n, left, whole)
        inside = (columns >= begin[:, None]) & (columns < end[:, None])
        taken |= inside & walking[:, None]
        left -= tf.where(walking, end - begin, 0)
        context_after = position + context - tf.cast(earliest, tf.float32)
        position = tf.cast(end, tf.float32) + context_after
        return step + 1, tf.where(walking, position, tf.cast(size, tf.float32)), left, taken

    _, _, left, taken = tf.while_loop(
        lambda step, position, left, taken: (
            (step < tf.shape(draws.lengths)[1])
            & tf.reduce_any((left > 0) & (position < tf.cast(size, tf.float32)))
        ),
        take,
        (0, tf.zeros_like(context_per_unit), number, tf.zeros_like(text)),
    )
    return taken, left


def _context_per_unit(text: tf.Tensor, number: tf.Tensor, k: int) -> tf.Tensor:
    """Returns the tokens of context for each unit of a span, k or more: float32 [R]."""
    columns = tf.range(tf.shape(text)[1])
    room = tf.reduce_max(tf.where(text, columns + 1, 0), axis=1)
    # Without the additional token the walk would never reach the last token.
    fitting = tf.cast((room + 1) / tf.maximum(number, 1) - 1, tf.float32)
    return tf.maximum(float(k), fitting)


def _span_end(
    units: _Units, unit: tf.Tensor, begin: tf.Tensor, n: tf.Tensor, left: tf.Tensor, whole: bool
) -> tf.Tensor:
    """Returns the end of a span of n units, or of n tokens if it is not `whole`: int32 [R]."""
    end = at(units.text_end, begin)
    if not whole:
        return tf.minimum(end, begin + n)
    following = at(units.first, tf.minimum(unit + n, tf.shape(units.first)[1] - 1))
    end = tf.where(unit + n < units.count, tf.minimum(end, following), end)
    return tf.minimum(end, begin + left)


def _columns_of(flags: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the columns of true flags [R, S], then 0: int32 [R, S]; and their number [R]."""
    counted = tf.cumsum(tf.cast(flags, tf.int32), axis=1)
    columns = tf.range(tf.shape(flags)[1])
    listed = sum_at(tf.where(flags, counted - 1, -1), tf.where(flags, columns, 0))
    return listed, counted[:, -1]
