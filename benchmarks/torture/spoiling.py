"""What a hostile folder is, and ways to spoil a file of one, whatever it holds."""

import dataclasses
import gzip
import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from official.utils import json_files

DEEP = 100_000
HUGE = 1 << 40
TRACE = "executed"  # a file that hostile code would write beside the folder
NESTED = '{"a": ' * DEEP


@dataclasses.dataclass(frozen=True)
class Case:
    """A hostile folder.

    Attributes:
      name: for the report.
      source: which of the materials is spoiled.
      how: what reads it, a key of `hostile.READERS`.
      spoil: spoils the copy.
      harmless: whether it may be read, as what is hostile in it is left alone.
    """

    name: str
    source: str
    how: str
    spoil: Callable[[Path], Any]
    harmless: bool = False


class Payload:
    """Unpickled, it writes a file beside the folder."""

    def __init__(self, folder: Path):
        self._command = f"touch {folder.parent / TRACE}"

    def __reduce__(self):
        return os.system, (self._command,)


def pickled(name: str) -> Callable[[Path], Any]:
    """A pickle that runs a command, under the name of another file."""
    return lambda folder: (folder / name).write_bytes(pickle.dumps(Payload(folder)))


def sparse(name: str) -> Callable[[Path], None]:
    """A file that says it is large; what it had stays at its beginning."""

    def spoil(folder: Path) -> None:
        with open(folder / name, "r+b") as stream:
            stream.truncate(HUGE)

    return spoil


def linked(name: str, target: str) -> Callable[[Path], None]:
    """A link in place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return spoil


def pipe(name: str) -> Callable[[Path], None]:
    """A pipe in place of a file, which nobody writes to."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return spoil


def directory(name: str) -> Callable[[Path], None]:
    """A folder in place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return spoil


def holds(name: str, text: str | bytes) -> Callable[[Path], None]:
    """A file with other content."""
    content = text.encode() if isinstance(text, str) else text
    return lambda folder: (folder / name).write_bytes(content)


def sha256(path: Path) -> str:
    """The checksum that a manifest has of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def change(path: Path, **values: Any) -> None:
    """Changes an object in a file, which has no checksum after that."""
    content = {**json.loads(path.read_text()), **values}
    content.pop(json_files.KEY, None)
    path.write_text(json.dumps(content))


def changed(name: str, **values: Any) -> Callable[[Path], None]:
    """An object in a file with other values."""
    return lambda folder: change(folder / name, **values)


def cut(path: Path, kept: int, parts: int) -> None:
    """Cuts a file: keeps `kept` of its `parts` equal parts."""
    os.truncate(path, path.stat().st_size * kept // parts)


def endless_line(path: Path, mib: int) -> None:
    """Writes a packed line of so many MiB, which takes a thousandth of them."""
    path.write_bytes(mib * gzip.compress(b"a" * (1 << 20)))  # members follow one another
