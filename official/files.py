"""Reads files that are held in memory whole, and no larger than such files are."""

import os
from pathlib import Path

from official.errors import UserError

# The largest vocabularies and configs in use have a few MiB.
MOST_BYTES = 64 << 20


def read_bytes(path: str | os.PathLike, most: int = MOST_BYTES, advice: str = "") -> bytes:
    """Reads a file of a bounded size.

    Args:
      path: of a regular file, or of a link to one.
      most: the most bytes that it may have.
      advice: what the message says beside what is wrong.

    Raises:
      UserError: there is no such file, it is a folder, a pipe or a device, it cannot be opened, or
        it is larger.
    """
    path = Path(path)
    try:
        found = path.is_file()
        if not found:
            what = "is missing" if not path.exists() else "is not a regular file"
            raise UserError(f"{path} {what}{': ' if advice else ''}{advice}")
        if (size := path.stat().st_size) > most:
            raise UserError(f"{path} has {size:,} bytes, where at most {most:,} are expected")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
