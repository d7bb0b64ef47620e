"""Writes the TFRecord files of a stream, whose rows are read in groups.

The rows of a batch are split into groups of consecutive rows. A shard has a range of steps of one
group, and the shards are numbered group by group; `official.data.row_groups` reads them.
"""

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from official.shards import integrity, manifest
from tfrecords_tools.writing.shard_writer import raise_os_error

MAX_GROUPS = 32
SHARD_BYTES = 16 << 20  # which a run that resumes may have to skip for each group


class RowGroupWriter:
    """Writes the records of a stream into the shards of groups of rows.

    Attributes:
      folder: the shard folder.
      groups: the largest divisor of the number of rows that is not above `MAX_GROUPS`, nor above
        the number of shards if it is given.
    """

    def __init__(self, folder: Path, rows: int, num_shards: int = 0):
        """Prepares the shards.

        Args:
          folder: the shard folder.
          rows: the number of rows of a batch.
          num_shards: the number of shards, or fewer if there are fewer steps; 0 = shards of at most
            about `SHARD_BYTES`.
        """
        most = min(MAX_GROUPS, rows, num_shards or MAX_GROUPS)
        self.folder = folder
        self.groups = max(count for count in range(1, most + 1) if rows % count == 0)
        self._size = rows // self.groups  # rows of a group
        self._num_shards = num_shards
        self._steps = self._step = 0  # of all rows: in all, and written
        self._paths: list[list[Path]] = []  # of each group
        self._open: list[tf.io.TFRecordWriter | None] = [None] * self.groups

    def start(self, steps: int) -> None:
        """Sets the number of steps; is called before the first record."""
        self._steps = steps

    def write(self, records: Sequence[bytes]) -> None:
        """Appends the records of whole steps: those of all rows for each step.

        Raises:
          OSError: the disk is full.
        """
        if records and not self._paths:
            self._name_shards(sum(map(len, records)) / len(records))
        steps = len(records) // (self._size * self.groups)
        for group, paths in enumerate(self._paths):
            begins = [i * self._steps // len(paths) for i in range(len(paths))]
            for i in range(steps):
                if self._step + i in begins:
                    self._next(group, paths[begins.index(self._step + i)])
                place = (i * self.groups + group) * self._size
                for record in records[place : place + self._size]:
                    raise_os_error(self._open[group].write, record)
        self._step += steps

    def finish(self) -> tuple[manifest.Shard, ...]:
        """Closes the shards, and returns their entries in the manifest.

        Raises:
          OSError: the disk is full.
        """
        for writer in self._open:
            if writer is not None:
                raise_os_error(writer.close)
        return tuple(integrity.describe(path) for paths in self._paths for path in paths)

    def _name_shards(self, record_bytes: float) -> None:
        """Gives each group its shards, for records of about so many bytes."""
        group_bytes = int(self._steps * self._size * record_bytes)
        counts = [-(-group_bytes // SHARD_BYTES)] * self.groups
        if self._num_shards:
            counts = [(self._num_shards + i) // self.groups for i in range(self.groups)]
        counts = [min(count, self._steps) for count in counts]
        total, names = sum(counts), iter(range(sum(counts)))
        for count in counts:
            paths = [
                self.folder / f"train-{next(names):05d}-of-{total:05d}.tfrecord"
                for _ in range(count)
            ]
            self._paths.append(paths)

    def _next(self, group: int, path: Path) -> None:
        """Closes the shard of a group and opens the next one."""
        if writer := self._open[group]:
            raise_os_error(writer.close)
        self._open[group] = tf.io.TFRecordWriter(str(path))
