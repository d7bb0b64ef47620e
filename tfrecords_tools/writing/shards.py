"""Writes the TFRecord files of a shard folder, and decides their number.

* Shuffled records have a file for each part of the shuffle (`count`, `write_shard`).
* Records in the order of a source file fill the files one by one (`write_in_order`).
* The rows of a stream are split into groups of consecutive rows. A file has a range of steps of one
  group, and the files are numbered group by group (`divide_rows`); `official.data` reads them so.

Shapes: N records.
"""

import contextlib
import dataclasses
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from official.shards import manifest, shard_folder
from official.utils import atomic, checksums, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath, RemotePath
from tfrecords_tools.writing.shuffle import OVERHEAD_BYTES, ShardRecords

# A shard is in memory when it is written and when it is read in training.
MAX_SHARD_BYTES = 32 << 20
MIN_SHARD_BYTES = 2 << 20
MIN_SHARD_RECORDS = 32  # on average; with fewer, a shard may be empty
MAX_GROUPS = 32
GROUP_SHARD_BYTES = 16 << 20  # a resumed run may have to skip this much for each group
# A large write allocates large blocks in the page cache, which a virtual machine may first have to
# get from its host. Small writes use memory that it already has.
_WRITE_BYTES = 256 << 10
_FEW = 16  # the number of shards of a small folder, so that several workers can share them


def count(records: int, size: int, wanted: int = 0) -> int:
    """Returns the number of shards.

    Args:
      records: the number of records.
      size: the number of their bytes.
      wanted: the number of shards that the user requests; 0 = by the size.

    Raises:
      UserError: there are more shards than records.
    """
    if 0 < records < wanted:
        raise UserError(f"{records} examples do not fill {wanted} shards: lower --num_shards")
    if not records or wanted:
        return wanted if records else 0
    by_size = max(-(-size // MAX_SHARD_BYTES), min(_FEW, 1 + size // MIN_SHARD_BYTES))
    return min(by_size, -(-records // MIN_SHARD_RECORDS))


def write_shard(part: ShardRecords, folder: AnyPath, split: str = "train") -> manifest.Shard:
    """Writes a part as a shard of a split, and returns its entry in the manifest.

    Raises:
      UserError: the part has no record.
    """
    if not part.records:
        raise UserError(
            f"shard {part.number} of {part.total} would have no examples: lower --num_shards"
        )
    path = folder / f"{split}-{part.number:05d}-of-{part.total:05d}.tfrecord"
    return _store(path, part.records, split)


def write_in_order(
    folder: AnyPath, split: str, records: Iterable[bytes]
) -> tuple[manifest.Shard, ...]:
    """Writes the shards of a split one by one, and returns their entries in the manifest.

    The last shard gets the remaining records; the others are as large as `MAX_SHARD_BYTES` allows.

    Raises:
      OSError: the disk is full.
    """
    # Names of files contain the number of shards, which is known at the end.
    entries = [
        _store(folder / f"{split}-{number:05d}", encoded(some), split)
        for number, some in enumerate(_shares(records))
    ]
    named = []
    for entry in entries:
        name = f"{entry.name}-of-{len(entries):05d}.tfrecord"
        (folder / entry.name).rename(folder / name)
        named.append(dataclasses.replace(entry, name=name))
    return tuple(named)


def _shares(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yields the records of each shard."""
    share: list[bytes] = []
    size = 0
    for record in records:
        size += len(record) + OVERHEAD_BYTES
        if share and size > MAX_SHARD_BYTES:
            yield share
            share, size = [], len(record) + OVERHEAD_BYTES
        share.append(record)
    if share:
        yield share


def _store(path: AnyPath, records: Sequence[bytes | memoryview], split: str) -> manifest.Shard:
    """Writes records that are already framed for TFRecord; returns their entry in the manifest.

    An engine may make two attempts at a shard. The file appears when it is whole, so that one that
    is killed leaves that of the other as it is.
    """
    data = b"".join(records)
    with atomic.file(path, "wb") as stream:
        for start in range(0, len(data), _WRITE_BYTES):
            stream.write(data[start : start + _WRITE_BYTES])
    return manifest.Shard(path.name, len(records), len(data), checksums.hash_bytes(data), split)


def encoded(records: Sequence[bytes]) -> list[memoryview]:
    """Frames records for a TFRecord file: adds the length and checksums to each."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records")
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
        data = memoryview(path.read_bytes())
    ends = np.cumsum([0, *(len(record) + OVERHEAD_BYTES for record in records)]).tolist()
    return [data[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]


def write_file(
    path: str | os.PathLike, records: Iterable[bytes], split: str = "train"
) -> manifest.Shard:
    """Writes records to a TFRecord file as they are made, and returns its entry in the manifest.

    Raises:
      OSError: the disk is full.
    """
    import tensorflow as tf

    path = paths.path(path)
    replaced = (
        atomic.replacing_remote(path)
        if isinstance(path, RemotePath)
        else contextlib.nullcontext(path)
    )
    with replaced as local:
        writer = tf.io.TFRecordWriter(str(local))
        with disk_errors():
            for record in records:
                writer.write(record)
            writer.close()
        return shard_folder.describe(local, split)


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Raises OSError instead of TensorFlow's error if the disk is full."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, "No space left on device") from error


class RowShard(NamedTuple):
    """The records of a shard of a stream.

    Attributes:
      number: the index of the shard.
      total: the number of shards.
      rows: the rows of the batch.
      steps: the range of steps.
    """

    number: int
    total: int
    rows: range
    steps: range


def count_groups(rows: int, num_shards: int = 0) -> int:
    """Returns the largest divisor of the rows that is not above `MAX_GROUPS`, nor `num_shards`."""
    most = min(MAX_GROUPS, rows, num_shards or MAX_GROUPS)
    return max(count for count in range(1, most + 1) if rows % count == 0)


def divide_rows(rows: int, steps: int, record_bytes: float, num_shards: int = 0) -> list[RowShard]:
    """Returns the shards of a stream.

    Args:
      rows: the number of rows of a batch.
      steps: the number of steps.
      record_bytes: the size of a record.
      num_shards: the number of shards, or fewer if there are fewer steps; 0 = shards of at most
        about `GROUP_SHARD_BYTES`.
    """
    groups = count_groups(rows, num_shards)
    size = rows // groups  # rows of a group
    counts = [-(-int(steps * size * record_bytes) // GROUP_SHARD_BYTES)] * groups
    if num_shards:
        counts = [(num_shards + i) // groups for i in range(groups)]
    counts = [min(max(count, 1), steps) for count in counts]
    shards = [
        (range(group * size, (group + 1) * size), range(i * steps // n, (i + 1) * steps // n))
        for group, n in enumerate(counts)
        for i in range(n)
    ]
    return [RowShard(number, len(shards), *each) for number, each in enumerate(shards)]
