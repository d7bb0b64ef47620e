"""SHA-256 checksums in hexadecimal, and the check of a file against a recorded one."""

import hashlib
import mmap
import os

from official.utils import paths
from official.utils.errors import UserError


def hash_bytes(data: bytes | mmap.mmap) -> str:
    """Returns the checksum of bytes."""
    return hashlib.sha256(data).hexdigest()


def hash_file(path: str | os.PathLike) -> str:
    """Returns the checksum of a file, which is read in parts.

    Raises:
      OSError: the file cannot be read.
    """
    with paths.path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def difference(path: str | os.PathLike, recorded: str, actual: str) -> str | None:
    """Returns a sentence about a file whose checksum is not the recorded one, or None."""
    if actual == recorded:
        return None
    return f"{path} has changed since it was written: expected SHA-256 {recorded}, found {actual}"


def problem(path: str | os.PathLike, recorded: str) -> str | None:
    """Returns a sentence about a file that is missing or has changed, or None.

    Args:
      path: the file.
      recorded: its checksum when it was written.
    """
    if not paths.path(path).is_file():
        return f"{path} is missing"
    return difference(path, recorded, hash_file(path))


def check(path: str | os.PathLike, recorded: str, advice: str) -> None:
    """Checks a file against its recorded checksum.

    Args:
      path: the file.
      recorded: its checksum when it was written.
      advice: what the user can do, for the message.

    Raises:
      UserError: the file is missing or has changed.
    """
    if sentence := problem(path, recorded):
        raise UserError(f"{sentence}: {advice}")
