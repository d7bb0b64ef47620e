import errno
import os

import pytest

from official import atomic
from official.errors import UserError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_folder_appears_when_the_block_ends(tmp_path):
    with atomic.folder(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "a").read_text() == "1" and names(tmp_path) == ["out"]


def test_nothing_stays_after_an_error(tmp_path):
    with pytest.raises(KeyError), atomic.folder(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
        raise KeyError
    with pytest.raises(KeyError), atomic.file(tmp_path / "file") as stream:
        stream.write("half")
        raise KeyError
    assert names(tmp_path) == []


def test_an_existing_folder_is_kept(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("1")
    with pytest.raises(UserError, match="out is there already: name another"):
        with atomic.folder(tmp_path / "out"):
            pass
    assert (tmp_path / "out" / "mine").exists()
    with atomic.folder(tmp_path / "out", replace=True) as folder:
        (folder / "new").write_text("2")
    assert names(tmp_path / "out") == ["new"] and names(tmp_path) == ["out"]


def test_file_replaces_at_once(tmp_path):
    (tmp_path / "f").write_text("old")
    with atomic.file(tmp_path / "f") as stream:
        stream.write("new")
        stream.flush()
        assert (tmp_path / "f").read_text() == "old"
    assert (tmp_path / "f").read_text() == "new"


def test_a_full_disk_is_said_in_words(tmp_path):
    with pytest.raises(UserError, match="no room to write .*file.*free some space"):
        with atomic.file(tmp_path / "file"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(UserError, match="no room to write .*out.*nothing was left half-written"):
        with atomic.folder(tmp_path / "out"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert names(tmp_path) == []


def test_sweep(tmp_path):
    (tmp_path / ".tmp-out-1").mkdir()
    (tmp_path / ".tmp-out-1" / "a").write_text("")
    (tmp_path / ".tmp-file").write_text("")
    (tmp_path / "kept").write_text("")
    atomic.sweep(tmp_path)
    assert names(tmp_path) == ["kept"]
