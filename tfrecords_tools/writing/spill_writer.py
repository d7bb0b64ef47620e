"""Writes the files of records that have keys and are not in order yet; see `spill`."""

import json
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np
import tensorflow as tf

from official.utils import atomic
from tfrecords_tools.writing.records import raise_os_error
from tfrecords_tools.writing.shuffle import FRAME_BYTES, Counts, Keyed, order
from tfrecords_tools.writing.spill import KINDS, Spill

RUN_BYTES = 32 << 20  # of records that are put in order at once


def write(spill: Spill, made: Iterator[Keyed], counts: Counts) -> Counts:
    """Writes the files; when this returns, they are on the disk.

    Args:
      spill: the files.
      made: the records.
      counts: counts that are 0.

    Returns:
      The counts of all records.

    Raises:
      OSError: the disk is full.
    """
    records = tf.io.TFRecordWriter(str(spill.path("records")))
    runs, end = [0], 0
    with open(spill.path("keys"), "wb") as keys, open(spill.path("ends"), "wb") as ends:
        waiting: list[Keyed] = []
        for keyed in made:
            counts.add(keyed.counts)
            waiting.append(keyed)
            if sum(sum(map(len, each.records)) for each in waiting) > RUN_BYTES:
                end = _write_run(waiting, records, keys, ends, end)
                runs.append(keys.tell() // 8)
                waiting = []
        _write_run(waiting, records, keys, ends, end)
        runs.append(keys.tell() // 8)
    raise_os_error(records.close)
    np.array(runs, np.int64).tofile(spill.path("runs"))
    for kind in KINDS:
        atomic.sync(spill.path(kind))
    atomic.sync(spill.folder)
    with atomic.file(spill.path("counts"), "wb") as stream:
        stream.write(json.dumps(spill.file_bytes()).encode() + b"\n")
        counts.save(stream)
    return counts


def _write_run(
    made: Sequence[Keyed], file: tf.io.TFRecordWriter, keys: IO[bytes], ends: IO[bytes], end: int
) -> int:
    """Appends a run behind the position `end` of the records; returns the new position."""
    all_keys = np.concatenate([np.zeros(0, np.uint64), *(each.keys for each in made)])
    records = [record for each in made for record in each.records]
    chosen = order(all_keys, records.__getitem__)
    records = [records[i] for i in chosen]
    raise_os_error(_write_all, file, records)
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    positions = end + np.cumsum(sizes + FRAME_BYTES)
    all_keys[chosen].tofile(keys)
    positions.tofile(ends)
    return int(positions[-1]) if len(positions) else end


def _write_all(file: tf.io.TFRecordWriter, records: Sequence[bytes]) -> None:
    for record in records:
        file.write(record)
