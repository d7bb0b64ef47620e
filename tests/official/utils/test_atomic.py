"""Atomic writes on the local disk and on remote file systems."""

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors
import tensorflow as tf

from official.utils import atomic, checksums, gfile, paths
from official.utils.errors import UserError
from tests import ROOT, limits


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_folder_appears_when_the_block_ends(tmp_path):
    with atomic.folder(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "a").read_text() == "1" and names(tmp_path) == ["out"]


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_modes_are_those_of_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        with atomic.folder(tmp_path / "out") as folder:
            (folder / "a").write_text("1")
        with atomic.file(tmp_path / "b") as file:
            file.write("1")
        modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("out", "out/a", "b")]
        assert modes == [0o777 & ~umask, 0o666 & ~umask, 0o666 & ~umask]
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


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
    (tmp_path / "empty").mkdir()
    with atomic.folder(tmp_path / "empty") as folder:
        (folder / "new").write_text("2")
    assert names(tmp_path / "empty") == ["new"] and names(tmp_path) == ["empty", "out"]


def test_of_two_writers_of_a_folder_the_first_to_end_has_it(tmp_path):
    with pytest.raises(UserError, match="out was made by another command while this one ran, and"):
        with atomic.folder(tmp_path / "out") as late:
            (late / "a").write_text("late")
            with atomic.folder(tmp_path / "out") as early:
                (early / "a").write_text("early")
    assert (tmp_path / "out" / "a").read_text() == "early" and names(tmp_path) == ["out"]


WRITER = """
import sys, time
from official.utils import atomic, command_line

def main(argv):
    with atomic.folder(argv[1]) as folder, atomic.file(argv[2]) as stream:
        (folder / "a").write_text("half")
        print("writing", flush=True)
        time.sleep(60)

command_line.run(main, positional=True)
"""


def interrupted(folder, number):
    """Ends a command by a signal while it writes a folder and a file; returns what it said."""
    command = [sys.executable, "-c", WRITER, str(folder / "out"), str(folder / "file")]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    return process.communicate()[1], process.returncode


def test_sigterm_leaves_nothing(tmp_path):
    assert interrupted(tmp_path, signal.SIGTERM) == ("terminated\n", 143)
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    """What a process that runs has, or another machine, or a user, stays."""
    assert interrupted(tmp_path, signal.SIGKILL) == ("", -signal.SIGKILL)
    left = names(tmp_path)
    assert len(left) == 2 and all(name.startswith((".tmp-out-", ".tmp-file-")) for name in left)
    others = [".tmp-out-00000000-abcd_123", ".tmp-mine"]
    for name in others:
        (tmp_path / name).mkdir()
    with atomic.folder(tmp_path / "two") as folder:
        assert names(tmp_path) == sorted([*others, folder.name])
        with atomic.folder(tmp_path / "three"):
            assert folder.exists() and len(names(tmp_path)) == 4
    assert names(tmp_path) == sorted([*others, "two", "three"])


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


def test_what_cannot_be_written_is_said_in_words(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write .*/file .File exists: .*: name a place"):
        with atomic.folder(tmp_path / "file" / "out"):
            pass
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot write .*folder .Is a directory: .*what is in the"):
        with atomic.file(tmp_path / "folder") as stream:
            stream.write("new")
    with pytest.raises(PermissionError):  # of a file that the block reads
        with atomic.file(tmp_path / "new"):
            raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "input"))

    def read_only(prefix, dir):
        raise OSError(errno.EROFS, "Read-only file system", str(dir / f"{prefix}abc"))

    monkeypatch.setattr(atomic.tempfile, "mkdtemp", read_only)
    with pytest.raises(UserError, match="cannot write .*out .Read-only file system"):
        with atomic.folder(tmp_path / "out"):
            pass
    assert names(tmp_path) == ["file", "folder"] and names(tmp_path / "folder") == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (tf.errors.ResourceExhaustedError, "no room to write .*out .No space left on device"),
        (safetensors.SafetensorError, "no room to write .*out .No space left on device"),
        (tf.errors.FailedPreconditionError, "cannot write .*out .Read-only file system: /.*/a"),
    ],
)
def test_what_libraries_make_of_a_full_or_read_only_disk(tmp_path, error, message):
    words = "Read-only file system" if "Precond" in error.__name__ else "No space left on device"
    with pytest.raises(UserError, match=message):
        with atomic.folder(tmp_path / "out") as folder:
            said = f"{folder}/a; {words}"
            raise error(None, None, said) if error.__module__.startswith("tensor") else error(said)
    assert names(tmp_path) == []
    with pytest.raises(error, match="Is a directory"):  # of a file that is read
        with atomic.folder(tmp_path / "out"):
            said = "/elsewhere; Is a directory"
            raise error(None, None, said) if error.__module__.startswith("tensor") else error(said)


def test_append_adds_the_whole_text_or_nothing(tmp_path):
    path = tmp_path / "log"
    atomic.append(path, "one\n")
    atomic.append(path, "zwölf\n")
    with pytest.raises(UserError, match=f"no room to write {path} .File too large"):
        limits.run(path.stat().st_size + 3, atomic.append, path, "three and more\n")
    assert path.read_text(encoding="utf-8") == "one\nzwölf\n"


@pytest.fixture
def calls(monkeypatch):
    """What is synced, made and renamed, in order; temporary names end in a star."""
    result = []

    def plain(path):
        end = r"^(\.tmp-(?:out|file)-).*"
        return "/".join(re.sub(end, r"\1*", part) for part in Path(path).parts[-2:])

    def record(module, name, words):
        real = getattr(module, name)

        def recorded(*args, **options):
            result.append(words(*args))
            return real(*args, **options)

        monkeypatch.setattr(module, name, recorded)

    record(os, "fsync", lambda fd: f"sync {plain(os.readlink(f'/proc/self/fd/{fd}'))}")
    record(os, "mkdir", lambda path, *_: f"make {plain(path)}")
    for name in ("rename", "replace"):
        record(os, name, lambda old, new: f"rename {plain(old)} {plain(new)}")
    return result


def test_a_new_folder_and_all_names_that_lead_to_it_are_synced(tmp_path, calls):
    with atomic.folder(tmp_path / "a" / "b" / "out") as folder:
        (folder / "in").mkdir()
        (folder / "in" / "file").write_text("1")
        del calls[-1]  # the block's own
    up, here, out = tmp_path.parent.name, tmp_path.name, ".tmp-out-*"
    assert calls == [
        f"make {here}/a", f"sync {up}/{here}", "make a/b", f"sync {here}/a", f"make b/{out}",
        *calls[5:7], f"sync b/{out}", f"rename b/{out} b/out", "sync a/b",
    ]  # fmt: skip
    assert sorted(calls[5:7]) == [f"sync {out}/in", "sync in/file"]


def test_a_new_file_and_its_name_are_synced(tmp_path, calls):
    with atomic.file(tmp_path / "a" / "file") as stream:
        stream.write("1")
    up, here, temporary = tmp_path.parent.name, tmp_path.name, "a/.tmp-file-*"
    assert calls == [
        f"make {here}/a", f"sync {up}/{here}",
        f"sync {temporary}", f"rename {temporary} a/file", f"sync {here}/a",
    ]  # fmt: skip


def test_sweep_removes_left_overs_alone(tmp_path):
    (tmp_path / ".tmp-out-abcd_123").mkdir()
    (tmp_path / ".tmp-out-abcd_123" / "a").write_text("")
    (tmp_path / ".tmp-file-12345678").write_text("")
    for other in ("kept", ".tmp-mine", ".tmp-out-abcd_123-old"):
        (tmp_path / other).write_text("")
    atomic.remove_leftovers(tmp_path)
    assert names(tmp_path) == [".tmp-mine", ".tmp-out-abcd_123-old", "kept"]


def test_sweep_spares_what_is_being_written(tmp_path):
    with atomic.folder(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
        atomic.remove_leftovers(tmp_path)
    with atomic.file(tmp_path / "file") as stream:
        stream.write("1")
        atomic.remove_leftovers(tmp_path)
    assert (tmp_path / "out" / "a").read_text() == (tmp_path / "file").read_text() == "1"


def test_remove(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "file").write_text("")
    atomic.remove(tmp_path / "file")
    atomic.remove(tmp_path / "link")
    assert names(tmp_path) == ["folder"]
    atomic.remove(tmp_path / "folder")
    assert names(tmp_path) == []


def remote_names(folder):
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
    assert remote_names(ram) == ["out", "out/last", "out/sub", "out/sub/a", "out/z"]
    assert (ram / "out" / "sub" / "a").read_text() == "1"
    atomic.check_complete(ram / "out", "last")
    with pytest.raises(UserError, match="ram://.*/out is there already: name another folder or"):
        written(ram / "out", in_place=in_place)
    assert (ram / "out" / "z").read_text() == "2"


@pytest.mark.parametrize("in_place", [False, True])
def test_nothing_remote_stays_after_an_error(ram, in_place):
    with pytest.raises(Killed):
        written(ram / "out", stop=True, in_place=in_place)
    assert remote_names(ram) in ([], ["out"], ["out", "out/sub"])
    written(ram / "out", in_place=in_place)


@pytest.mark.parametrize("in_place", [False, True])
def test_what_a_killed_run_left_is_replaced(ram, killed, in_place):
    killed(lambda: written(ram / "out", stop=True, in_place=in_place))
    (ram / "out" / "older").write_text("")
    assert "out/.unfinished" in remote_names(ram)
    with pytest.raises(UserError, match="out is not complete: .*The command that makes it was"):
        atomic.check_complete(ram / "out", "last")
    written(ram / "out", in_place=in_place)
    assert [n for n in remote_names(ram) if n != "out/sub"] == [
        "out",
        "out/last",
        "out/sub/a",
        "out/z",
    ]


def test_a_folder_of_something_else_is_kept(ram):
    (ram / "mine").write_text("1")
    with pytest.raises(UserError, match=f"^{ram} is there already: name another"):
        written(ram)
    assert remote_names(ram) == ["mine"] and (ram / "mine").read_text() == "1"
    (ram / "empty").mkdir()
    written(ram / "empty")
    assert "empty/last" in remote_names(ram)


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
    assert (ram / "f").read_text() == "zwölf" and remote_names(ram) == ["f"]
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


def test_remove_remote(ram, monkeypatch):
    (ram / "folder" / "in").mkdir()
    for name in ("a", "marker", "in/b"):
        (ram / "folder" / name).write_text("")
    gone = []
    real = tf.io.gfile.remove
    monkeypatch.setattr(tf.io.gfile, "remove", lambda uri: (gone.append(uri), real(uri)))
    atomic.remove(ram / "folder", "marker")
    assert gone == [f"{ram}/folder/marker"] and remote_names(ram) == []
    (ram / "file").write_text("")
    atomic.remove(ram / "file")
    assert remote_names(ram) == []


def test_left_over_files_are_removed(ram):
    for name in (".tmp-a-0123abcd", ".tmp-mine", "kept"):
        (ram / name).write_text("")
    atomic.remove_leftovers(ram)
    assert remote_names(ram) == [".tmp-mine", "kept"]


def test_a_full_local_disk_is_said_in_words(ram):
    with pytest.raises(UserError, match=f"no room in {tempfile.gettempdir()} for {ram}/f.*TMPDIR"):
        with atomic.file(ram / "f"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert remote_names(ram) == []
