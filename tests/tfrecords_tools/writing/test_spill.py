import collections
import os
from pathlib import Path

import numpy as np
import pytest

from official.utils.errors import UserError
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.writing import spill_writer
from tfrecords_tools.writing.shuffle import Keyed, content
from tfrecords_tools.writing.spill import KINDS, Spill


def write(folder):
    keys = np.random.default_rng(0).integers(1 << 63, size=9, dtype=np.uint64)
    records = [f"record {i}".encode() for i in range(9)]
    counts = Counts(totals=collections.Counter(examples=9), tokens=np.arange(3))
    spill = Spill(folder, 0)
    spill_writer.write(spill, iter([Keyed(keys, records, counts)]), Counts())
    return spill, keys, records


def test_what_is_written_is_read(tmp_path):
    spill, keys, records = write(tmp_path)
    order = np.argsort(keys)
    found, framed = spill.read(0, 1 << 64)
    np.testing.assert_array_equal(found, keys[order])
    assert [content(record) for record in framed] == [records[i] for i in order]
    counts = spill.read_counts(Counts)
    assert spill.done and counts.totals["examples"] == 9 and counts.tokens.tolist() == [0, 1, 2]


def test_all_is_on_the_disk_before_its_marker(tmp_path, monkeypatch):
    synced, sync, replace = {}, os.fsync, os.replace

    def record(descriptor):
        sync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced[path] = len(os.listdir(path)) if path.is_dir() else path.stat().st_size

    def named(source, target):
        assert Path(target).name == "000000.counts"
        assert synced[Path(source)] == Path(source).stat().st_size
        kinds = {kind: tmp_path / f"000000.{kind}" for kind in KINDS}
        assert {k: synced[p] for k, p in kinds.items()} == {
            k: p.stat().st_size for k, p in kinds.items()
        }
        assert synced[tmp_path] >= len(KINDS)
        synced.clear()
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "replace", named)
    write(tmp_path)
    assert tmp_path in synced  # and the marker after it


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [None, 0, 10])
def test_a_marker_of_files_that_are_lost_marks_nothing(tmp_path, kind, left):
    spill, _, _ = write(tmp_path)
    assert spill.done
    if left is None:
        spill.path(kind).unlink()
    else:
        os.truncate(spill.path(kind), left)
    assert not spill.done


def test_a_file_that_is_cut_in_use_is_refused(tmp_path):
    spill, _, _ = write(tmp_path)
    os.truncate(spill.path("records"), spill.path("records").stat().st_size - 1)
    with pytest.raises(UserError, match="000000.records was cut while it was in use"):
        spill.read(0, 1 << 64)
