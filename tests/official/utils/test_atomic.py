import errno
import os
from pathlib import Path

import pytest
import safetensors
import tensorflow as tf

from official.utils import atomic
from official.utils.errors import UserError


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
    (tmp_path / "empty").mkdir()
    with atomic.folder(tmp_path / "empty") as folder:
        (folder / "new").write_text("2")
    assert names(tmp_path / "empty") == ["new"] and names(tmp_path) == ["empty", "out"]


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


def test_append_adds_the_whole_text_or_nothing(tmp_path, size_limit):
    path = tmp_path / "log"
    atomic.append(path, "one\n")
    atomic.append(path, "zwölf\n")
    size_limit(path.stat().st_size + 3)
    with pytest.raises(UserError, match=f"no room to write {path} .File too large"):
        atomic.append(path, "three and more\n")
    assert path.read_text(encoding="utf-8") == "one\nzwölf\n"


@pytest.fixture
def calls(monkeypatch):
    """What is synced, made and renamed, in order; temporary names end in a star."""
    result = []

    def plain(path):
        return "/".join(f"{p[:-8]}*" if p.startswith(".tmp-") else p for p in Path(path).parts[-2:])

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
