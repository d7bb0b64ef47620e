"""Files with a text on each line."""

import os
from pathlib import Path

from official.utils.errors import UserError


def read(path: str | os.PathLike, what: str) -> list[str]:
    """The lines of a file, without their ends.

    Args:
      path: of UTF-8 text.
      what: the things on the lines, as messages name them: `prompts`, `texts`.

    Raises:
      UserError: there is no such file, it is not UTF-8 or it is empty.
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
