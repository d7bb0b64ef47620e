"""SHA-256 checksums in hexadecimal, and the check of a file against a recorded one."""

import hashlib
import mmap

from official.utils.errors import UserError
from official.utils.paths import AnyPath


def hash_bytes(data: bytes | mmap.mmap) -> str:
    """Returns the checksum of bytes."""
    return hashlib.sha256(data).hexdigest()


def hash_file(path: AnyPath) -> str:
    """Returns the checksum of a file, which is read in parts.

    Raises:
      OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def difference(path: AnyPath, recorded: str, actual: str) -> str | None:
    """Returns a sentence about a file whose checksum is not the recorded one, or None."""
    if actual == recorded:
        return None
    return f"{path} has changed since it was written: expected SHA-256 {recorded}, found {actual}"


def problem(path: AnyPath, recorded: str) -> str | None:
    """Returns a sentence about a file that is missing or has changed, or None.

    Args:
      path: the file.
      recorded: its checksum when it was written.
    """
    if not path.is_file():
        return f"{path} is missing"
    return difference(path, recorded, hash_file(path))


def check(path: AnyPath, recorded: str, advice: str) -> None:
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
