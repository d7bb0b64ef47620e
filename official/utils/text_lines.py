"""Reads files with one text per line."""

import os
from pathlib import Path

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
        lines = Path(path).read_bytes().decode().split("\n")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file of {what}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error})") from None
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path} is empty: {what} are wanted, one a line")
    return [line.removesuffix("\r") for line in lines]
