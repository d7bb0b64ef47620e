"""The orders in which examples are read, each of which a worker reads without the others.

The examples of a split are numbered 0, 1, … through the shards in their order. `OnePass` reads them
once, in this order or grouped by their lengths. `Lanes` and `Corpora` read them in random order,
for training. `official.data.batch_groups` and `official.data.row_groups` have the orders of
training by length and of streams.

Until they are parsed, examples are rows, a dict of
  epoch   int64 [n]
  index   int64 [n]   the number of the example; -1 in rows that fill the last batch
  record  string [n]  the serialized example
  length  int32 [n]   with buckets only: the length that the example is padded to

`Lanes`: the rows of a batch belong to L lanes, the same number of rows to each. In every epoch the
shards are shuffled, and their examples are cut into L parts that are equally long, one for each
lane. A lane reads the shards of its part one after the other, and the examples of a shard are
shuffled as a whole. There is no gap between epochs: a batch may contain the end of one and the
start of the next.

The order is a function of (seed, epoch), of the number of examples in each shard and of the batch
size, with any number of workers. A worker opens the shards of its own lanes only, so one of W reads
about 1 / W of the bytes, and a run that resumes opens one shard for each lane. One shard of each
lane is in memory. TensorFlow compares each record with its checksum (CRC-32C) when it reads it.

`Corpora`: several corpora, each of which has a share of every batch. Lane l of a batch reads lane l
of every corpus. Of the first n rows of lane l, floor(n w + l / L) are of the first of two corpora,
where w is its share. So floor(L n w) rows of all lanes are: the number of examples of a corpus is
its share of all, to within one example, after any number of batches. More corpora divide the rows
of the first in the same way, with the lanes in other orders; their numbers are then within a few
examples of their shares. Each corpus goes through epochs of its own, and the shares decide the
order too.

Shapes: S shards, L lanes, C corpora, n rows of a batch or of a lane.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from official.shards import local_files
from official.shards.manifest import Manifest
from official.utils import paths, seeding
from official.utils.seeding import Stream

_CHUNK = 64

Rows = dict[str, tf.Tensor]


class RowOrder(Protocol):
    """An order of rows in batches, of which a worker reads its own rows.

    `Lanes`, `Corpora`, `BatchGroups`, `RowGroups` and `OnePass` are such orders.
    """

    def dataset(
        self, start: int, first: int, count: int, share: int, end: int | None = None
    ) -> tf.data.Dataset:
        """Returns rows of the batches from number `start` on.

        Args:
          start: the number of the first batch.
          first: the first row of each batch that is read.
          count: the number of rows of each batch that are read.
          share: the rows of an element; a divisor of `count`.
          end: the number of batches of the run; None = unknown. Most orders do not depend on it.

        Returns:
          Rows; see above.
        """


@dataclasses.dataclass(frozen=True)
class Files:
    """The shards, in the order that numbers their examples.

    Attributes:
      paths: TFRecord files.
      counts: the number of records in each file.
      bytes: the size of all files; None = unknown.
    """

    paths: Sequence[str]
    counts: Sequence[int]
    bytes: int | None = None

    @classmethod
    def from_manifest(
        cls, folder: str | os.PathLike, content: Manifest, split: str | None = None
    ) -> "Files":
        """Returns the shards of a folder, of one split or of all."""
        shards = content.shards if split is None else content.split(split)
        return cls(
            [str(paths.path(folder) / shard.name) for shard in shards],
            [shard.records for shard in shards],
            sum(shard.bytes for shard in shards),
        )

    @classmethod
    def joined(cls, parts: Sequence["Files"]) -> "Files":
        """Returns the shards of several folders."""
        sizes = [part.bytes for part in parts if part.bytes is not None]
        return cls(
            [path for part in parts for path in part.paths],
            [count for part in parts for count in part.counts],
            sum(sizes) if len(sizes) == len(parts) else None,
        )

    def first(self) -> tf.Tensor:
        """Returns the number of the first example of each shard: int64 [S]."""
        return tf.constant([sum(self.counts[:i]) for i in range(len(self.counts))], tf.int64)

    def opened(self, shards: tf.Tensor) -> tf.data.Dataset:
        """Returns the names that TensorFlow reads some shards by; see `local_files.names`."""
        fetched = local_files.needed(self.paths)
        return local_files.names(tf.gather(tf.constant(self.paths), shards), fetched)


@dataclasses.dataclass(frozen=True)
class OnePass:
    """All rows once, in order, or grouped by their lengths; see `RowOrder`.

    Attributes:
      files: the shards.
      batch_size: rows of a batch; the last one is filled with rows that count for nothing.
      lengths: a function from records, string [n], to their lengths, int32 [n].
      bounds: the lengths that batches are padded to, in ascending order; empty = all have one.
    """

    files: Files
    batch_size: int
    lengths: Callable[[tf.Tensor], tf.Tensor]
    bounds: Sequence[int] = ()

    def dataset(
        self, start: int, first: int, count: int, share: int, end: int | None = None
    ) -> tf.data.Dataset:
        """See `RowOrder`."""
        del end
        rows = in_order(self.files)
        if self.bounds:
            batches = bucketed(rows, self.lengths, self.bounds, self.batch_size)
        else:
            batches = rows.rebatch(self.batch_size)
        batches = batches.skip(start).map(lambda rows: filled(rows, self.batch_size))
        own = slice(first, first + count)
        return batches.map(lambda rows: {name: x[own] for name, x in rows.items()}).rebatch(share)


def in_order(files: Files) -> tf.data.Dataset:
    """Returns all rows once, in order; their epoch is 0."""
    return (
        tf.data.Dataset.zip(
            files.opened(tf.range(len(files.paths))),
            tf.data.Dataset.from_tensor_slices(files.first()),
        )
        .flat_map(_read)
        .map(
            lambda index, record: {"epoch": tf.zeros_like(index), "index": index, "record": record}
        )
    )


def bucketed(
    rows: tf.data.Dataset,
    lengths: Callable[[tf.Tensor], tf.Tensor],
    bounds: Sequence[int],
    batch_size: int,
) -> tf.data.Dataset:
    """Groups rows into batches of similar length.

    A bucket becomes a batch when it is full, and at the end of `rows`. The content of the buckets
    depends on all rows before, so reading cannot start in the middle.

    Args:
      rows: the result of `in_order`.
      lengths: a function from records, string [n], to their lengths, int32 [n].
      bounds: the largest length of each bucket, in ascending order; the last one is the length of
        the longest example.
      batch_size: rows of a full batch.

    Returns:
      Batches, with the bound of their bucket as `length`.
    """
    bounds = tf.constant(bounds)

    def with_length(rows):
        bucket = tf.searchsorted(bounds, lengths(rows["record"]))
        return {**rows, "length": tf.gather(bounds, bucket)}

    return (
        rows.map(with_length)
        .unbatch()
        .group_by_window(
            key_func=lambda row: tf.cast(row["length"], tf.int64),
            reduce_func=lambda _, window: window.batch(batch_size),
            window_size=batch_size,
        )
    )


def filled(rows: Rows, size: int) -> Rows:
    """Repeats the first row until there are `size` rows; the repeated rows have index -1."""
    count = tf.size(rows["index"])
    repeated_rows = {
        name: tf.concat([value, tf.repeat(value[:1], size - count)], axis=0)
        for name, value in rows.items()
    }
    index = tf.where(tf.range(size) < count, repeated_rows["index"], -1)
    return {**repeated_rows, "index": index}


def _read(path: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
    """Reads a shard as chunks (index, record); its first example has the index `first`."""

    def numbered(chunk, record):
        return first + chunk * _CHUNK + tf.range(tf.size(record, tf.int64)), record

    records = tf.data.TFRecordDataset(path, buffer_size=1 << 20)
    return records.batch(_CHUNK).enumerate().map(numbered)


# A shard of each lane is in memory. There may be 32 lanes, for shards of up to 32 MiB, and more if
# shards are so small that those of all lanes have 1 GiB at most. A shard at the border of two lanes
# is read by both, so a lane has many shards.
MAX_LANES = 32
MAX_BYTES = 1 << 30
SHARDS_PER_LANE = 16
_PRECISION = 10**6  # of shares


def count_lanes(corpora: Sequence[Files], batch_size: int) -> int:
    """Returns L, the largest divisor of the batch size that suits the shards.

    It is not above the number of shards, of the corpus that has most, nor above 32 unless there are
    many small shards.

    Args:
      corpora: the shards of each corpus that a lane reads.
      batch_size: rows of a batch, over all workers.
    """
    shards = [max(1, int(np.count_nonzero(files.counts))) for files in corpora]
    sizes = [files.bytes for files in corpora if files.bytes is not None]
    limit = MAX_LANES
    if len(sizes) == len(corpora):
        of_a_lane = sum(size / count for size, count in zip(sizes, shards, strict=True))
        many = min(int(MAX_BYTES // max(of_a_lane, 1)), max(shards) // SHARDS_PER_LANE)
        limit = max(limit, many)
    most = min(limit, batch_size, max(shards))
    return max(count for count in range(1, most + 1) if batch_size % count == 0)


class Lanes:
    """The rows of all batches; `dataset` reads those of one worker.

    Attributes:
      lanes: L.
    """

    def __init__(self, files: Files, seed: int, batch_size: int, lanes: int | None = None):
        """Prepares the order; no shard is opened.

        Args:
          files: the shards.
          seed: the seed of the order.
          batch_size: rows of a batch, over all workers.
          lanes: L, a divisor of the batch size; None = `count_lanes`. If there are more lanes than
            shards, several lanes read the same shard.
        """
        self._files = files
        self._counts = tf.constant(files.counts, tf.int64)
        self._seed = seed
        self._total = sum(files.counts)
        self.lanes = lanes or count_lanes([files], batch_size)
        self._rows = batch_size // self.lanes  # of a lane in a batch

    def dataset(
        self, start: int, first: int, count: int, share: int, end: int | None = None
    ) -> tf.data.Dataset:
        """See `RowOrder`."""
        del end

        def read(lane):
            return self.lane(lane, start * self._rows).rebatch(self._rows, drop_remainder=True)

        return interleave(read, self._rows, first, count, share)

    def length(self, lane: int | tf.Tensor, epochs: int | tf.Tensor) -> int | tf.Tensor:
        """Returns the number of examples that a lane reads in its first `epochs` epochs.

        Lanes differ by one example at most, however many epochs there are.
        """
        return (epochs * self._total + self.lanes - 1 - lane) // self.lanes

    def epoch(self, lane: int | tf.Tensor, number: int | tf.Tensor) -> int | tf.Tensor:
        """Returns the epoch of example `number` of a lane.

        It is the largest one before which the lane reads `number` examples or fewer.
        """
        return (number * self.lanes + lane) // self._total

    def lane(self, lane: tf.Tensor, start: int | tf.Tensor) -> tf.data.Dataset:
        """Returns the rows of a lane from number `start` on, as the parts of shards."""
        first_epoch = self.epoch(lane, start)

        def read_epoch(epoch):
            begin, end = self.length(lane, epoch), self.length(lane, epoch + 1)
            others = tf.range(lane)
            before = tf.reduce_sum(self.length(others, epoch + 1) - self.length(others, epoch))
            skipped = tf.where(epoch == first_epoch, start - begin, 0)
            return self._part(epoch, before + skipped, before + end - begin)

        return tf.data.Dataset.counter(first_epoch).flat_map(read_epoch)

    def _part(self, epoch: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
        """Returns the rows of an epoch from place `begin` to `end`, as the parts of shards."""
        order = self._permutation(epoch, 0, Stream.SHARD_ORDER, tf.size(self._counts))
        ends = tf.cumsum(tf.gather(self._counts, order))  # [S]
        first, last = tf.unstack(
            tf.searchsorted(ends, [begin, end - 1], side="right", out_type=tf.int64)
        )

        def read_shard(i, path):
            shard = order[i]
            count = self._counts[shard]
            records = tf.data.TFRecordDataset(path, buffer_size=1 << 20)
            first_place = ends[i] - count
            shuffled = self._permutation(epoch, shard, Stream.RECORD_ORDER, count)
            own = tf.cast(shuffled, tf.int64)[
                tf.maximum(begin - first_place, 0) : tf.minimum(end - first_place, count)
            ]
            number = tf.reduce_sum(self._counts[:shard])  # of the first example

            def rows(record: tf.Tensor) -> Rows:
                return {
                    "epoch": tf.fill(tf.shape(own), epoch),
                    "index": number + own,
                    "record": tf.gather(record, own),
                }

            return records.batch(tf.maximum(count, 1)).map(rows)

        stop = tf.where(begin < end, last + 1, first)
        places = tf.data.Dataset.range(first, stop)
        opened = self._files.opened(order[first:stop])
        return tf.data.Dataset.zip(places, opened).flat_map(read_shard)

    def _permutation(
        self, epoch: tf.Tensor, counter: int | tf.Tensor, stream: Stream, count: tf.Tensor
    ) -> tf.Tensor:
        """Returns a permutation of 0 … count - 1, int32, that the arguments determine."""
        rows = seeding.row_seeds(self._seed, epoch, tf.reshape(counter, [1]))
        return tf.argsort(tf.bitcast(seeding.bits(rows, stream, count)[0], tf.int64))


def interleave(
    read: Callable[[tf.Tensor], tf.data.Dataset], size: int, first: int, count: int, share: int
) -> tf.data.Dataset:
    """Returns rows of each batch from those of the lanes that have them.

    Args:
      read: a function from the number of a lane to its rows of each batch.
      size: rows of a lane in a batch.
      first: the first row of each batch that is read.
      count: the number of rows of each batch that are read.
      share: the rows of an element; a divisor of `count`.
    """

    def own(lane):
        places = slice(
            tf.maximum(first - lane * size, 0), tf.minimum(first + count - lane * size, size)
        )
        return read(lane).map(lambda rows: {name: x[places] for name, x in rows.items()})

    begin, end = first // size, (first + count - 1) // size + 1
    lanes = tf.data.Dataset.range(begin, end)
    rows = lanes.interleave(own, cycle_length=end - begin, block_length=1)
    return rows.rebatch(share, drop_remainder=True)


class Corpora:
    """The rows of all batches; `dataset` reads those of one worker.

    Attributes:
      lanes: L; see `official.data.order.count_lanes`.
    """

    def __init__(
        self,
        corpora: Sequence[Files],
        shares: Sequence[float],
        seed: int,
        batch_size: int,
        ahead: Sequence[float] = (),
    ):
        """Prepares the order; no shard is opened.

        Args:
          corpora: the shards of each corpus, whose examples are numbered in this order.
          shares: a positive weight for each corpus.
          seed: the seed of the order.
          batch_size: rows of a batch, over all workers.
          ahead: by how many examples each corpus is ahead of its share of the batches, because
            earlier ones had other shares; empty = 0.
        """
        self.lanes = count_lanes(corpora, batch_size)
        self._corpora = [Lanes(files, seed, batch_size, self.lanes) for files in corpora]
        sizes = [sum(files.counts) for files in corpora]
        self._firsts = np.cumsum([0, *sizes[:-1]])  # the number of each corpus's first example
        bounds = np.rint(np.cumsum(shares) / np.sum(shares) * _PRECISION)
        self._bounds = np.maximum(1, bounds).astype(np.int64)  # of the shares, [C]
        self._places = tf.constant(  # the place of each lane in each division in two, [C - 1, L]
            [_places(division, self.lanes) for division in range(len(corpora) - 1)], tf.int64
        )
        self._rows = batch_size // self.lanes  # of a lane in a batch
        ahead = ahead or [0.0] * len(corpora)
        # Fractions are rounded up, so that no example is read twice.
        self._ahead = np.ceil(np.round(np.divide(ahead, self.lanes), 6)).astype(np.int64)  # [C]

    def dataset(
        self, start: int, first: int, count: int, share: int, end: int | None = None
    ) -> tf.data.Dataset:
        """See `RowOrder`."""
        del end

        def read(lane):
            return self._lane(lane, start).batch(self._rows, drop_remainder=True)

        return interleave(read, self._rows, first, count, share)

    def counts(self, lane: int | tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns how many of the first rows [n] of a lane are of each corpus: int64 [n, C]."""
        counts = []
        for division, (part, whole) in enumerate(reversed(list(itertools.pairwise(self._bounds)))):
            place = self._places[division, lane]
            below = (rows * self.lanes * part + place * whole) // (self.lanes * whole)
            counts.append(rows - below)
            rows = below
        return tf.stack([*counts, rows][::-1], axis=1)

    def _lane(self, lane: tf.Tensor, start: int) -> tf.data.Dataset:
        """Returns the rows of a lane from batch `start` on, one by one."""
        before = self.counts(lane, tf.constant([start * self._rows], tf.int64))[0]  # [C]

        def corpora(batch):
            rows = batch * self._rows + tf.range(self._rows + 1, dtype=tf.int64)
            counts = self.counts(lane, rows)
            return tf.argmax(counts[1:] - counts[:-1], axis=1)  # the corpus of each row

        sources = []
        for number, (lanes, first) in enumerate(zip(self._corpora, self._firsts, strict=True)):
            read = tf.maximum(before[number] + self._ahead[number], 0)
            rows = lanes.lane(lane, read)
            sources.append(rows.map(functools.partial(_renumbered, first=first)).unbatch())
        batches = tf.data.Dataset.counter(tf.constant(start, tf.int64))
        return tf.data.Dataset.choose_from_datasets(
            sources, batches.map(corpora).unbatch(), stop_on_empty_dataset=False
        )


def _places(division: int, lanes: int) -> np.ndarray:
    """Returns a permutation of 0 … L - 1, which is spread evenly over any range of lanes."""
    if division == 0:
        return np.arange(lanes)
    return np.argsort(np.argsort(np.arange(lanes) * np.sqrt(division + 1) % 1))


def _renumbered(rows: Rows, first: int) -> Rows:
    """Returns rows with the numbers of their examples among those of all corpora."""
    return {**rows, "index": rows["index"] + first}
