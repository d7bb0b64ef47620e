"""The power cuts of the torture bench: what is synced stays, and what is not may be lost."""

import os

import numpy as np
import pytest

from benchmarks.torture import parts, power, power_disk
from benchmarks.torture.power_disk import Disk

# A run of six steps, which goes on where it was stopped. Each step adds a line, makes a folder and
# notes that it is done. Folders but the last are removed.
RUN = """
import sys
from pathlib import Path
from official.utils import atomic

root = Path(sys.argv[1])
log, state = root / "log", root / "state"
done = int(state.read_text()) if state.exists() else 0
for folder in root.glob("step-*"):
    assert [(folder / name).read_text() for name in "ab"] == ["1" * 99, "2" * 99], "a part"
lines = log.read_text().splitlines(keepends=True)[:done] if log.exists() else []
with atomic.file(log) as stream:
    stream.writelines(lines)
for step in range(done, 6):
    atomic.append(log, f"{step}\\n")
    path = root / f"step-{step}"
    if not path.exists():
        with atomic.folder(path) as folder:
            for name in "ab":
                (folder / name).write_text("12"[name == "b"] * 99)
    with atomic.file(state) as stream:
        stream.write(str(step + 1))
for step in range(5):
    if (root / f"step-{step}").exists():
        atomic.remove(root / f"step-{step}")
atomic.remove_leftovers(root)
"""
# The marker may be on the disk before what it marks.
CARELESS = """
import sys
from pathlib import Path
from official.utils import atomic

root = Path(sys.argv[1])
if not (root / "done").exists():
    (root / "data").write_text("1" * 9999)
    with atomic.file(root / "done") as stream:
        stream.write("1")
"""


@pytest.fixture
def cut(tmp_path, monkeypatch):
    """Cuts the power of a program in some cases."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda program, cases: _cut(tmp_path, program, cases)


def _cut(folder, program, cases):
    (folder / "cut_program.py").write_text(program)

    def work(case, root):
        return ["cut_program", str(root)], power.unlike_files

    part = power.PowerCuts(1, None, work)
    return parts.total(part.run(case) for case in range(cases))


def test_what_is_written_atomically_survives_power_cuts(cut):
    actual = cut(RUN, 1)
    assert not actual.failures and actual.done == power.CUTS


def test_a_marker_before_what_it_marks_is_found(cut):
    """If the cut comes between them, as it does in one of these cases."""
    assert any("other bytes" in failure for failure in cut(CARELESS, 4).failures)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "old").write_text("old")
    disk = Disk(root, tmp_path / "store")
    disk.begin()
    for name, value in disk.environment().items():
        monkeypatch.setenv(name, value)
    for name in (*power_disk._NAMING, "fsync", "fdatasync"):
        monkeypatch.setattr(os, name, getattr(os, name))
    power_disk.install()
    return disk


def test_what_is_left_after_a_cut(disk, tmp_path):
    root, seen = tmp_path / "root", set()
    for seed in range(60):
        with open(root / "synced", "wb", buffering=0) as stream:
            stream.write(b"12345")
            os.fsync(stream)
            stream.write(b"678")
        (root / "folder" / "lost").write_text("123")
        (root / "temporary").write_text("new")
        descriptor = os.open(root / "temporary", os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        os.replace(root / "temporary", root / "old")
        disk.cut(np.random.default_rng(seed))
        texts = {p.name: p.read_text() for p in root.rglob("*") if p.is_file()}
        assert texts["old"] in ("old", "new") and "temporary" not in texts
        assert texts.get("synced", "12345").startswith("12345")
        assert "123".startswith(texts.get("lost", ""))
        seen |= {(name, texts.get(name)) for name in ("synced", "lost", "old")}
        for path in (root / "synced", root / "folder" / "lost"):
            path.unlink(missing_ok=True)
        (root / "old").write_text("old")
        disk.begin()
    assert {("old", "old"), ("old", "new"), ("synced", None), ("lost", None)} <= seen
    assert {("synced", "12345"), ("synced", "12345678"), ("lost", ""), ("lost", "123")} <= seen


def test_what_is_synced_with_its_folder_stays(disk, tmp_path):
    root = tmp_path / "root"
    for seed in range(10):
        (root / f"{seed}").write_text("123")
        for path in (root / f"{seed}", root):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        disk.cut(np.random.default_rng(seed))
        assert (root / f"{seed}").read_text() == "123"
    assert disk.events == 0
