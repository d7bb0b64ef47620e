"""Reads files that are held in memory whole, and no larger than such files are."""

import os
from pathlib import Path

from official.utils.errors import UserError

# The largest vocabularies and configs in use have a few MiB.
MAX_BYTES = 64 << 20


def check(path: str | os.PathLike, most: int | None = MAX_BYTES, advice: str = "") -> None:
    """Refuses what is no regular file of a bounded size.

    Args:
      path: of the file, or of a link to it.
      most: the most bytes that it may have; None = any number.
      advice: what the message says beside what is wrong.

    Raises:
      UserError: there is no such file, it is a folder, a pipe or a device, or it is larger.
    """
    path = Path(path)
    try:
        if not path.is_file():
            what = "is not a regular file" if path.exists() else "is missing"
            raise UserError(f"{path} {what}{': ' if advice else ''}{advice}")
        if most is not None and (size := path.stat().st_size) > most:
            raise UserError(f"{path} has {size:,} bytes, where at most {most:,} are expected")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def read_bytes(path: str | os.PathLike, most: int = MAX_BYTES, advice: str = "") -> bytes:
    """Reads a file of a bounded size; arguments and errors are those of `check`."""
    check(path, most, advice)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
