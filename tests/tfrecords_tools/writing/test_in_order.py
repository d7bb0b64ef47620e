"""Tests of tfrecords_tools.writing.in_order."""

import hashlib

import pytest
import tensorflow as tf

from official.shards import shard_folder
from tfrecords_tools.writing import in_order, shards

FRAME = 16


def contents(folder, entries):
    files = [tf.data.TFRecordDataset(str(folder / entry.name)) for entry in entries]
    return [[int(record) for record in file.as_numpy_iterator()] for file in files]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(5, [[0, 1], [2, 3], [4]]), (4, [[0, 1], [2, 3]]), (1, [[0]]), (0, [])],
)
def test_shards_are_filled_in_order(tmp_path, monkeypatch, count, expected):
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 2 * (FRAME + 1))
    entries = in_order.write(tmp_path, "test", (str(i).encode() for i in range(count)))
    assert contents(tmp_path, entries) == expected
    size = len(expected)
    names = [f"test-{i:05d}-of-{size:05d}.tfrecord" for i in range(size)]
    assert [entry.name for entry in entries] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for entry in entries:
        content = (tmp_path / entry.name).read_bytes()
        assert entry == shard_folder.describe(tmp_path / entry.name, "test")
        assert entry.sha256 == hashlib.sha256(content).hexdigest()


def test_a_record_that_is_too_large_has_a_shard_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 2 * (FRAME + 1))
    entries = in_order.write(tmp_path, "test", [b"1", b"2" * 50, b"3", b"4"])
    assert [entry.records for entry in entries] == [1, 1, 2]
