"""Puts records into the form that they have in a TFRecord file."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfrecords_tools.writing.shuffle import FRAME_BYTES


def framed(records: Sequence[bytes]) -> list[memoryview]:
    """Returns each record with its length and checksums around it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records")
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
        data = memoryview(path.read_bytes())
    ends = np.cumsum([0, *(len(record) + FRAME_BYTES for record in records)]).tolist()
    return [data[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]


def keys(encoded: Sequence[bytes]) -> np.ndarray:
    """Returns keys of 8 bytes each, the highest byte first, as uint64 [N]."""
    return np.frombuffer(b"".join(encoded), ">u8").astype(np.uint64)
