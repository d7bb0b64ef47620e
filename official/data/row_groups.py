"""The rows of a stream (`segments.format: stream`), which a worker reads without the others.

The R rows of a batch are split into G groups of consecutive rows. A shard has a range of steps of
one group, step by step, and the shards are stored group by group. A worker opens the shards of the
groups of its rows only. A run that resumes opens one shard for each group, and skips the steps in
it that come before.

Row b of step t is example t · R + b of its folder, for any G. Several folders are read one after
the other in every epoch.

In each epoch after the first, a group begins at another step of its rows, drawn at random, and
goes on from the end of them to their beginning. So the batches of an epoch have other rows side by
side than those of the epoch before, and each row is read once. A row follows its predecessor in the
text except at the first step of an epoch, where `first` is true, and at the beginning of its text.

Shapes: R rows of a batch, G groups, S shards, T steps of a folder.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official.data.order import Files, Rows
from official.utils import seeding
from official.utils.seeding import Stream


@dataclasses.dataclass(frozen=True)
class Folder:
    """The shards of a folder.

    Attributes:
      files: the shards, group by group.
      groups: G; a divisor of R.
    """

    files: Files
    groups: int = 1


class RowGroups:
    """The rows of all steps; `dataset` reads those of one worker."""

    def __init__(
        self,
        folders: Sequence[Folder],
        rows: int,
        seed: int,
        repeat: bool = True,
    ):
        """Prepares the order; no shard is opened.

        Args:
          folders: the folders, whose examples are numbered in this order.
          rows: R. Every folder has a whole number of steps.
          seed: the seed of the order.
          repeat: True = epochs 0, 1, … without end; False = epoch 0.
        """
        self._seed, self._repeat = seed, repeat
        self._folders = list(folders)
        self._rows = rows
        self._steps = [sum(folder.files.counts) // rows for folder in folders]

    def dataset(
        self, start: int, first: int, count: int, share: int, end: int | None = None
    ) -> tf.data.Dataset:
        """See `RowOrder`; rows have `first` bool [n], whether a row begins."""
        del end
        repeat = self._repeat
        first_epoch, offset = divmod(start, sum(self._steps)) if repeat else (0, start)

        def read_epoch(epoch):
            skipped = tf.where(epoch == first_epoch, tf.constant(offset, tf.int64), 0)
            parts: list[tf.data.Dataset] = []
            before = 0
            for number, steps in enumerate(self._steps):
                begin = tf.clip_by_value(skipped - before, 0, steps)
                parts.append(self._folder(number, epoch, begin, slice(first, first + count)))
                before += steps
            rows = functools.reduce(tf.data.Dataset.concatenate, parts)
            return rows.map(lambda rows: {"epoch": tf.fill(tf.shape(rows["index"]), epoch), **rows})

        epochs = tf.data.Dataset.counter(tf.constant(first_epoch, tf.int64))
        epochs = epochs if repeat else epochs.take(1)
        return epochs.flat_map(read_epoch).rebatch(share, drop_remainder=True)

    def _folder(
        self, number: int, epoch: tf.Tensor, start: tf.Tensor, own: slice
    ) -> tf.data.Dataset:
        """Returns the rows `own` of a folder from step `start` on, as the parts of groups."""
        folder, steps = self._folders[number], self._steps[number]
        size = self._rows // folder.groups  # rows of a group
        ends = np.cumsum(folder.files.counts)  # [S]
        starts = tf.constant(ends - folder.files.counts)
        before = sum(self._steps[:number]) * self._rows  # examples of the folders before
        turns = self._turns(number, epoch)  # [G]

        def read_steps(group: tf.Tensor, first: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
            """Returns the records of some steps of a group."""
            begin, end = (group * steps + first) * size, (group * steps + end) * size

            def read_shard(shard, path):
                records = tf.data.TFRecordDataset(path, buffer_size=1 << 20)
                return records.skip(tf.maximum(begin - starts[shard], 0))

            shard = tf.searchsorted(ends, begin[None], side="right", out_type=tf.int64)[0]
            last = tf.searchsorted(ends, end[None] - 1, side="right", out_type=tf.int64)[0]
            shards = tf.range(shard, tf.where(begin < end, last + 1, shard))
            opened = folder.files.opened(shards)
            numbers = tf.data.Dataset.from_tensor_slices(shards)
            records = tf.data.Dataset.zip(numbers, opened).flat_map(read_shard)
            return records.take(end - begin)

        def read(group):
            turn = turns[group]

            def rows(step: tf.Tensor, record: tf.Tensor) -> Rows:
                begin = group * size
                columns = tf.range(tf.maximum(begin, own.start), tf.minimum(begin + size, own.stop))
                there = (step + turn) % steps
                return {
                    "index": before + there * self._rows + columns,
                    "record": tf.gather(record, columns - begin),
                    "first": tf.fill(tf.shape(columns), step == 0),
                }

            place = start + turn
            to_end = read_steps(group, tf.minimum(place, steps), tf.constant(steps, tf.int64))
            from_begin = read_steps(group, tf.maximum(place - steps, 0), turn)
            records = to_end.concatenate(from_begin).batch(size, drop_remainder=True)
            return tf.data.Dataset.zip(tf.data.Dataset.counter(start), records).map(rows)

        groups = tf.data.Dataset.range(own.start // size, (own.stop - 1) // size + 1)
        return groups.interleave(read, cycle_length=folder.groups, block_length=1)

    def _turns(self, number: int, epoch: tf.Tensor) -> tf.Tensor:
        """Returns the step at which each group of a folder begins in an epoch: int64 [G]."""
        seeds = seeding.row_seeds(self._seed, epoch, tf.constant([number], tf.int64))
        draws = seeding.bits(seeds, Stream.ROW_ORDER, self._folders[number].groups)[0]
        turns = tf.cast(draws % tf.constant(self._steps[number], tf.uint64), tf.int64)
        return tf.where(epoch > 0, turns, tf.zeros_like(turns))
