"""What a file was before it is read, and what is said if it is another one then."""

import errno
import os
import threading
from pathlib import Path

import pytest

from official.utils import input_files, paths
from official.utils.errors import UserError
from official.utils.input_files import Inputs


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"0123456789")
    return tmp_path / "a.txt"


def test_a_file_that_stays(path):
    noted = input_files.seen(path)
    assert noted[:2] == (path, 10) and noted.change() == ""
    with input_files.opened(noted) as stream:
        assert stream.read(4) == b"0123"
    assert input_files.read(path) == b"0123456789"


def test_each_change_is_named(path):
    noted = input_files.seen(path)
    os.utime(path, ns=(0, 1_500_000_000_250_000_000))
    assert ".250" in noted.change() and noted.change().startswith(
        f"{path} has changed while it was read: it was written at 20"
    )
    path.write_bytes(b"01234")
    assert noted.change().endswith("read: it had 10 bytes, and has 5 now")
    with pytest.raises(UserError, match="has 5 now: leave the input as it is until the command "):
        noted.check()
    path.unlink()
    assert noted.change() == f"{path} was removed while it was read"
    for file in (noted, path):
        with pytest.raises(UserError, match=r"a\.txt") as error, input_files.opened(file):
            pass
        assert ("was removed" in str(error.value)) == (file is noted)


def test_a_change_explains_the_error_that_it_makes(path):
    with pytest.raises(UserError, match="has changed while it was read"):
        with input_files.opened(path):
            path.write_bytes(b"")
            raise ValueError("not JSON")
    with pytest.raises(ZeroDivisionError):
        with input_files.opened(path):
            raise ZeroDivisionError


def test_a_stream_that_ends_before_its_file(path):
    """A file system may give less than the size that it tells."""
    noted = input_files.seen(path)._replace(size=12)
    with path.open("rb") as stream:
        stream.read()
        with pytest.raises(UserError, match="has changed"):
            noted.check_end(stream)
    noted = input_files.seen(path)
    with open(os.devnull, "rb") as stream:
        with pytest.raises(UserError, match=r"a\.txt: only 0 of 10 bytes can be read: check the"):
            noted.check_end(stream)


def test_errors_of_the_disk_are_words(path, monkeypatch):
    class Broken:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def read(self, *size):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "open", lambda *given: Broken())
    with pytest.raises(UserError, match=r"a\.txt cannot be read: Input/output error: check the"):
        input_files.read(path)


def test_pipes_are_read_as_they_come(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\n",))
    writer.start()
    assert input_files.read(pipe) == b"a\nb\n"
    writer.join()
    assert input_files.seen(pipe).time is None and input_files.seen(pipe).change() == ""


def test_folders_have_the_files_below_them(tmp_path, path):
    (tmp_path / "in" / "pos").mkdir(parents=True)
    (tmp_path / "in" / "pos" / "1.txt").write_text("good")
    inputs = Inputs([tmp_path / "in", str(path), path, tmp_path / "missing"])
    assert [file.path.name for file in inputs.files] == ["1.txt", "a.txt"]
    inputs.check()
    (tmp_path / "in" / "2.txt").touch()
    with pytest.raises(UserError, match=r"2\.txt was added while the input was read: leave "):
        inputs.check()
    (tmp_path / "in" / "2.txt").unlink()
    (tmp_path / "in" / "pos" / "1.txt").write_text("bad")
    assert inputs.change().endswith("1.txt has changed while it was read: it had 4 bytes, and has "
                                    "3 now")  # fmt: skip


@pytest.mark.slow
def test_remote_files():
    """TensorFlow's file systems have sizes and times too."""
    folder = paths.path("ram://input-files")
    (folder / "a").write_bytes(b"0123")
    inputs = Inputs([folder])
    with input_files.opened(inputs.files[0]) as stream:
        assert stream.read() == b"0123"
    (folder / "a").unlink()
    (folder / "a").write_bytes(b"01234")
    with pytest.raises(UserError, match="ram://input-files/a has changed .* has 5 now"):
        inputs.check()
