"""Tests of tfrecords_tools.writing.shard_writer."""

import errno
import hashlib

import pytest
import tensorflow as tf

from official.shards import integrity
from tfrecords_tools.writing.shard_writer import ShardWriter


def records(path):
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def contents(folder, entries):
    return [[int(record) for record in records(folder / entry.name)] for entry in entries]


def test_records_take_turns(tmp_path):
    writer = ShardWriter(tmp_path, "validation", num_shards=3)
    writer.write([b"0", b"1"])
    writer.write([])
    writer.write([b"2", b"3", b"4"])
    entries = writer.finish()
    assert [entry.records for entry in entries] == [2, 2, 1]
    for i, entry in enumerate(entries):
        assert entry.name == f"validation-{i:05d}-of-00003.tfrecord"
        assert entry == integrity.describe(tmp_path / entry.name, "validation")
        content = (tmp_path / entry.name).read_bytes()
        assert entry.sha256 == hashlib.sha256(content).hexdigest()
        assert records(tmp_path / entry.name) == [[b"0", b"3"], [b"1", b"4"], [b"2"]][i]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("count", "expected"),
    [(5, [[0, 1], [2, 3], [4]]), (4, [[0, 1], [2, 3]]), (1, [[0]]), (0, [])],
)
def test_shards_are_filled(tmp_path, count, expected):
    writer = ShardWriter(tmp_path, "test", records_per_shard=2)
    for i in range(count):
        writer.write([str(i).encode()])
    entries = writer.finish()
    assert contents(tmp_path, entries) == expected
    size = len(expected)
    names = [f"test-{i:05d}-of-{size:05d}.tfrecord" for i in range(size)]
    assert [entry.name for entry in entries] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("method", ["write", "close"])
@pytest.mark.parametrize("layout", [{"num_shards": 2}, {"records_per_shard": 1}])
def test_full_disk_is_an_os_error(tmp_path, monkeypatch, method, layout):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")

    monkeypatch.setattr(tf.io.TFRecordWriter, method, full)
    writer = ShardWriter(tmp_path, **layout)
    with pytest.raises(OSError) as caught:
        writer.write([b"1"])
        writer.finish()
    assert caught.value.errno == errno.ENOSPC
