"""Tests of tfrecords_tools.writing.shards."""

import errno
import hashlib
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from official.shards import shard_folder
from official.utils import atomic
from tfrecords_tools.writing import shards
from tfrecords_tools.writing.shuffle import OVERHEAD_BYTES, ShardRecords


def contents(folder, entries):
    files = [tf.data.TFRecordDataset(str(folder / entry.name)) for entry in entries]
    return [[int(record) for record in file.as_numpy_iterator()] for file in files]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(5, [[0, 1], [2, 3], [4]]), (4, [[0, 1], [2, 3]]), (1, [[0]]), (0, [])],
)
def test_shards_are_filled_in_order(tmp_path, monkeypatch, count, expected):
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 2 * (OVERHEAD_BYTES + 1))
    entries = shards.write_in_order(tmp_path, "test", (str(i).encode() for i in range(count)))
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
    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 2 * (OVERHEAD_BYTES + 1))
    entries = shards.write_in_order(tmp_path, "test", [b"1", b"2" * 50, b"3", b"4"])
    assert [entry.records for entry in entries] == [1, 1, 2]


KILLED = """
import resource, signal, sys
from official.utils import paths
from tfrecords_tools.writing import shards
from tfrecords_tools.writing.shuffle import ShardRecords

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
shards.write_shard(ShardRecords(0, 1, [bytes(100_000)]), paths.path(sys.argv[1]))
"""


def test_an_attempt_that_is_killed_leaves_the_shard_of_another(tmp_path):
    part = ShardRecords(0, 1, [bytes(60_000), bytes(40_000)])
    entry = shards.write_shard(part, tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True)
    assert killed.returncode == -signal.SIGXFSZ, killed.stderr
    assert (tmp_path / entry.name).read_bytes() == bytes(100_000)
    # What it leaves is removed by the next process that writes there, or with the build.
    [left] = [path for path in tmp_path.iterdir() if path.name != entry.name]
    assert atomic.LEFT_OVER.fullmatch(left.name)


@pytest.mark.parametrize("method", ["write", "close"])
def test_full_disk_is_an_os_error(tmp_path, monkeypatch, method):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")

    monkeypatch.setattr(tf.io.TFRecordWriter, method, full)
    with pytest.raises(OSError) as caught:
        shards.write_file(tmp_path / "shard", [b"1"])
    assert caught.value.errno == errno.ENOSPC


def divided(rows, steps, num_shards=0, record_bytes=5):
    """The shards as (steps, rows); they are numbered in order."""
    written = shards.divide_rows(rows, steps, record_bytes, num_shards)
    assert [shard.number for shard in written] == list(range(len(written)))
    assert {shard.total for shard in written} == {len(written)}
    return shards.count_groups(rows, num_shards), [(s.steps, s.rows) for s in written]


def test_a_shard_has_steps_of_one_group_of_rows():
    groups, written = divided(rows=4, steps=5, num_shards=4)
    assert groups == 4
    assert written == [(range(5), range(b, b + 1)) for b in range(4)]


def test_groups_share_the_shards_that_are_asked_for():
    groups, written = divided(rows=4, steps=5, num_shards=3)
    assert groups == 2
    assert written == [
        (range(5), range(2)), (range(2), range(2, 4)), (range(2, 5), range(2, 4)),
    ]  # fmt: skip


def test_no_shard_is_empty():
    groups, written = divided(rows=2, steps=3, num_shards=9)
    assert groups == 2
    assert written == [(range(t, t + 1), range(b, b + 1)) for b in range(2) for t in range(3)]


def test_shards_have_a_largest_size(monkeypatch):
    monkeypatch.setattr(shards, "GROUP_SHARD_BYTES", 40)  # 4 steps of 2 rows of 5 bytes
    monkeypatch.setattr(shards, "MAX_GROUPS", 5)
    groups, written = divided(rows=6, steps=9)
    assert groups == 3
    ranges = [range(3), range(3, 6), range(6, 9)]
    assert written == [(steps, range(g, g + 2)) for g in (0, 2, 4) for steps in ranges]
