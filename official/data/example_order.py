"""Examples in the order of their numbers, their grouping into batches, and the parts of batches.

The examples of a split are numbered 0, 1, … through the shards in their order. `in_order` reads
them once. `official.data.lanes` reads examples in random order, and `official.data.row_groups` the
rows of a stream. `split` divides batches among workers and replicas.

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

import tensorflow as tf

from official.shards.manifest import Manifest
from official.utils import paths

_CHUNK = 64

Rows = dict[str, tf.Tensor]


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
        sizes = [part.bytes for part in parts]
        return cls(
            [path for part in parts for path in part.paths],
            [count for part in parts for count in part.counts],
            None if None in sizes else sum(sizes),
        )

    def tensors(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the paths and the number of the first example of each shard."""
        first = [sum(self.counts[:i]) for i in range(len(self.counts))]
        return tf.constant(self.paths), tf.constant(first, tf.int64)


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


def split(
    batches: tf.data.Dataset, share: int, worker: int, replicas_per_worker: int
) -> tf.data.Dataset:
    """Splits each batch into one element for each replica of a worker.

    Args:
      batches: dicts of tensors [n, ...].
      share: rows of one replica.
      worker: the index of this worker.
      replicas_per_worker: the number of elements that a batch becomes.
    """
    size = replicas_per_worker * share
    rows_of_worker = slice(worker * size, (worker + 1) * size)
    batches = batches.map(lambda rows: {name: x[rows_of_worker] for name, x in rows.items()})
    return batches.rebatch(share)


def _read(path: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
    """Reads a shard as chunks (index, record); its first example has the index `first`."""

    def numbered(chunk, record):
        return first + chunk * _CHUNK + tf.range(tf.size(record, tf.int64)), record

    records = tf.data.TFRecordDataset(path, buffer_size=1 << 20)
    return records.batch(_CHUNK).enumerate().map(numbered)
