"""Writes files and folders that get their final name only when they are complete.

After a power cut, a disk may have lost whatever was not synced, and may have a later write without
an earlier one. So content is synced before the name that says that it is complete, and each folder
after its entries have changed.

A remote file appears when it is whole. A remote file system need not rename folders, so a folder is
written in place. It is complete when it has its marker: a file, such as `manifest.json`, that is
written last and that readers need. Until then it has the file `.unfinished`. A folder with this
file and without the marker was left by a killed process, and is written anew. Other folders are
never replaced. Remote file systems have no locks, so one process at a time may write a folder.

What is not complete has a temporary name, and a lock. A process that is killed leaves it behind,
and one that writes beside it later removes it, if both ran since this machine was started.
"""

import contextlib
import errno
import fcntl
import functools
import os
import re
import shutil
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Literal, overload

from official.utils import paths
from official.utils.errors import UserError
from official.utils.gfile import PREFIX
from official.utils.paths import AnyPath, RemotePath

UNFINISHED = ".unfinished"
LEFT_OVER = re.compile(re.escape(PREFIX) + r".+-[a-z0-9_]{8}")  # as `tempfile` ends its names
_UMASK = threading.Lock()
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.EISDIR, errno.ENOTDIR,
)  # fmt: skip


@overload
def folder(
    path: str | os.PathLike, marker: str = "", in_place: Literal[False] = False
) -> AbstractContextManager[Path]: ...


@overload
def folder(
    path: str | os.PathLike, marker: str, in_place: bool
) -> AbstractContextManager[AnyPath]: ...


@contextlib.contextmanager
def folder(path: str | os.PathLike, marker: str = "", in_place: bool = False) -> Iterator[Any]:
    """Yields an empty folder that becomes `path` when the block ends without an error.

    It is a local folder. It is renamed to a local `path`, or copied to a remote one.

    Args:
      path: the folder.
      marker: the file of the folder that a remote `path` gets last. A remote folder without it is
        not complete, and is written anew. Remote folders need one.
      in_place: whether the block writes a remote folder itself, and the marker last. It then gets
        `path`. This suits folders that may be larger than the local disk.

    Raises:
      UserError: `path` exists already, or cannot be written.
    """
    path = paths.path(path)
    if isinstance(path, RemotePath):
        with disk_errors(path), _remote_folder(path, marker, in_place) as temporary:
            yield temporary
        return
    with disk_errors(path):
        check_new(path)
        make_folder(path.parent)
        _sweep(path.parent)
        with _writing(path.parent), _temporary(path, tempfile.mkdtemp) as temporary:
            try:
                yield temporary
                temporary.chmod(0o777 & ~_umask())
                sync_tree(temporary)
                _rename(temporary, path)
                sync(path.parent)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise


def _rename(temporary: Path, path: Path) -> None:
    """Gives a folder its name.

    Raises:
      UserError: another process has made a folder of this name meanwhile.
    """
    try:
        os.rename(temporary, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise UserError(
            f"{path} was made by another command while this one ran, and stays as it is: give one "
            "command at a time for an output, or name another one"
        ) from error


def _umask() -> int:
    """Returns the bits that the user takes from the modes of new files."""
    # It can only be read by setting it: a file that another thread makes meanwhile is private.
    with _UMASK:
        current = os.umask(0o077)
        os.umask(current)
    return current


def check_new(path: str | os.PathLike) -> None:
    """Checks that `folder` may write a local folder; commands do so before long work.

    Raises:
      UserError: `path` exists already, and is not an empty folder.
    """
    path = paths.path(path)
    if isinstance(path, RemotePath):
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is there already: name another folder or remove it first")


def check_complete(path: str | os.PathLike, marker: str) -> None:
    """Checks that a remote folder that `folder` has written has its marker; local ones are whole.

    Raises:
      UserError: the folder was left by a killed process, or is being written.
    """
    path = paths.path(path)
    remote = isinstance(path, RemotePath)
    if remote and (path / UNFINISHED).exists() and not (path / marker).exists():
        raise UserError(
            f"{path} is not complete: {marker}, which is written last, is missing. The command "
            "that makes it was stopped, or still runs: give it again"
        )


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yields the path of an empty file that replaces `path` when the block ends without an error.

    The empty file is a local one.

    Raises:
      UserError: `path` cannot be written.
    """
    path = paths.path(path)
    if isinstance(path, RemotePath):
        with disk_errors(path), replacing_remote(path) as temporary:
            yield temporary
        return
    with disk_errors(path):
        make_folder(path.parent)
        _sweep_once(path.parent)
        with _writing(path.parent), _temporary(path, _empty_file) as temporary:
            try:
                yield temporary
                temporary.chmod(0o666 & ~_umask())
                sync(temporary)
                os.replace(temporary, path)
                sync(path.parent)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise


@contextlib.contextmanager
def file(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Yields an open file that replaces `path` when the block ends without an error.

    Raises:
      UserError: `path` cannot be written.
    """
    encoding = None if "b" in mode else "utf-8"
    with replacing(path) as temporary, open(temporary, mode, encoding=encoding) as stream:
        yield stream


def append(path: str | os.PathLike, text: str) -> None:
    """Appends text to a file and syncs it, or leaves the file as it was.

    A remote file is written again.

    Raises:
      UserError: it cannot be written.
    """
    path = paths.path(path)
    if isinstance(path, RemotePath):
        data = text.encode()
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes() + data
        path.write_bytes(data)
        return
    with disk_errors(path), open(path, "ab", buffering=0) as stream:
        end = stream.seek(0, os.SEEK_END)
        data = text.encode()
        try:
            while data:
                data = data[stream.write(data) :]
            os.fsync(stream.fileno())
            if not end:
                sync(path.parent)  # The file may be new.
        except BaseException:
            stream.truncate(end)
            raise


def make_folder(path: str | os.PathLike) -> None:
    """Makes a folder and its missing parents, and syncs them.

    Raises:
      UserError: the folder cannot be made.
    """
    path = paths.path(path)
    if isinstance(path, RemotePath):
        path.mkdir(parents=True, exist_ok=True)
        return
    with disk_errors(path):
        lacking = [each for each in (path, *path.parents) if not each.is_dir()]
        for each in reversed(lacking):
            each.mkdir(exist_ok=True)
            sync(each.parent)


def remove(path: str | os.PathLike, marker: str = "") -> None:
    """Removes a file or a folder, for good when this returns.

    A killed process or a power cut never leaves a part of the folder at `path`; of a remote folder,
    a part without its `marker` may be left.
    """
    path = paths.path(path)
    if isinstance(path, RemotePath):
        _remove_remote(path, marker)
        return
    if not path.is_dir() or path.is_symlink():
        path.unlink()
        sync(path.parent)
        return
    with _writing(path.parent):
        retired = tempfile.mkdtemp(prefix=f"{PREFIX}{path.name}-", dir=path.parent)
        os.rename(path, retired)
        sync(path.parent)
        shutil.rmtree(retired)


def remove_leftovers(parent: str | os.PathLike) -> None:
    """Removes the temporary files and folders that killed processes left in `parent`.

    While another process writes in `parent`, it removes nothing and does not wait. Remote file
    systems have no locks: no other process may write in a remote `parent`.
    """
    parent = paths.path(parent)
    if isinstance(parent, RemotePath):
        for file in parent.glob(f"{PREFIX}*"):
            if LEFT_OVER.fullmatch(file.name):
                file.unlink(missing_ok=True)
        return
    with contextlib.suppress(BlockingIOError), _lock(parent, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in parent.glob(f"{PREFIX}*"):
            if LEFT_OVER.fullmatch(path.name):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()


@contextlib.contextmanager
def disk_errors(path: AnyPath) -> Iterator[None]:
    """Reports the errors of a full or read-only disk as user errors.

    Raises:
      UserError: `path`, which the block writes, has no room or may not be written.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        number, place = _cause(error)
        if number in _FULL and isinstance(path, RemotePath):
            raise UserError(
                f"no room in {tempfile.gettempdir()} for {path}, which is written there first "
                f"({os.strerror(number)}): free some space there, or set TMPDIR to another folder"
            ) from error
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


@contextlib.contextmanager
def only_one(file: AnyPath, what: AnyPath) -> Iterator[None]:
    """Holds a lock on a local file during the block; a remote file system has none.

    Args:
      file: the file, which exists.
      what: the output that the message names.

    Raises:
      UserError: another process holds the lock.
    """
    if isinstance(file, RemotePath):
        yield
        return
    refused = UserError(
        f"{what} is being written by another command: wait for its end, or name another output"
    )
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(_lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except (BlockingIOError, FileNotFoundError):
            raise refused from None
        if not _is_at(file, descriptor):
            raise refused
        yield


def _is_at(path: Path, descriptor: int) -> bool:
    """Returns whether an open file or folder is still the one at this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _empty_file(prefix: str, dir: Path) -> str:
    descriptor, name = tempfile.mkstemp(prefix=prefix, dir=dir)
    os.close(descriptor)
    return name


@contextlib.contextmanager
def _temporary(path: Path, make: Callable[..., str]) -> Iterator[Path]:
    """Yields a new file or folder beside `path`, which is locked until the block ends.

    The lock ends with the process, even if it is killed, and `_sweep` of another process may then
    remove the file. It may also do so before the lock is held; the file is then made again.

    Args:
      path: the final path of the file or folder.
      make: `tempfile.mkdtemp`, or a function like it.
    """
    with contextlib.ExitStack() as stack:
        while True:
            temporary = Path(make(prefix=f"{PREFIX}{path.name}-{_start()}", dir=path.parent))
            with contextlib.suppress(FileNotFoundError):
                if _is_at(temporary, stack.enter_context(_lock(temporary, fcntl.LOCK_SH))):
                    break
        yield temporary


@functools.cache
def _start() -> str:
    """Returns an id of this boot of this machine, as a part of a name; "" if unknown.

    Another machine on the same file system may not see the locks of this one.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return ""
    return f"{zlib.crc32(boot):08x}-"


def _sweep(parent: Path) -> None:
    """Removes the temporary files that killed processes of this machine left in a folder."""
    if not _start():
        return
    name = re.compile(re.escape(PREFIX) + f".+-{_start()}[a-z0-9_]{{8}}")
    for path in parent.glob(f"{PREFIX}*"):
        if name.fullmatch(path.name):
            with contextlib.suppress(OSError):  # it is locked, gone, or another user's
                _remove_left(path)


def _remove_left(path: Path) -> None:
    """Removes a temporary file or folder that no process has a lock on.

    Raises:
      OSError: a process holds a lock on it, or it cannot be removed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    finally:
        os.close(descriptor)


@functools.lru_cache(maxsize=1024)
def _sweep_once(parent: Path) -> None:
    """Calls `_sweep` once, for the first of many files that a process writes in a folder."""
    _sweep(parent)


def _writing(parent: Path) -> contextlib.AbstractContextManager[int]:
    """Holds the lock that tells `remove_leftovers` that a process writes in `parent`."""
    return _lock(parent, fcntl.LOCK_SH)


@contextlib.contextmanager
def _lock(path: Path, kind: int) -> Iterator[int]:
    """Holds a lock on a file or folder; does nothing if the file system has no locks.

    Yields:
      The descriptor of the file or folder, which is open until the end.

    Raises:
      FileNotFoundError: it is not there.
      BlockingIOError: another process holds the lock, and `kind` says not to wait.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, kind)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield descriptor
    finally:
        os.close(descriptor)


def _cause(error: Exception) -> tuple[int | None, str]:
    """Returns the number of an error of the operating system, and the file it is about or "".

    The errors of TensorFlow and safetensors contain the words of the system.
    """
    if isinstance(error, OSError):
        name = error.filename2 or error.filename
        return error.errno, name if isinstance(name, str) else ""
    said = str(error)
    number = next((n for n in (*_FULL, *_REFUSED) if os.strerror(n) in said), None)
    return number, next((word.strip(";:,'") for word in said.split() if PREFIX in word), "")


def _concerns(name: str, path: AnyPath) -> bool:
    """Returns whether the file of an error is temporary, or a parent of `path`, or `path`."""
    if not name:
        return False
    temporary = any(part.startswith(PREFIX) for part in Path(name).parts)
    return temporary or (isinstance(path, Path) and path.is_relative_to(name))


def sync_tree(folder: Path) -> None:
    """Waits until all that a local folder contains is on the disk."""
    for entry in folder.rglob("*"):
        if entry.is_file() or entry.is_dir():
            sync(entry)
    sync(folder)


def sync(path: Path) -> None:
    """Waits until the content of a local file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _remote_folder(path: RemotePath, marker: str, in_place: bool) -> Iterator[AnyPath]:
    """Yields an empty folder; see `folder`."""
    if not marker:
        raise ValueError(f"{path}: a remote folder needs a marker")
    _claim(path, marker)
    try:
        if in_place:
            yield path
            if not (path / marker).exists():
                raise ValueError(f"{path}: its marker {marker} was not written")
        else:
            with tempfile.TemporaryDirectory(prefix=PREFIX) as temporary:
                yield Path(temporary)
                copy_tree(Path(temporary), path, marker)
    except BaseException:
        with contextlib.suppress(Exception):  # the next run removes what is left
            (path / marker).unlink(missing_ok=True)
            _empty(path)
            (path / UNFINISHED).unlink(missing_ok=True)
        raise
    (path / UNFINISHED).unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_remote(path: RemotePath) -> Iterator[Path]:
    """Yields a local file that becomes a remote one when the block ends without an error."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as temporary:
        file = Path(temporary, path.name)
        file.touch()
        yield file
        paths.copy(file, path)


def _remove_remote(path: RemotePath, marker: str) -> None:
    """Removes a file, or a folder with its marker first."""
    if path.is_file():
        path.unlink(missing_ok=True)
        return
    if marker:
        (path / marker).unlink(missing_ok=True)
    paths.remove_tree(path)


def copy_tree(source: Path, target: RemotePath, marker: str) -> None:
    """Copies a local folder, and its marker last."""
    last = source / marker
    for each in sorted(source.rglob("*"), key=lambda each: (each == last, each)):
        copied = target / each.relative_to(source).as_posix()
        if each.is_dir():
            copied.mkdir(exist_ok=True)
        else:
            paths.copy(each, copied)


def _claim(path: RemotePath, marker: str) -> None:
    """Makes an empty folder with the file that says that it is not complete.

    Raises:
      UserError: there is a complete folder, or a folder with other content.
    """
    left = (path / UNFINISHED).exists() and not (path / marker).exists()
    if not left and ((path / marker).exists() or (path.is_dir() and any(path.iterdir()))):
        raise UserError(f"{path} is there already: name another folder or remove it first")
    path.mkdir(parents=True, exist_ok=True)
    (path / UNFINISHED).write_bytes(b"")
    if left:
        _empty(path)


def _empty(path: RemotePath) -> None:
    """Removes all that a folder contains but the file that says that it is not complete."""
    for each in path.iterdir():
        if each.name != UNFINISHED:
            _remove_remote(each, "")
