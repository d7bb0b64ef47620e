"""Writes the TFRecord files of a shard folder."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf

from official.shards import integrity, manifest
from tfrecords_tools.writing.records import raise_os_error


class ShardWriter:
    """Writes the records of one split into shards.

    With `num_shards`, record i goes to shard i modulo `num_shards`. With `records_per_shard`, the
    shards are filled one after the other, and there are as many as needed.

    Shards are named `SPLIT-00000-of-00016.tfrecord`. `finish` gives them these names, because the
    number of shards may be known only then.
    """

    def __init__(
        self,
        folder: Path,
        split: str = "train",
        *,
        num_shards: int = 0,
        records_per_shard: int = 0,
    ):
        """Prepares the shards; either `num_shards` or `records_per_shard` is given."""
        self.folder = folder
        self._split = split
        self._paths: list[Path] = []
        self._open: dict[int, tf.io.TFRecordWriter] = {}
        self._shards = itertools.cycle(range(num_shards))  # The shard of each record.
        if records_per_shard:
            self._shards = (i // records_per_shard for i in itertools.count())
        for _ in range(num_shards):
            self._add()

    def write(self, records: Iterable[bytes]) -> None:
        """Appends records.

        Raises:
          OSError: the disk is full.
        """
        for record, shard in zip(records, self._shards, strict=False):
            if shard == len(self._paths):
                self._close()  # The shard before it is full.
                self._add()
            raise_os_error(self._open[shard].write, record)

    def finish(self) -> tuple[manifest.Shard, ...]:
        """Closes and names the shards, and returns their entries in the manifest.

        Raises:
          OSError: the disk is full.
        """
        self._close()
        ending = f"-of-{len(self._paths):05d}.tfrecord"
        named = [path.rename(path.with_name(path.name + ending)) for path in self._paths]
        return tuple(integrity.describe(path, self._split) for path in named)

    def _add(self) -> None:
        number = len(self._paths)
        self._paths.append(self.folder / f"{self._split}-{number:05d}")
        self._open[number] = tf.io.TFRecordWriter(str(self._paths[-1]))

    def _close(self) -> None:
        for writer in self._open.values():
            raise_os_error(writer.close)
        self._open.clear()
