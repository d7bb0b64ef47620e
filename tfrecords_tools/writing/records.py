"""Writes records to TFRecord files."""

import dataclasses
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from official.shards import integrity, manifest
from official.utils.paths import AnyPath
from tfrecords_tools.writing import shards
from tfrecords_tools.writing.shuffle import FRAME_BYTES


def write(
    path: str | os.PathLike, records: Iterable[bytes], split: str = "train"
) -> manifest.Shard:
    """Writes a shard, and returns its entry in the manifest.

    Raises:
      OSError: the disk is full.
    """
    writer = tf.io.TFRecordWriter(str(path))
    for record in records:
        raise_os_error(writer.write, record)
    raise_os_error(writer.close)
    return integrity.describe(path, split)


def write_in_order(
    folder: AnyPath, split: str, records: Iterable[bytes]
) -> tuple[manifest.Shard, ...]:
    """Writes the shards of a split, one after the other, and returns their entries in the manifest.

    The last shard gets what is left; the others are as large as `shards.MAX_SHARD_BYTES` allows.

    Raises:
      OSError: the disk is full.
    """
    entries = [
        write(folder / f"{split}-{number:05d}", some, split)
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
        size += len(record) + FRAME_BYTES
        if share and size > shards.MAX_SHARD_BYTES:
            yield share
            share, size = [], len(record) + FRAME_BYTES
        share.append(record)
    if share:
        yield share


def raise_os_error(function: Callable, *args: Any) -> None:
    """Calls a function; a full disk raises OSError instead of TensorFlow's error."""
    try:
        function(*args)
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, "No space left on device") from error
