"""Reads files with one text per line."""

import contextlib
import gzip
import os
from collections.abc import Iterator
from typing import BinaryIO

from official.utils import paths
from official.utils.errors import UserError


def read(path: str | os.PathLike, what: str) -> list[str]:
    """Returns the lines of a file, without line ends.

    Args:
      path: a file of UTF-8 text.
      what: what the lines are, for messages: `prompts`, `texts`.

    Raises:
      UserError: the file is missing, not UTF-8 or empty.
    """
    try:
        lines = paths.path(path).read_bytes().decode().split("\n")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file of {what}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error})") from None
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path} is empty: {what} are wanted, one a line")
    return [line.removesuffix("\r") for line in lines]


@contextlib.contextmanager
def opened(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Yields the bytes of a file, unpacked if its name ends in `.gz`."""
    path = paths.path(path)
    with path.open("rb") as stream:
        if path.suffix == ".gz":
            with gzip.open(stream) as unpacked:
                yield unpacked
        else:
            yield stream
