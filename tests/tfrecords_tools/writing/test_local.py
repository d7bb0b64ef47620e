"""Tests of builds on this machine, by processes."""

import collections
import os
from pathlib import Path

import numpy as np
import pytest

from official.utils.errors import UserError
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.writing.local import FILES, SortedRuns
from tfrecords_tools.writing.shuffle import Keyed, content


def write(folder):
    keys = np.random.default_rng(0).integers(1 << 63, size=9, dtype=np.uint64)
    records = [f"record {i}".encode() for i in range(9)]
    counts = Counts(totals=collections.Counter(examples=9), tokens=np.arange(3))
    runs = SortedRuns(folder, 0)
    runs.write(iter([Keyed(keys, records, counts)]), Counts())
    return runs, keys, records


def test_what_is_written_is_read(tmp_path):
    runs, keys, records = write(tmp_path)
    order = np.argsort(keys)
    found, stored = runs.read(0, 1 << 64)
    np.testing.assert_array_equal(found, keys[order])
    assert [content(record) for record in stored] == [records[i] for i in order]
    counts = runs.read_counts(Counts)
    assert runs.done and counts.totals["examples"] == 9 and counts.tokens.tolist() == [0, 1, 2]


def test_all_is_on_the_disk_before_its_marker(tmp_path, monkeypatch):
    synced, sync, replace = {}, os.fsync, os.replace

    def record(descriptor):
        sync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced[path] = len(os.listdir(path)) if path.is_dir() else path.stat().st_size

    def named(source, target):
        assert Path(target).name == "000000.counts"
        assert synced[Path(source)] == Path(source).stat().st_size
        files = {name: tmp_path / f"000000.{name}" for name in FILES}
        assert {k: synced[p] for k, p in files.items()} == {
            k: p.stat().st_size for k, p in files.items()
        }
        assert synced[tmp_path] >= len(FILES)
        synced.clear()
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "replace", named)
    write(tmp_path)
    assert tmp_path in synced  # and the marker after it


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("left", [None, 0, 10])
def test_a_marker_of_files_that_are_lost_marks_nothing(tmp_path, name, left):
    runs, _, _ = write(tmp_path)
    assert runs.done
    if left is None:
        runs.path(name).unlink()
    else:
        os.truncate(runs.path(name), left)
    assert not runs.done


def test_a_file_that_is_cut_in_use_is_refused(tmp_path):
    runs, _, _ = write(tmp_path)
    os.truncate(runs.path("records"), runs.path("records").stat().st_size - 1)
    with pytest.raises(UserError, match="000000.records was cut while it was in use"):
        runs.read(0, 1 << 64)
