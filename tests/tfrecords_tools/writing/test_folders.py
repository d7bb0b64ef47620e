"""Tests of the folders of unfinished builds."""

import errno
import json
import os
import pathlib
import tempfile

import pytest

from official.utils import atomic, paths
from official.utils.errors import UserError
from tfrecords_tools.writing import folders


class Power(Exception):
    """Goes."""


def run(output, plan, report=lambda line: None, stop=False):
    """Runs a build; returns what an earlier one has left to it."""
    with folders.unfinished(output, plan, lambda work: (work / "done").exists(), report) as work:
        left = sorted(path.name for path in work.iterdir())
        (work / "done").write_text("1")
        if stop:
            raise KeyboardInterrupt
    return left


def stop(output, plan):
    with pytest.raises(KeyboardInterrupt):
        run(output, plan, stop=True)


@pytest.fixture
def tmpdir_(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_other_code_begins_anew_and_says_so(tmp_path, monkeypatch):
    lines = []
    stop(tmp_path / "out", {"seed": 1})
    monkeypatch.setattr(folders, "code_digest", lambda: "another")
    assert run(tmp_path / "out", {"seed": 1}, lines.append) == ["lock", "plan.json"]
    path = tmp_path / ".unfinished-out"
    assert lines == [f"{path} belongs to another build (other code): starting again"]
    stop(tmp_path / "out", {"seed": 1})
    assert run(tmp_path / "out", {"seed": 1}) == ["done", "lock", "plan.json"]
    assert not path.exists()


@pytest.mark.parametrize("what", ["lock", "plan.json"])
def test_a_full_disk_at_the_start_leaves_no_folder(tmp_path, monkeypatch, what):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def no_room(path, *args, **options):
        raise full

    if what == "lock":
        monkeypatch.setattr(pathlib.Path, "touch", no_room)
    else:
        monkeypatch.setattr(atomic, "file", no_room)
    with pytest.raises((UserError, OSError)) as raised:
        run(tmp_path / "out", {"seed": 1})
    assert os.strerror(errno.ENOSPC) in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_the_code_is_that_of_records():
    assert folders.code_digest() == folders.code_digest()
    names = [str(path.relative_to(folders._ROOT)) for path in folders.sources()]
    assert "tfrecords_tools/pretraining/pairs.py" in names
    assert "official/tokenizers/wordpiece.py" in names
    assert not any(name.startswith("official/training/") for name in names)


@pytest.mark.parametrize("cut", ["clear", "remove"])
def test_files_never_have_another_plan_than_their_own(tmp_path, monkeypatch, cut):
    """Power goes when the first file of another plan, or of a finished build, is removed."""
    stop(tmp_path / "out", {"seed": 1})
    work = tmp_path / ".unfinished-out"
    unlink, synced, fsync = os.unlink, [], os.fsync

    def sync(descriptor):
        fsync(descriptor)
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def gone(path, *args, **kwargs):
        if os.path.basename(path) == "done":
            assert not (work / "plan.json").exists() and synced[-1] == str(work)
            raise Power
        unlink(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        patch.setattr(os, "unlink", gone)
        with pytest.raises(Power):
            run(tmp_path / "out", {"seed": 2 if cut == "clear" else 1})
    assert (work / "done").exists()
    lines = []
    assert run(tmp_path / "out", {"seed": 1}, lines.append) == ["lock", "plan.json"]
    assert lines == [f"{work} belongs to another build (its plan is missing): starting again"]


def test_work_for_a_remote_output_is_in_a_private_folder_that_is_found_again(ram, tmpdir_):
    output = ram / "out"
    stop(output, {"seed": 1})
    (home,) = tmpdir_.iterdir()
    assert home.stat().st_mode & 0o777 == 0o700 and home.stat().st_uid == os.getuid()
    assert run(output, {"seed": 1}) == ["done", "lock", "plan.json"]
    assert not list(home.iterdir())


def test_links_are_refused_and_what_they_point_to_is_kept(tmp_path, tmpdir_):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis").write_text("years of work")
    (mine / "plan.json").write_text(json.dumps({"seed": 9}))
    home = tmpdir_ / f"encoder-garden-{os.getuid()}"
    home.symlink_to(mine)
    with pytest.raises(UserError, match="is a link.*set TMPDIR to a folder of your own"):
        run(paths.path("ram://links/out"), {"seed": 1})
    (tmp_path / ".unfinished-out").symlink_to(mine)
    with pytest.raises(UserError, match=".unfinished-out is a link.*name another --output"):
        run(tmp_path / "out", {"seed": 1})
    assert (mine / "thesis").read_text() == "years of work" and len(list(mine.iterdir())) == 2


def test_folders_of_others_are_refused(tmp_path, tmpdir_, monkeypatch):
    folders.temporary().chmod(0o755)
    with pytest.raises(UserError, match="other users may enter it: remove it, or set TMPDIR"):
        folders.temporary()
    os.rmdir(tmpdir_ / f"encoder-garden-{os.getuid()}")
    shared, own = tmp_path / "shared", tmp_path / "own"
    for parent, mode in ((shared, 0o777), (own, 0o755)):
        (parent / "work").mkdir(parents=True)
        parent.chmod(mode)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(UserError, match="work belongs to another user"):
        folders.make_own(shared / "work")
    folders.make_own(own / "work")  # where nobody else may write


def test_files_of_killed_attempts_are_no_part_of_the_shards(tmp_path):
    output = paths.path(tmp_path / "shards")
    with folders.new_shards(output) as folder:
        (folder / f"{atomic.PREFIX}train-00000-of-00001.tfrecord-abcdefgh").write_bytes(b"half")
        (folder / "train-00000-of-00001.tfrecord").write_bytes(b"whole")
    assert [path.name for path in output.iterdir()] == ["train-00000-of-00001.tfrecord"]
