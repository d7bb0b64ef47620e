"""Vocabulary files with one piece per line."""

from collections.abc import Sequence

from official.utils import files
from official.utils.errors import UserError
from official.utils.paths import AnyPath


def read(path: AnyPath) -> list[str]:
    """Reads a vocabulary with one piece per line.

    Raises:
      UserError: the file is missing, or a line is not UTF-8.
    """
    lines = files.read_bytes(path).split(b"\n")
    if not lines[-1]:
        lines.pop()
    pieces = []
    for number, line in enumerate(lines, 1):
        try:
            pieces.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{number}: not UTF-8: is this a vocabulary, one piece a line?"
            ) from error
    return pieces


def file(pieces: Sequence[str]) -> bytes:
    """Returns the contents of the file that `read` reads."""
    return "".join(f"{piece}\n" for piece in pieces).encode()


def check(pieces: Sequence[str], source: str) -> None:
    """Checks that there are pieces, and that none is empty or listed twice.

    Raises:
      UserError: there are none, or one is empty or listed twice; it names `source` and the line.
    """
    if not any(pieces):
        raise UserError(f"{source} is empty: a vocabulary has one piece a line")
    lines: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if not piece:
            raise UserError(f"{source}, line {number}: empty, where a piece is wanted")
        if piece in lines:
            raise UserError(
                f"{source}: {piece!r} is in line {lines[piece]} and again in line {number}: "
                "a piece may have one id only; rename the one that is not used"
            )
        lines[piece] = number
