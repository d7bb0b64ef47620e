"""Batches of similar lengths in training (`recipe.bucket_lengths`).

The rows of K consecutive batches form a group. They are sorted by the bound of their lengths, cut
into batches again, and the batches of the group are shuffled. A batch is padded to the bound of its
longest row. The order is a function of that of the rows and of the seed, and a run that resumes
reads one group again at most. A group ends where the run ends, so that a run of E epochs has each
example E times, but for those of a part of a batch.

The lengths of a batch must be equal on all workers, so every worker reads the rows of all of them.

Shapes: B rows of a batch.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from official.data.order import RowOrder, Rows
from official.utils import seeding
from official.utils.seeding import Stream

MAX_BATCHES = 64


class LengthGroups:
    """The rows of all batches; `dataset` reads those of one worker.

    Attributes:
      batches: K, at most `MAX_BATCHES` and at most the whole batches of an epoch.
    """

    def __init__(
        self,
        lanes: RowOrder,
        lengths: Callable[[tf.Tensor], tf.Tensor],
        bounds: Sequence[int],
        seed: int,
        batch_size: int,
        num_examples: int,
        ends: bool = True,
    ):
        """Prepares the groups; no shard is opened.

        Args:
          lanes: the rows that are grouped.
          lengths: a function from records, string [n], to their lengths, int32 [n].
          bounds: the lengths of batches in ascending order; the last one is the length of the
            longest example.
          seed: the seed of the order.
          batch_size: B.
          num_examples: the number of examples of an epoch.
          ends: whether a group ends where the run ends, which earlier versions did not do.
        """
        self._lanes = lanes
        self._lengths = lengths
        self._bounds = tf.constant(bounds)
        self._seed = seed
        self._size = batch_size
        self._ends = ends
        self.batches = min(MAX_BATCHES, max(1, num_examples // batch_size))

    def dataset(
        self, start: int, first: int, count: int, share: int, end: int | None = None
    ) -> tf.data.Dataset:
        """See `RowOrder`; rows have a `length`, the bound of their batch."""
        end = (end or 0) if self._ends else 0
        whole, last = divmod(end, self.batches)
        if start >= end:
            batches = self._groups(start, end, self.batches, whole + bool(last))
        else:
            batches = self._groups(start, 0, self.batches, 0, whole)
            if last:
                place = whole * self.batches
                batches = batches.concatenate(
                    self._groups(max(start, place), place, last, whole, whole + 1)
                )
            batches = batches.concatenate(self._groups(end, end, self.batches, whole + bool(last)))
        own = slice(first, first + count)
        return batches.map(lambda rows: {name: x[own] for name, x in rows.items()}).rebatch(share)

    def _groups(
        self, start: int, origin: int, size: int, number: int, stop: int | None = None
    ) -> tf.data.Dataset:
        """Returns the batches of some groups, from number `start` on.

        Args:
          start: the number of the first batch.
          origin: the number of the first batch of the first group.
          size: the batches of a group.
          number: the number of the first group.
          stop: the number of the group behind the last one; None = without end.
        """
        before, skipped = divmod(start - origin, size)
        rows = self._lanes.dataset(start - skipped, 0, self._size, self._size)
        groups = rows.rebatch(size * self._size, drop_remainder=True).enumerate(number + before)
        if stop is not None:
            groups = groups.take(max(stop - number - before, 0))
        sort = functools.partial(self._sorted, batches=size)
        return groups.map(sort).prefetch(1).unbatch().skip(skipped)

    def _sorted(self, group: tf.Tensor, rows: Rows, batches: int) -> Rows:
        """Returns the rows of a group [K · B] as its batches [K, B]."""
        bucket = tf.searchsorted(self._bounds, self._lengths(rows["record"]))
        order = tf.reshape(tf.argsort(bucket, stable=True), [batches, self._size])
        seeds = seeding.row_seeds(self._seed, group, tf.zeros([1], tf.int64))
        draws = seeding.bits(seeds, Stream.BATCH_ORDER, batches)[0]
        order = tf.gather(order, tf.argsort(tf.bitcast(draws, tf.int64)))
        longest = tf.reduce_max(tf.gather(bucket, order), axis=1, keepdims=True)  # [K, 1]
        length = tf.broadcast_to(tf.gather(self._bounds, longest), tf.shape(order))
        return {**{name: tf.gather(x, order) for name, x in rows.items()}, "length": length}
