"""JSON objects on disk with a checksum of what they say, so that damage is noticed."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from official import atomic
from official.errors import UserError

_CHECKSUM = "checksum"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Writes an object with its checksum.

    Raises:
      UserError: it cannot be written.
    """
    with atomic.file(path) as stream:
        json.dump({**record, _CHECKSUM: _checksum(record)}, stream, indent=1)
        stream.write("\n")


def read(
    path: Path, kinds: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Reads what `write` wrote; objects without a checksum are of older versions.

    Args:
      path: of the file.
      kinds: the types of the entries that are needed.
      defaults: for entries that older versions did not write.

    Raises:
      UserError: the file is missing or damaged.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, error) from None
    if not isinstance(record, dict):
        raise UserError(f"{path}: damaged (it is no JSON object)")
    checksum = record.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(record):
        raise UserError(f"{path}: damaged (its checksum is not that of what it says)")
    record = {**defaults, **record}
    for name, kind in kinds.items():
        if not isinstance(record.get(name), kind):
            raise UserError(f"{path}: damaged ({name}: {record.get(name)!r})")
    return record


def unreadable(path: Path, error: Exception) -> UserError:
    """Says in words why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path}: missing")
    reason = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]
    return UserError(f"{path}: damaged ({reason or type(error).__name__})")


def _checksum(record: Mapping[str, Any]) -> str:
    """SHA-256 of an object, however it is laid out."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
