"""Batches in training that are arranged in groups: by length, or without the same text twice.

The rows of K consecutive batches form a group. They are put into batches anew, and the batches of
the group are shuffled. The order is a function of that of the rows and of the seed, and a run that
resumes reads one group again at most. A group ends where the run ends, so a run of E epochs reads
each example E times, except those of an incomplete last batch.

With `recipe.bucket_lengths` the rows are sorted by the bound of their lengths and cut into batches,
each of which is padded to the bound of its longest row.

With `recipe.distinct_texts` no text occurs twice in a batch, in any column of its rows; see
`official.data.distinct_texts`. Rows for which no batch has room are left out of the epoch, and rows
of weight 0 take their places. There are hardly any unless a text occurs in more than K rows of a
group.

The batches are those of all workers together, so every worker reads the rows of all of them.

Shapes: B rows of a batch, C texts of a row.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from official.data import distinct_texts
from official.data.order import RowOrder, Rows
from official.utils import seeding
from official.utils.seeding import Stream

MAX_BATCHES = 64


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """What decides the batches of the rows of a group.

    Attributes:
      lengths: a function from records, string [n], to their lengths, int32 [n].
      bounds: the lengths of batches in ascending order; the last one is the length of the longest
        example. Empty = lengths do not matter.
      texts: a function from records, string [n], to the hashes of their texts, int32 [n, C]; None =
        texts do not matter.
    """

    lengths: Callable[[tf.Tensor], tf.Tensor]
    bounds: Sequence[int] = ()
    texts: Callable[[tf.Tensor], tf.Tensor] | None = None


class BatchGroups:
    """The rows of all batches; `dataset` reads those of one worker.

    Attributes:
      batches: K, at most `MAX_BATCHES` and at most the whole batches of an epoch.
    """

    def __init__(
        self,
        lanes: RowOrder,
        arrangement: Arrangement,
        seed: int,
        batch_size: int,
        num_examples: int,
    ):
        """Prepares the groups; no shard is opened.

        Args:
          lanes: the rows that are grouped.
          arrangement: what decides the batches.
          seed: the seed of the order.
          batch_size: B.
          num_examples: the number of examples of an epoch.
        """
        self._lanes = lanes
        self._arrangement = arrangement
        self._seed = seed
        self._size = batch_size
        self.batches = min(MAX_BATCHES, max(1, num_examples // batch_size))

    def dataset(
        self, start: int, first: int, count: int, share: int, end: int | None = None
    ) -> tf.data.Dataset:
        """See `RowOrder`; with bounds, rows have a `length`, the bound of their batch."""
        end = end or 0
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
        arrange = functools.partial(self._arranged, batches=size)
        return groups.map(arrange).prefetch(1).unbatch().skip(skipped)

    def _arranged(self, group: tf.Tensor, rows: Rows, batches: int) -> Rows:
        """Returns the rows of a group [K · B] as its batches [K, B]."""
        bounds, shape = self._arrangement.bounds, [batches, self._size]
        order = tf.range(batches * self._size)
        if bounds:
            bucket = tf.searchsorted(tf.constant(bounds), self._arrangement.lengths(rows["record"]))
            order = tf.argsort(bucket, stable=True)
        places, real = tf.reshape(order, shape), None
        if self._arrangement.texts is not None:
            texts = tf.gather(self._arrangement.texts(rows["record"]), order)
            found = tf.numpy_function(distinct_texts.places, [texts, batches], tf.int32)
            found = tf.ensure_shape(found, shape)
            real = found >= 0
            places = tf.gather(order, tf.where(real, found, found[:, :1]))  # the first is never -1
        seeds = seeding.row_seeds(self._seed, group, tf.zeros([1], tf.int64))
        shuffled = tf.argsort(
            tf.bitcast(seeding.bits(seeds, Stream.BATCH_ORDER, batches)[0], tf.int64)
        )
        places = tf.gather(places, shuffled)
        arranged = {name: tf.gather(x, places) for name, x in rows.items()}
        if real is not None:
            arranged["index"] = tf.where(tf.gather(real, shuffled), arranged["index"], -1)
        if bounds:
            longest = tf.reduce_max(tf.gather(bucket, places), axis=1, keepdims=True)  # [K, 1]
            length = tf.gather(tf.constant(bounds), longest)
            arranged["length"] = tf.broadcast_to(length, tf.shape(places))
        return arranged
