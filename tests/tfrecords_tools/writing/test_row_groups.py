"""Tests of tfrecords_tools.writing.row_groups."""

import errno

import pytest
import tensorflow as tf

from official.shards import integrity
from tfrecords_tools.writing import row_groups
from tfrecords_tools.writing.row_groups import RowGroupWriter


def written(folder, rows, steps, num_shards=0, block=2):
    """The records of each shard as (step, row); the entries have the names in order."""
    writer = RowGroupWriter(folder, rows, num_shards)
    writer.start(steps)
    for first in range(0, steps, block):
        numbers = range(first * rows, min(first + block, steps) * rows)
        writer.write([b"%05d" % number for number in numbers])
    entries = writer.finish()
    count = len(entries)
    names = [f"train-{i:05d}-of-{count:05d}.tfrecord" for i in range(count)]
    assert [entry.name for entry in entries] == names
    assert sorted(path.name for path in folder.iterdir()) == names
    assert list(entries) == [integrity.describe(folder / name) for name in names]
    files = [tf.data.TFRecordDataset(str(folder / name)).as_numpy_iterator() for name in names]
    return writer.groups, [[divmod(int(record), rows) for record in file] for file in files]


def steps_and_rows(steps, rows):
    return [(t, b) for t in steps for b in rows]


def test_a_shard_has_steps_of_one_group_of_rows(tmp_path):
    groups, shards = written(tmp_path, rows=4, steps=5, num_shards=4)
    assert groups == 4
    assert shards == [steps_and_rows(range(5), [b]) for b in range(4)]


def test_groups_share_the_shards_that_are_asked_for(tmp_path):
    groups, shards = written(tmp_path, rows=4, steps=5, num_shards=3)
    assert groups == 2
    assert shards == [
        steps_and_rows(range(5), [0, 1]),
        steps_and_rows(range(2), [2, 3]),
        steps_and_rows(range(2, 5), [2, 3]),
    ]


def test_no_shard_is_empty(tmp_path):
    groups, shards = written(tmp_path, rows=2, steps=3, num_shards=9)
    assert groups == 2
    assert shards == [steps_and_rows([t], [b]) for b in range(2) for t in range(3)]


def test_shards_have_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(row_groups, "SHARD_BYTES", 40)  # 4 steps of 2 rows of 5 bytes
    monkeypatch.setattr(row_groups, "MAX_GROUPS", 5)
    groups, shards = written(tmp_path, rows=6, steps=9)
    assert groups == 3
    ranges = [range(3), range(3, 6), range(6, 9)]
    assert shards == [
        steps_and_rows(steps, [g, g + 1]) for g in (0, 2, 4) for steps in ranges
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["write", "close"])
def test_full_disk_is_an_os_error(tmp_path, monkeypatch, method):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")

    monkeypatch.setattr(tf.io.TFRecordWriter, method, full)
    writer = RowGroupWriter(tmp_path, 2)
    writer.start(1)
    with pytest.raises(OSError) as caught:
        writer.write([b"1", b"2"])
        writer.finish()
    assert caught.value.errno == errno.ENOSPC
