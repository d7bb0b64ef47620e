"""Folders with names that other users can guess: only this user's own are used.

Where others may write, they may have put a link or a folder of theirs under such a name. What is
read there would be theirs, and what is removed there too.
"""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from official.utils import atomic
from official.utils.errors import UserError


def make(path: Path) -> None:
    """Makes a folder and its parents, unless it is there and this user's.

    Raises:
      UserError: it is a link, or others may write beside it and it is theirs.
    """
    atomic.make_folder(path.parent)
    with atomic.disk_errors(path), contextlib.suppress(FileExistsError):
        os.mkdir(path)
        atomic.sync(path.parent)
    shared = path.parent.stat().st_mode & stat.S_IWOTH
    _check(path, owned=bool(shared), advice="remove it, or name another --output")


def temporary() -> Path:
    """Returns a folder in `TMPDIR` that is this user's alone, and the same at each call.

    Raises:
      UserError: what is there is a link, or others own it or may enter it.
    """
    path = Path(tempfile.gettempdir(), f"encoder-garden-{os.getuid()}")
    with atomic.disk_errors(path), contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    advice = "remove it, or set TMPDIR to a folder of your own"
    if _check(path, owned=True, advice=advice).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError(f"{path}: other users may enter it: {advice}")
    return path


def _check(path: Path, owned: bool, advice: str) -> os.stat_result:
    """Returns the status of a folder that must not be a link, nor another user's if `owned`."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "no folder"
        raise UserError(f"{path} is {what}, where unfinished work is kept: {advice}")
    if owned and found.st_uid != os.getuid():
        raise UserError(f"{path} belongs to another user: {advice}")
    return found
