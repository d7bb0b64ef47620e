"""Examples in the order of their numbers, and their grouping into batches.

The examples of a split are numbered 0, 1, … through the shards in their order. `in_order` reads
them once. `official.data.lanes` reads examples in random order, and `official.data.row_groups` the
rows of a stream.

Until they are parsed, examples are rows, a dict of
  epoch   int64 [n]
  index   int64 [n]   the number of the example; -1 in rows that fill the last batch
  record  string [n]  the serialized example
  length  int32 [n]   with buckets only: the length that the example is padded to

Shapes: n rows of a batch.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from official.shards.manifest import Manifest
from official.utils import paths

_CHUNK = 64

Rows = dict[str, tf.Tensor]


class RowOrder(Protocol):
    """An order of rows in batches, of which a worker reads its own rows.

    `Lanes`, `Corpora`, `LengthGroups`, `RowGroups` and `OnePass` are such orders.
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

    def tensors(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the paths and the number of the first example of each shard."""
        first = [sum(self.counts[:i]) for i in range(len(self.counts))]
        return tf.constant(self.paths), tf.constant(first, tf.int64)


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
        tf.data.Dataset.from_tensor_slices(files.tensors())
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
