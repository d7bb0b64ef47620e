"""Reads the files of a byte-level BPE: `vocab.json` and `merges.txt`."""

import json

from official.utils.errors import UserError
from official.utils.paths import AnyPath

MERGES_FILE = "merges.txt"
VERSION = "#version: 0.2"


def read_pieces(path: AnyPath) -> list[str]:
    """Returns the pieces of a `vocab.json`, by id.

    Raises:
      UserError: the file is not an object of pieces and ids, or the ids are not 0, 1, 2, ...
    """
    wanted = 'an object is wanted, such as {"<s>": 0, "<pad>": 1, …}'
    try:
        pairs = json.loads(path.read_bytes(), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): {wanted}") from error
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise UserError(f"{path}: {wanted}")
    if not pairs:
        raise UserError(f"{path} is empty: {wanted}")
    pieces: dict[int, str] = {}
    for piece, i in pairs:
        if type(i) is not int or not 0 <= i < len(pairs):
            raise UserError(
                f"{path}: {piece!r} has id {i!r}, but {len(pairs):,} pieces have the whole numbers "
                f"from 0 to {len(pairs) - 1:,}"
            )
        if i in pieces:
            raise UserError(f"{path}: {pieces[i]!r} and {piece!r} have the same id, {i}")
        pieces[i] = piece
    if len(set(pieces.values())) < len(pieces):
        twice = next(p for p, _ in pairs if sum(p == other for other, _ in pairs) > 1)
        raise UserError(f"{path}: {twice!r} is listed twice")
    return [pieces[i] for i in range(len(pieces))]


def read_merges(path: AnyPath) -> list[tuple[str, str]]:
    """Returns the merges of a `merges.txt`, in the order in which pairs are joined.

    Raises:
      UserError: the file is not UTF-8, or a line has not two pieces.
    """
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: one merge a line is wanted, such as `Ġ t`"
        ) from error
    merges = []
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, blank, second = line.partition(" ")
        if not (first and second) or " " in second:
            raise UserError(
                f"{path}:{number}: {line!r}: two pieces with a blank between them are wanted, such "
                "as `Ġ t`"
            )
        merges.append((first, second))
    return merges
