"""Reads and writes JSON objects that contain a checksum of themselves.

An object that this program writes for itself has the SHA-256 of its content under `KEY`, so a
flipped bit or an edited entry is detected when the object is read. A file from which somebody has
removed the checksum, to edit it, is read without one. `write_record` and `read_record` handle whole
files, in which every entry has a fixed type.
"""

import difflib
import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import IO, Any

from official.utils import atomic, checksums, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

KEY = "checksum"


def read(path: str | os.PathLike, advice: str = "", kind: type = dict) -> Any:
    """Reads a JSON object, or a list.

    Args:
      path: the file.
      advice: what the user can do, for the message.
      kind: dict for an object, or list.

    Raises:
      UserError: the file cannot be read, or is not of this kind.
    """
    data = paths.read_bytes(path, advice=advice)
    try:
        value = json.loads(data.decode("utf-8"))
    except RecursionError:
        reason = "is nested too deep"
    except ValueError as error:
        reason = f"is not JSON: {error}"
    else:
        if isinstance(value, kind):
            return value
        wanted = "an object" if kind is dict else f"a {kind.__name__}"
        reason = f"holds a {type(value).__name__}, expected {wanted}"
    raise UserError(f"{path} {reason}{': ' if advice else ''}{advice}")


def dump(values: Mapping[str, Any], stream: IO[str]) -> None:
    """Writes an object with its checksum."""
    json.dump({**values, KEY: _digest(values)}, stream, indent=1, ensure_ascii=False)
    stream.write("\n")


def optional(path: AnyPath) -> dict[str, Any]:
    """Reads an object and checks its checksum; empty if there is no such file.

    Raises:
      UserError: the file cannot be read, or has changed.
    """
    return checked(read(path), path) if path.exists() else {}


def checked(values: Mapping[str, Any], path: str | os.PathLike) -> dict[str, Any]:
    """Checks the checksum of an object, and returns the object without it.

    Args:
      values: the result of `read`.
      path: the file, for messages.

    Raises:
      UserError: the content is not what `dump` wrote.
    """
    content = {name: value for name, value in values.items() if name != KEY}
    if KEY not in values:
        if like := difflib.get_close_matches(KEY, content, n=1, cutoff=0.8):
            raise UserError(f"{path} is damaged: it has {like[0]!r} in place of {KEY!r}")
    elif values[KEY] != _digest(content):
        raise UserError(
            f"{path} is not as it was written: its {KEY} is not that of its content (if it was "
            f"changed on purpose, remove {KEY!r} from it)"
        )
    return content


def write_record(path: AnyPath, record: Mapping[str, Any]) -> None:
    """Writes an object with its checksum.

    Raises:
      UserError: the file cannot be written.
    """
    with atomic.file(path) as stream:
        dump(record, stream)


def read_record(
    path: AnyPath, kinds: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Reads an object that `write_record` wrote.

    Args:
      path: the file.
      kinds: the types of the required entries.
      defaults: the values of entries that may be missing.

    Raises:
      UserError: the file is missing or damaged.
    """
    if not path.exists():
        raise UserError(f"{path}: missing")
    try:
        record = checked(read(path), path)
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


def _digest(values: Mapping[str, Any]) -> str:
    # The values as JSON returns them: tuples become lists, and keys become text.
    plain = json.loads(json.dumps(values))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return checksums.hash_bytes(text.encode())
