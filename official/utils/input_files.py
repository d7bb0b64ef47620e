"""Checks that input files do not change while they are read.

Work is planned by the sizes of its files, and some files are read more than once. If a file were
changed meanwhile, texts would be lost or repeated. So the size and the time of each file are
recorded before (`seen`, `Inputs`), and compared after each read, and once more before the file that
marks the output as complete is written.

A file is the same if its size and the time of its last change are. Pipes and devices have neither,
so they are not compared.
"""

import contextlib
import datetime
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, NamedTuple

from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath, RemotePath

_AT_ONCE = 16  # files of a remote file system that are asked for at the same time


class InputFile(NamedTuple):
    """The state of a file at some time.

    Attributes:
      path: the file.
      size: its bytes.
      time: when it was last changed, in seconds since 1970; None = a pipe or a device, or unknown.
    """

    path: AnyPath
    size: int
    time: float | None = None

    def change(self) -> str:
        """Returns what has changed since, in words; "" = nothing."""
        if self.time is None:
            return ""
        try:
            now = seen(self.path)
        except FileNotFoundError:
            return f"{self.path} was removed while it was read"
        if now.size != self.size:
            sizes = f"it had {self.size:,} bytes, and has {now.size:,} now"
            return f"{self.path} has changed while it was read: {sizes}"
        if now.time != self.time:
            times = f"it was written at {_shown(self.time)}, and again at {_shown(now.time)}"
            return f"{self.path} has changed while it was read: {times}"
        return ""

    def check(self) -> None:
        """Raises UserError if the file has changed."""
        _refuse(self.change())

    def check_end(self, stream: IO[bytes]) -> None:
        """Checks that the file is as it was, and that a stream of it ends where the file does.

        Args:
          stream: the file, which is read to its end or only in part.

        Raises:
          UserError: the file has changed, or the stream ends before it.
        """
        self.check()
        if self.time is None or stream.read(1):
            return
        if (count := stream.tell()) < self.size:
            raise UserError(
                f"{self.path}: only {count:,} of {self.size:,} bytes can be read: check the disk "
                "or the network, or make the file again"
            )


class Inputs:
    """The states of files and folders at the time of creation."""

    def __init__(self, places: Iterable[str | os.PathLike]):
        """Records the files that exist; whoever reads a missing one reports it."""
        self._places = [paths.path(place) for place in places]
        self.files = _all(self._places)

    def change(self) -> str:
        """Returns what has changed since, in words; "" = nothing."""
        known = {file.path for file in self.files}
        new = (file.path for file in _all(self._places) if file.path not in known)
        added = next((f"{path} was added while the input was read" for path in new), "")
        return _first_change(self.files) or added

    def check(self) -> None:
        """Raises UserError if a file has changed, is gone or is new."""
        _refuse(self.change())


@contextlib.contextmanager
def explained(check: Callable[[], None]) -> Iterator[None]:
    """Checks the input after an error in the block, because a changed input may be the reason.

    Args:
      check: raises UserError if an input has changed.
    """
    try:
        yield
    except Exception:
        check()
        raise


@contextlib.contextmanager
def opened(file: AnyPath | InputFile) -> Iterator[io.BufferedReader]:
    """Yields the bytes of a file. The end of the block checks that it has not changed.

    Args:
      file: the file, as it is now, or as it was when the work was planned.

    Raises:
      UserError: there is no such file, it is a folder, it cannot be read, or has changed.
    """
    path, planned = (file.path, file) if isinstance(file, InputFile) else (file, None)
    try:
        noted = planned or seen(path)
        with path.open("rb") as stream:
            with explained(noted.check):
                yield stream
            noted.check_end(stream)
    except FileNotFoundError as error:
        if planned is not None:
            planned.check()
        raise UserError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder, not a file") from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}: check the disk, the network, and "
            "what you may read"
        ) from error


def read(path: AnyPath) -> bytes:
    """Returns the content of a file.

    Raises:
      UserError: see `opened`.
    """
    with opened(path) as stream:
        return stream.read()


def seen(path: AnyPath) -> InputFile:
    """Returns a file as it is now.

    Raises:
      FileNotFoundError: there is no such file.
    """
    status = path.stat()
    if isinstance(status, os.stat_result) and not stat.S_ISREG(status.st_mode):
        return InputFile(path, status.st_size)
    return InputFile(path, status.st_size, status.st_mtime)


def check(files: Sequence[InputFile]) -> None:
    """Raises UserError if one of the files has changed."""
    _refuse(_first_change(files))


def _first_change(files: Sequence[InputFile]) -> str:
    changes = _each(InputFile.change, files, [file.path for file in files])
    return next(filter(None, changes), "")


def _refuse(change: str) -> None:
    if change:
        raise UserError(
            f"{change}: leave the input as it is until the command ends, or name a copy of it, "
            "and give the command again"
        )


def _all(places: Sequence[AnyPath]) -> list[InputFile]:
    """Returns the files that are there, and those below the folders, each once."""
    found: list[AnyPath] = []
    for place in places:
        found += sorted(place.rglob("*"), key=str) if place.is_dir() else [place]
    files = list(dict.fromkeys(found))
    return [file for file in _each(_seen, files, files) if file is not None]


def _seen(path: AnyPath) -> InputFile | None:
    """Returns a file as it is now; None if it is missing, or a folder."""
    try:
        return None if path.is_dir() else seen(path)
    except FileNotFoundError:
        return None


def _each(function: Callable, items: Sequence, places: Sequence[AnyPath]) -> list:
    """Returns the results of a function; several are computed at once where it waits for a network.

    Args:
      function: the function.
      items: its arguments.
      places: the file of each.
    """
    if not any(isinstance(place, RemotePath) for place in places):
        return list(map(function, items))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, items))


def _shown(seconds: float | None) -> str:
    """Returns a time for a message."""
    if seconds is None:
        return "no time"
    moment = datetime.datetime.fromtimestamp(seconds)
    return moment.isoformat(sep=" ", timespec="milliseconds")
