"""Reads small files into memory, and refuses files that are too large."""

import os

from official.utils import paths
from official.utils.errors import UserError

# The largest vocabularies and configs have a few MiB.
MAX_BYTES = 64 << 20


def check(path: str | os.PathLike, max_bytes: int | None = MAX_BYTES, advice: str = "") -> None:
    """Checks that a path is a regular file of a limited size.

    Args:
      path: the file, or a link to it.
      max_bytes: the largest size; None = no limit.
      advice: what the user can do, for the message.

    Raises:
      UserError: the file is missing, is a folder, a pipe or a device, or is too large.
    """
    path = paths.path(path)
    try:
        if not path.is_file():
            what = "is not a regular file" if path.exists() else "is missing"
            raise UserError(f"{path} {what}{': ' if advice else ''}{advice}")
        if max_bytes is not None and (size := path.stat().st_size) > max_bytes:
            raise UserError(f"{path} has {size:,} bytes, where at most {max_bytes:,} are expected")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def read_bytes(path: str | os.PathLike, max_bytes: int = MAX_BYTES, advice: str = "") -> bytes:
    """Reads a file of a limited size; arguments and errors are those of `check`."""
    check(path, max_bytes, advice)
    try:
        return paths.path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
