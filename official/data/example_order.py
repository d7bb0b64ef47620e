"""Which example comes when: the order of reading, and the grouping into batches.

The examples of a split have numbers: 0, 1, … through the shards in their order. In epoch e they
come in an order that is a function of (seed, e) and the numbers of examples in the shards. The
shards are shuffled, `_CYCLE` of them are read in turn, `_CHUNK` records at a time, and every
`buffer` records read in this way are shuffled among themselves. Epochs follow one another without
a gap: a batch may hold the end of one and the start of the next. The rows of a stream
(`segments.format: stream`) come in the order of their numbers in every epoch: `repeated`.

Until they are parsed, examples travel as rows: a dict of
  epoch   int64 [n]
  index   int64 [n]   the example's number; -1 in rows that only fill a batch up
  record  string [n]  serialized
  places  int32 [n]   with buckets only: the length to pad to
"""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from official.utils import seeding
from official.utils.seeding import Stream

_CHUNK = 64
_CYCLE = 8

Rows = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Files:
    """Shards, in the order that numbers their examples.

    Attributes:
      paths: TFRecord files.
      counts: the records of each.
    """

    paths: Sequence[str]
    counts: Sequence[int]

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


def repeated(files: Files, size: int, start: int = 0) -> tf.data.Dataset:
    """Returns the rows of epoch 0, 1, … without end, in order, as batches.

    Args:
      files: the shards; an epoch is a whole number of batches.
      size: rows of a batch.
      start: how many batches to leave out.
    """
    first_epoch, offset = divmod(start, sum(files.counts) // size)

    def of_epoch(epoch):
        left_out = tf.where(epoch == first_epoch, tf.constant(offset, tf.int64), 0)
        batches = in_order(files).rebatch(size, drop_remainder=True).skip(left_out)
        return batches.map(lambda rows: {**rows, "epoch": rows["epoch"] + epoch})

    return tf.data.Dataset.counter(tf.constant(first_epoch, tf.int64)).flat_map(of_epoch)


def shuffled(files: Files, seed: int, buffer: int, start: int = 0) -> tf.data.Dataset:
    """Returns the rows of epoch 0, 1, … without end.

    Args:
      files: the shards.
      seed: of the order.
      buffer: how many records are shuffled together.
      start: how many rows to leave out; whole epochs cost nothing, others are read but not parsed.
    """
    paths, first = files.tensors()
    first_epoch, offset = divmod(start, sum(files.counts))

    def of_epoch(epoch):
        left_out = tf.where(epoch == first_epoch, tf.constant(offset, tf.int64), 0)
        order = _order(seed, epoch, 0, Stream.SHARD_ORDER, len(files.paths))
        shards = tf.data.Dataset.from_tensor_slices(
            (tf.gather(paths, order), tf.gather(first, order))
        )
        blocks = shards.interleave(_read, cycle_length=_CYCLE, block_length=1).rebatch(buffer)
        blocks = blocks.enumerate().skip(left_out // buffer)
        return blocks.map(lambda block, rows: of_block(epoch, left_out, block, *rows))

    def of_block(epoch, left_out, block, index, record):
        order = _order(seed, epoch, block, Stream.RECORD_ORDER, tf.size(index))
        order = order[tf.maximum(left_out - block * buffer, 0) :]
        return {
            "epoch": tf.fill(tf.shape(order), epoch),
            "index": tf.gather(index, order),
            "record": tf.gather(record, order),
        }

    return tf.data.Dataset.counter(tf.constant(first_epoch, tf.int64)).flat_map(of_epoch)


def bucketed(
    rows: tf.data.Dataset,
    lengths: Callable[[tf.Tensor], tf.Tensor],
    bounds: Sequence[int],
    batch_size: int,
) -> tf.data.Dataset:
    """Groups rows into batches of similar length.

    A batch is given out when its bucket is full, and at the end of `rows` what is left. What waits
    in the buckets depends on all that came before, so there is no way to start in the middle.

    Args:
      rows: from `in_order` or `shuffled`.
      lengths: from records, string [n], to their lengths, int32 [n].
      bounds: longest length of each bucket, rising; the last one is that of the longest example.
      batch_size: rows of a full batch.

    Returns:
      Batches, with `places`: the bound of the bucket.
    """
    bounds = tf.constant(bounds)

    def with_places(rows):
        bucket = tf.searchsorted(bounds, lengths(rows["record"]))
        return {**rows, "places": tf.gather(bounds, bucket)}

    return (
        rows.map(with_places)
        .unbatch()
        .group_by_window(
            key_func=lambda row: tf.cast(row["places"], tf.int64),
            reduce_func=lambda _, window: window.batch(batch_size),
            window_size=batch_size,
        )
    )


def filled(rows: Rows, size: int) -> Rows:
    """Repeats the first row until there are `size`; the repeats have index -1."""
    count = tf.size(rows["index"])
    made = {
        name: tf.concat([value, tf.repeat(value[:1], size - count)], axis=0)
        for name, value in rows.items()
    }
    return {**made, "index": tf.where(tf.range(size) < count, made["index"], -1)}


def _read(path: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
    """Reads a shard as chunks (index, record); its first example has the number `first`."""

    def numbered(chunk, record):
        return first + chunk * _CHUNK + tf.range(tf.size(record, tf.int64)), record

    records = tf.data.TFRecordDataset(path, buffer_size=1 << 20)
    return records.batch(_CHUNK).enumerate().map(numbered)


def _order(
    seed: int, epoch: tf.Tensor, block: int | tf.Tensor, stream: Stream, count: int | tf.Tensor
) -> tf.Tensor:
    """Returns 0 … count - 1 in an order that is a function of the other arguments, int32."""
    rows = seeding.row_seeds(seed, epoch, tf.reshape(block, [1]))
    return tf.argsort(tf.bitcast(seeding.bits(rows, stream, count)[0], tf.int64))
