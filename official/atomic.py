"""Files and folders that appear under their final name only when they are whole.

What is written and every name that leads to it are synced, so a power cut loses neither.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from official.errors import UserError

PREFIX = ".tmp-"
_LEFT_OVER = re.compile(re.escape(PREFIX) + r".+-[a-z0-9_]{8}")  # as `tempfile` ends its names
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.EISDIR, errno.ENOTDIR,
)  # fmt: skip


@contextlib.contextmanager
def folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yields an empty folder beside `path` that becomes `path` when the block ends well.

    Raises:
      UserError: `path` is there already, or it cannot be written.
    """
    path = Path(path)
    with disk_errors(path):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} is there already: name another folder or remove it first")
        make_folder(path.parent)
        with _writing(path.parent):
            temporary = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{path.name}-", dir=path.parent))
            try:
                yield temporary
                for entry in temporary.rglob("*"):
                    if entry.is_file() or entry.is_dir():
                        _sync(entry)
                temporary.chmod(0o755)
                _sync(temporary)
                os.rename(temporary, path)
                _sync(path.parent)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yields the path of an empty file that takes the name `path` when the block ends well.

    Raises:
      UserError: it cannot be written.
    """
    path = Path(path)
    with disk_errors(path):
        make_folder(path.parent)
        with _writing(path.parent):
            descriptor, name = tempfile.mkstemp(prefix=f"{PREFIX}{path.name}-", dir=path.parent)
            os.close(descriptor)
            temporary = Path(name)
            try:
                yield temporary
                temporary.chmod(0o644)
                _sync(temporary)
                os.replace(temporary, path)
                _sync(path.parent)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise


@contextlib.contextmanager
def file(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Yields an open file that takes the name `path` when the block ends well.

    Raises:
      UserError: it cannot be written.
    """
    encoding = None if "b" in mode else "utf-8"
    with replacing(path) as temporary, open(temporary, mode, encoding=encoding) as stream:
        yield stream


def append(path: str | os.PathLike, text: str) -> None:
    """Appends text to a file, or leaves the file as it was.

    Raises:
      UserError: it cannot be written.
    """
    path = Path(path)
    with disk_errors(path), open(path, "ab", buffering=0) as stream:
        end = stream.seek(0, os.SEEK_END)
        data = text.encode()
        try:
            while data:
                data = data[stream.write(data) :]
        except BaseException:
            stream.truncate(end)
            raise


def make_folder(path: str | os.PathLike) -> None:
    """Makes a folder with the parents that it lacks, and syncs the name of each.

    Raises:
      UserError: it cannot be made.
    """
    path = Path(path)
    with disk_errors(path):
        lacking = [each for each in (path, *path.parents) if not each.is_dir()]
        for each in reversed(lacking):
            each.mkdir(exist_ok=True)
            _sync(each.parent)


def remove(path: str | os.PathLike) -> None:
    """Removes a file or a folder; a kill never leaves half of a folder under its name."""
    path = Path(path)
    if not path.is_dir() or path.is_symlink():
        path.unlink()
        return
    with _writing(path.parent):
        retired = tempfile.mkdtemp(prefix=f"{PREFIX}{path.name}-", dir=path.parent)
        os.rename(path, retired)
        shutil.rmtree(retired)


def sweep(parent: str | os.PathLike) -> None:
    """Removes what killed processes left half-written in `parent`.

    It waits for no one: while another process writes there, nothing is removed.
    """
    with contextlib.suppress(BlockingIOError), _lock(Path(parent), fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in Path(parent).glob(f"{PREFIX}*"):
            if _LEFT_OVER.fullmatch(path.name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns the errors of a full or read-only disk into words.

    Raises:
      UserError: `path`, which the block writes, has no room or may not be written.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        number, place = _cause(error)
        if number in _FULL:
            raise UserError(
                f"no room to write {path} ({os.strerror(number)}): free some space and run again; "
                "nothing was left half-written"
            ) from error
        if number in _REFUSED and _concerns(place, path):
            raise UserError(
                f"cannot write {path} ({os.strerror(number)}: {place}): name a place that you may "
                "write to, or remove what is in the way"
            ) from error
        raise


def _writing(parent: Path) -> contextlib.AbstractContextManager[None]:
    """Tells `sweep` that a process writes in `parent`."""
    return _lock(parent, fcntl.LOCK_SH)


@contextlib.contextmanager
def _lock(parent: Path, kind: int) -> Iterator[None]:
    """Holds a lock on a folder; goes on without one where the file system has none.

    Raises:
      BlockingIOError: it is taken, and `kind` says not to wait.
    """
    descriptor = os.open(parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, kind)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


def _cause(error: Exception) -> tuple[int | None, str | bytes | int | None]:
    """The number of an error of the operating system, and the file that it is about.

    TensorFlow and safetensors raise errors of their own, with the system's words in them.
    """
    if isinstance(error, OSError):
        return error.errno, error.filename2 or error.filename
    said = str(error)
    number = next((n for n in (*_FULL, *_REFUSED) if os.strerror(n) in said), None)
    return number, next((word.strip(";:,'") for word in said.split() if PREFIX in word), None)


def _concerns(name: str | bytes | int | None, path: Path) -> bool:
    """Whether an error's file leads to `path` or is in the making; others may be read, too."""
    if not isinstance(name, str):
        return False
    made = any(part.startswith(PREFIX) for part in Path(name).parts)
    return made or path.is_relative_to(name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
