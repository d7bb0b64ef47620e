"""Reads and writes JSON objects with a checksum, and checks the types of their entries."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from official.utils import atomic, json_files
from official.utils.errors import UserError
from official.utils.paths import AnyPath


def write(path: AnyPath, record: Mapping[str, Any]) -> None:
    """Writes an object with its checksum.

    Raises:
      UserError: the file cannot be written.
    """
    with atomic.file(path) as stream:
        json_files.dump(record, stream)


def read(
    path: AnyPath, kinds: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Reads an object that `write` wrote. Objects of older versions have no checksum.

    Args:
      path: the file.
      kinds: the types of the required entries.
      defaults: the values of entries that older versions did not write.

    Raises:
      UserError: the file is missing or damaged.
    """
    if not path.exists():
        raise UserError(f"{path}: missing")
    try:
        record = json_files.checked(json_files.read(path), path)
    except UserError as error:
        raise UserError(f"{path}: damaged (it {str(error).removeprefix(f'{path} ')})") from None
    record = {**defaults, **record}
    for name, kind in kinds.items():
        if not isinstance(record.get(name), kind):
            raise UserError(f"{path}: damaged ({name}: {record.get(name)!r})")
    return record


def unreadable(path: AnyPath, error: Exception) -> UserError:
    """Returns an error that says why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path}: missing")
    reason = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]
    return UserError(f"{path}: damaged ({reason or type(error).__name__})")
