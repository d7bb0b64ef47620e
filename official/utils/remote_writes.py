"""Writes remote files and folders; `official.utils.atomic` writes local ones and calls this module.

A remote file system need not rename folders, so a folder is written in place. It is complete when
it has its marker: a file, such as `manifest.json`, that is written last and that readers need.
Until then it has the file `.unfinished`. A folder with this file and without the marker was left by
a killed process, and is written anew. Other folders are never replaced.

There are no locks, so one process at a time may write a folder.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from official.utils import gfile, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath, RemotePath

UNFINISHED = ".unfinished"
LEFT_OVER = re.compile(re.escape(gfile.PREFIX) + r".+-[a-z0-9_]{8}")  # as `tempfile` ends its names


@contextlib.contextmanager
def folder(path: RemotePath, marker: str, in_place: bool) -> Iterator[AnyPath]:
    """Yields an empty folder; see `official.utils.atomic.folder`."""
    if not marker:
        raise ValueError(f"{path}: a remote folder needs a marker")
    _claim(path, marker)
    try:
        if in_place:
            yield path
            if not (path / marker).exists():
                raise ValueError(f"{path}: its marker {marker} was not written")
        else:
            with tempfile.TemporaryDirectory(prefix=gfile.PREFIX) as temporary:
                yield Path(temporary)
                copy_tree(Path(temporary), path, marker)
    except BaseException:
        with contextlib.suppress(Exception):  # the next run removes what is left
            (path / marker).unlink(missing_ok=True)
            _empty(path)
            (path / UNFINISHED).unlink(missing_ok=True)
        raise
    (path / UNFINISHED).unlink(missing_ok=True)


def check_complete(path: RemotePath, marker: str) -> None:
    """Raises UserError if a killed process left a part of a folder."""
    if (path / UNFINISHED).exists() and not (path / marker).exists():
        raise UserError(
            f"{path} is not complete: {marker}, which is written last, is missing. The command "
            "that makes it was stopped, or still runs: give it again"
        )


@contextlib.contextmanager
def replacing(path: RemotePath) -> Iterator[Path]:
    """Yields a local file that becomes a remote one when the block ends without an error."""
    with tempfile.TemporaryDirectory(prefix=gfile.PREFIX) as temporary:
        file = Path(temporary, path.name)
        file.touch()
        yield file
        paths.copy(file, path)


def append(path: RemotePath, data: bytes) -> None:
    """Replaces a file by one with more at its end; the file may be missing."""
    try:
        data = path.read_bytes() + data
    except FileNotFoundError:
        pass
    path.write_bytes(data)


def remove(path: RemotePath, marker: str) -> None:
    """Removes a file, or a folder with its marker first."""
    if path.is_file():
        path.unlink(missing_ok=True)
        return
    if marker:
        (path / marker).unlink(missing_ok=True)
    paths.remove_tree(path)


def remove_leftovers(parent: RemotePath) -> None:
    """Removes files that killed processes left under temporary names."""
    for path in parent.glob(f"{gfile.PREFIX}*"):
        if LEFT_OVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


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
      UserError: there is a complete folder, or one of something else.
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
            remove(each, "")
