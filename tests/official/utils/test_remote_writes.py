import errno
import os
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from official.utils import atomic, checksums, gfile, paths
from official.utils.errors import UserError


def names(folder):
    return sorted(str(path).removeprefix(f"{folder}/") for path in folder.glob("**/*"))


class Killed(BaseException):
    """Ends a block without what follows it, as SIGKILL does."""


@pytest.fixture
def killed(monkeypatch):
    """Runs a block that is killed: nothing is removed after it."""

    def run(write):
        with monkeypatch.context() as patch:
            patch.setattr(paths.RemotePath, "unlink", lambda *args, **options: None)
            patch.setattr(atomic, "_remove_remote", lambda *args: None)
            with pytest.raises(Killed):
                write()

    return run


def written(folder, stop=False, **options):
    with atomic.folder(folder, "last", **options) as inside:
        (inside / "sub").mkdir()
        (inside / "sub" / "a").write_text("1")
        (inside / "z").write_text("2")
        if stop:
            raise Killed
        (inside / "last").write_text("3")


@pytest.mark.parametrize("in_place", [False, True])
def test_a_folder_is_whole_when_its_marker_is_there(ram, in_place, monkeypatch):
    order = []
    real = gfile.put

    def put(uri, source):
        order.append(uri.removeprefix(f"{ram}/out/"))
        if order[-1] != atomic.UNFINISHED:
            with pytest.raises(UserError, match="out is not complete: last, which is written last"):
                atomic.check_complete(ram / "out", "last")
        real(uri, source)

    monkeypatch.setattr(gfile, "put", put)
    written(str(ram / "out"), in_place=in_place)
    assert sorted(order) == [".unfinished", "last", "sub/a", "z"]
    assert order[0] == ".unfinished" and order[-1] == "last"
    assert names(ram) == ["out", "out/last", "out/sub", "out/sub/a", "out/z"]
    assert (ram / "out" / "sub" / "a").read_text() == "1"
    atomic.check_complete(ram / "out", "last")
    with pytest.raises(UserError, match="ram://.*/out is there already: name another folder or"):
        written(ram / "out", in_place=in_place)
    assert (ram / "out" / "z").read_text() == "2"


@pytest.mark.parametrize("in_place", [False, True])
def test_nothing_stays_after_an_error(ram, in_place):
    with pytest.raises(Killed):
        written(ram / "out", stop=True, in_place=in_place)
    assert names(ram) in ([], ["out"], ["out", "out/sub"])
    written(ram / "out", in_place=in_place)


@pytest.mark.parametrize("in_place", [False, True])
def test_what_a_killed_run_left_is_replaced(ram, killed, in_place):
    killed(lambda: written(ram / "out", stop=True, in_place=in_place))
    (ram / "out" / "older").write_text("")
    assert "out/.unfinished" in names(ram)
    with pytest.raises(UserError, match="out is not complete: .*The command that makes it was"):
        atomic.check_complete(ram / "out", "last")
    written(ram / "out", in_place=in_place)
    assert [n for n in names(ram) if n != "out/sub"] == ["out", "out/last", "out/sub/a", "out/z"]


def test_a_folder_of_something_else_is_kept(ram):
    (ram / "mine").write_text("1")
    with pytest.raises(UserError, match=f"^{ram} is there already: name another"):
        written(ram)
    assert names(ram) == ["mine"] and (ram / "mine").read_text() == "1"
    (ram / "empty").mkdir()
    written(ram / "empty")
    assert "empty/last" in names(ram)


def test_a_folder_without_marker_is_an_error_of_the_program(ram):
    with pytest.raises(ValueError, match="out: a remote folder needs a marker"):
        with atomic.folder(ram / "out"):
            pass
    with pytest.raises(ValueError, match="out: its marker last was not written"):
        with atomic.folder(ram / "out", "last", in_place=True):
            pass


def test_files(ram):
    (ram / "f").write_text("old")
    with atomic.file(ram / "f") as stream:
        stream.write("zwölf")
        stream.flush()
        assert (ram / "f").read_text() == "old"
    assert (ram / "f").read_bytes() == "zwölf".encode()
    with pytest.raises(KeyError), atomic.file(ram / "f") as stream:
        stream.write("half")
        raise KeyError
    assert (ram / "f").read_text() == "zwölf" and names(ram) == ["f"]
    array = np.arange(12.0)
    with atomic.replacing(ram / "a.npy") as temporary:
        assert temporary.name == "a.npy"
        np.save(temporary, array)
    digest = checksums.hash_file(ram / "a.npy")
    with paths.local_copy(ram / "a.npy") as local:
        mapped = np.load(local, mmap_mode="r")
        assert digest == checksums.hash_file(local)
    np.testing.assert_array_equal(mapped, array)
    assert checksums.problem(ram / "none", "") == f"{ram}/none is missing"
    assert "has changed since" in checksums.problem(ram / "a.npy", "0")
    assert checksums.problem(ram / "a.npy", digest) is None


def test_append(ram):
    atomic.append(ram / "log", "one\n")
    atomic.append(ram / "log", "zwölf\n")
    assert (ram / "log").read_text() == "one\nzwölf\n"


def test_remove(ram, monkeypatch):
    (ram / "folder" / "in").mkdir()
    for name in ("a", "marker", "in/b"):
        (ram / "folder" / name).write_text("")
    gone = []
    real = tf.io.gfile.remove
    monkeypatch.setattr(tf.io.gfile, "remove", lambda uri: (gone.append(uri), real(uri)))
    atomic.remove(ram / "folder", "marker")
    assert gone == [f"{ram}/folder/marker"] and names(ram) == []
    (ram / "file").write_text("")
    atomic.remove(ram / "file")
    assert names(ram) == []


def test_left_over_files_are_removed(ram):
    for name in (".tmp-a-0123abcd", ".tmp-mine", "kept"):
        (ram / name).write_text("")
    atomic.remove_leftovers(ram)
    assert names(ram) == [".tmp-mine", "kept"]


def test_a_full_local_disk_is_said_in_words(ram):
    with pytest.raises(UserError, match=f"no room in {tempfile.gettempdir()} for {ram}/f.*TMPDIR"):
        with atomic.file(ram / "f"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert names(ram) == []
