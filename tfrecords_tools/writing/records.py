"""Writes records to a TFRecord file."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from official.shards import manifest, shard_folder
from official.utils import paths, remote_writes
from official.utils.paths import RemotePath


def write(
    path: str | os.PathLike, records: Iterable[bytes], split: str = "train"
) -> manifest.Shard:
    """Writes a shard, and returns its entry in the manifest.

    Raises:
      OSError: the disk is full.
    """
    path = paths.path(path)
    remote = isinstance(path, RemotePath)
    with remote_writes.replacing(path) if remote else contextlib.nullcontext(path) as local:
        writer = tf.io.TFRecordWriter(str(local))
        for record in records:
            raise_os_error(writer.write, record)
        raise_os_error(writer.close)
        return shard_folder.describe(local, split)


def raise_os_error(function: Callable, *args: Any) -> None:
    """Calls a function; a full disk raises OSError instead of TensorFlow's error."""
    try:
        function(*args)
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, "No space left on device") from error
