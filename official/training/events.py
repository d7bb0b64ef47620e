"""TensorBoard events of a run."""

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from official.utils import atomic, paths

# Marks a value as a scalar for TensorBoard; `tf.summary.scalar` would need that installed.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
)
_SECONDS_BETWEEN_COPIES = 120  # as TensorFlow writes events to a disk


class Events:
    """Writes scalars to a folder of events for each split.

    Events are appended to a file, which few remote file systems allow. Those of a remote folder are
    written to a local one, and the whole files are copied every two minutes and at the end.

    Args:
      folder: the folder of the folders of events.
    """

    def __init__(self, folder: str | os.PathLike):
        self._folder = paths.path(folder)
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._local = None
        if paths.is_remote(folder):
            self._local = tempfile.TemporaryDirectory(prefix=atomic.PREFIX)
            self._copied = time.monotonic()

    def write(self, split: str, step: int, metrics: Mapping[str, float]) -> None:
        """Adds a value for each metric.

        Raises:
          UserError: the events cannot be written.
        """
        with atomic.disk_errors(self._folder / split):
            if split not in self._writers:
                folder = Path(self._local.name) if self._local else self._folder
                self._writers[split] = tf.summary.create_file_writer(str(folder / split))
            with self._writers[split].as_default(step=step):
                for name, value in metrics.items():
                    tf.summary.write(name, np.float32(value), metadata=_SCALAR)
        if self._local and time.monotonic() - self._copied > _SECONDS_BETWEEN_COPIES:
            self._copy()

    def close(self) -> None:
        """Writes what is left.

        Raises:
          UserError: the events cannot be written.
        """
        with atomic.disk_errors(self._folder):
            for writer in self._writers.values():
                writer.close()
        if self._local:
            self._copy()
            self._local.cleanup()

    def _copy(self) -> None:
        for split, writer in self._writers.items():
            writer.flush()
            for file in Path(self._local.name, split).iterdir():
                paths.copy(file, self._folder / split / file.name)
        self._copied = time.monotonic()
