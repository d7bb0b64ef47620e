"""Batches of similar lengths in training (`recipe.bucket_lengths`).

The rows of K consecutive batches form a group. They are sorted by the bound of their lengths, cut
into batches again, and the batches of the group are shuffled. A batch is padded to the bound of its
longest row. The order is a function of that of the rows and of the seed, and a run that resumes
reads one group again at most.

The lengths of a batch must be equal on all workers, so every worker reads the rows of all of them.

Shapes: B rows of a batch.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from official.data.example_order import Rows
from official.data.lanes import Lanes
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
        lanes: Lanes,
        lengths: Callable[[tf.Tensor], tf.Tensor],
        bounds: Sequence[int],
        seed: int,
        batch_size: int,
        num_examples: int,
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
        """
        self._lanes = lanes
        self._lengths = lengths
        self._bounds = tf.constant(bounds)
        self._seed = seed
        self._size = batch_size
        self.batches = min(MAX_BATCHES, max(1, num_examples // batch_size))

    def dataset(self, start: int, first: int, count: int, share: int) -> tf.data.Dataset:
        """Returns rows of the batches from number `start` on; see `Lanes.dataset`.

        Rows have a `length`, the bound of their batch.
        """
        group, skipped = divmod(start, self.batches)
        rows = self._lanes.dataset(group * self.batches, 0, self._size, self._size)
        groups = rows.rebatch(self.batches * self._size, drop_remainder=True).enumerate(group)
        batches = groups.map(self._sorted).prefetch(1).unbatch().skip(skipped)
        own = slice(first, first + count)
        return batches.map(lambda rows: {name: x[own] for name, x in rows.items()}).rebatch(share)

    def _sorted(self, group: tf.Tensor, rows: Rows) -> Rows:
        """Returns the rows of a group [K · B] as its batches [K, B]."""
        bucket = tf.searchsorted(self._bounds, self._lengths(rows["record"]))
        order = tf.reshape(tf.argsort(bucket, stable=True), [self.batches, self._size])
        seeds = seeding.row_seeds(self._seed, group, tf.zeros([1], tf.int64))
        draws = seeding.bits(seeds, Stream.BATCH_ORDER, self.batches)[0]
        order = tf.gather(order, tf.argsort(tf.bitcast(draws, tf.int64)))
        longest = tf.reduce_max(tf.gather(bucket, order), axis=1, keepdims=True)  # [K, 1]
        length = tf.broadcast_to(tf.gather(self._bounds, longest), tf.shape(order))
        return {**{name: tf.gather(x, order) for name, x in rows.items()}, "length": length}
