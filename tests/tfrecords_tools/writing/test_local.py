"""Tests of builds on this machine, by processes."""

import collections
import os
from pathlib import Path

import numpy as np
import pytest

from official.utils.errors import UserError
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.writing import local
from tfrecords_tools.writing.local import FILES, SortedRuns
from tfrecords_tools.writing.shuffle import Keyed, content, first_key


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


@pytest.mark.parametrize("total", [1, 7, 8])
def test_neighboring_parts_have_the_records_of_single_ones(tmp_path, monkeypatch, total):
    """Also of keys that begin a part, that occur twice, and of parts without records."""

    def make(item):
        rng = np.random.default_rng(item)
        keys = rng.integers(1 << 63, (1 << 64) - 1, size=30, dtype=np.uint64)  # half of all keys
        keys[:total] = [first_key(part, total) for part in range(total)]
        records = [f"{item} {i}".encode() for i in range(30)]
        yield Keyed(keys, records, Counts(totals=collections.Counter(examples=30)))

    def shuffled(count, items=range(5)):
        monkeypatch.setattr(local, "neighbors", lambda number: count)
        counted = []
        runner = local.LocalRunner(None, tmp_path / f"{count}-{type(items).__name__}")
        written = runner.shuffle(
            make, items, lambda n, size: total, lambda part: part, Counts,
            lambda some, counts: counted.append((list(some), counts.totals["examples"])),
        )  # fmt: skip
        return written, counted

    expected, counted = shuffled(1)
    assert [part[:2] for part in expected] == [(number, total) for number in range(total)]
    assert sum(len(part.records) for part in expected) == 150
    assert counted == [([item], 30) for item in range(5)]
    for count in (2, 3, 8):
        written, counted = shuffled(count)
        assert written == expected
        firsts = range(0, 5, count)
        of_files = [[*range(first, min(first + count, 5))] for first in firsts]
        assert counted == [(some, 30 * len(some)) for some in of_files]
        files = {path.name for path in (tmp_path / f"{count}-range").iterdir()}
        assert files == {f"{i:06d}.{x}" for i in range(len(firsts)) for x in (*FILES, "counts")}
        # A second call goes on after what is stored.
        assert shuffled(count) == (written, counted)
    # Items whose number is not known are stored one by one.
    written, counted = shuffled(3, iter(range(5)))
    assert written == expected and len(counted) == 5


def test_records_of_many_items_are_sorted_together(tmp_path, monkeypatch):
    """In one run of the file, so that each part is read from one place of it."""
    monkeypatch.setattr(local, "RUN_BYTES", 1000)
    runs = []
    for number in (1, 4):
        monkeypatch.setattr(local, "neighbors", lambda _, number=number: number)

        def make(item):
            keys = np.random.default_rng(item).integers(1 << 63, size=9, dtype=np.uint64)
            yield Keyed(keys, [bytes(100)] * 9, Counts())

        runner = local.LocalRunner(None, tmp_path / str(number))
        runner.shuffle(make, range(4), lambda n, size: 1, len, Counts, lambda *_: None)
        found = sorted((tmp_path / str(number)).glob("*.runs"))
        runs.append([np.fromfile(path, np.int64).tolist() for path in found])
    assert runs == [[[0, 9]] * 4, [[0, 36]]]


def test_many_items_are_stored_and_read_together():
    assert [local.neighbors(n) for n in (1, 63, 64, 128, 10**6)] == [1, 1, 2, 3, 8]
