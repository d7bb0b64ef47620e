"""Reads small files into memory, and refuses files that are too large."""

import os

from official.utils import paths
from official.utils.errors import UserError

# The largest vocabularies and configs have a few MiB.
MAX_BYTES = 64 << 20


def check(file: str | os.PathLike, max_bytes: int | None = MAX_BYTES, advice: str = "") -> None:
    """Checks that a path is a regular file of a limited size.

    Args:
      file: the file, or a link to it.
      max_bytes: the largest size; None = no limit.
      advice: what the user can do, for the message.

    Raises:
      UserError: the file is missing, is a folder, a pipe or a device, or is too large.
    """
    file = paths.path(file)
    try:
        if not file.is_file():
            what = "is not a regular file" if file.exists() else "is missing"
            raise UserError(f"{file} {what}{': ' if advice else ''}{advice}")
        if max_bytes is not None and (size := file.stat().st_size) > max_bytes:
            raise UserError(f"{file} has {size:,} bytes, where at most {max_bytes:,} are expected")
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error


def read_bytes(file: str | os.PathLike, max_bytes: int = MAX_BYTES, advice: str = "") -> bytes:
    """Reads a file of a limited size; arguments and errors are those of `check`."""
    check(file, max_bytes, advice)
    try:
        return paths.path(file).read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
