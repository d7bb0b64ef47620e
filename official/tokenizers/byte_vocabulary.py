"""The vocabulary of a byte-level BPE: its alphabet, its files and the order of its merges.

The files, `vocab.json` and `merges.txt`, are text, so each byte is written as a printable character
of GPT-2's alphabet (the blank as "Ġ"). A merge joins two pieces; `reachable` says which merges
occur in texts.
"""

import json
from collections.abc import Mapping, Sequence

from official.utils.errors import UserError
from official.utils.paths import AnyPath

MERGES_FILE = "merges.txt"
VERSION = "#version: 0.2"


def _alphabet() -> dict[int, str]:
    """Returns {byte: character} in the order of GPT-2's vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {byte: chr(byte) for byte in printable}
    return table | {byte: chr(256 + i) for i, byte in enumerate(others)}


ALPHABET = _alphabet()
_BYTES = {character: byte for byte, character in ALPHABET.items()}


def spelling(piece: str) -> bytes:
    """Returns the bytes that a piece stands for."""
    if all(character in _BYTES for character in piece):
        return bytes(_BYTES[character] for character in piece)
    return piece.encode()  # an added token with characters outside the alphabet


def read_pieces(path: AnyPath) -> list[str]:
    """Returns the pieces of a `vocab.json`, by id.

    Raises:
      UserError: the file is not an object of pieces and ids, or the ids are not 0, 1, 2, ...
    """
    wanted = 'expected an object, such as {"<s>": 0, "<pad>": 1, …}'
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
      UserError: the file is not UTF-8, or a line does not have two pieces.
    """
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: expected one merge on each line, such as `Ġ t`"
        ) from error
    merges = []
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, blank, second = line.partition(" ")
        if not (first and second) or " " in second:
            raise UserError(
                f"{path}:{number}: {line!r}: expected two pieces with a blank between them, "
                "such as `Ġ t`"
            )
        merges.append((first, second))
    return merges


def check_merges(ids: Mapping[str, int], merges: Sequence[tuple[str, str]], source: str) -> None:
    """Checks that each merge joins bytes or results of earlier merges to a piece of the vocabulary.

    Args:
      ids: {piece: id}.
      merges: pairs of pieces, in the order in which they are joined.
      source: the name of the vocabulary in messages.

    Raises:
      UserError: a merge is listed twice or before the merges that make its parts, or its result is
        not in the vocabulary.
    """
    known = set(ALPHABET.values())
    seen = set()
    for number, pair in enumerate(merges, 1):
        where = f"{source}: merge {number} ({' '.join(pair)})"
        for part in pair:
            if part not in known:
                raise UserError(
                    f"{where}: {part!r} is neither a byte nor what an earlier merge makes: is "
                    "merges.txt complete, and in its original order?"
                )
        if pair in seen:
            raise UserError(f"{where}: is listed twice")
        if "".join(pair) not in ids:
            raise UserError(
                f"{where}: makes {''.join(pair)!r}, which the vocabulary lacks: are vocab.json "
                "and merges.txt of the same model?"
            )
        seen.add(pair)
        known.add("".join(pair))


def reachable(merges: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the results of the merges that can occur in a text, in the order of the merges.

    Pairs are joined one at a time: the pair that comes first in the merges and, if it occurs
    several times, the leftmost. A merge occurs in some text if its result becomes a single piece
    when it is split alone. The pieces of a string depend only on its characters, as long as no pair
    across its ends is joined. So no other merge makes the same piece.

    A part may be the result of a later merge: files that were converted from tiktoken's list all
    pairs that spell a piece at the position of the piece. Such a pair is joined as soon as its
    parts exist.

    Args:
      merges: pairs of pieces, each a character or the result of a merge.
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    # {result: (rank, left part, right part, the highest rank of the merges that make it)}
    results: dict[str, tuple[int, str, str, int]] = {}
    character = (-1, "", "", -1)

    def joined_across(left: str, right: str) -> bool:
        """Returns whether a merge joins the end of `left` to the start of `right` before both meet.

        The function goes backward from `left` and `right` and in each step undoes the later of the
        two merges that made them. The new pair at the border must not rank before the undone merge,
        nor before the merges, in the other part of the undone piece, that were done while the pair
        existed.
        """
        while left in results or right in results:
            of_left, of_right = results.get(left, character), results.get(right, character)
            if of_left[3] > of_right[3]:
                rank, far, left, _ = of_left
                last = results.get(far, character)[3]
                meanwhile = last > max(results.get(left, character)[3], of_right[3])
                limit = max(rank, last) if meanwhile else rank
            else:
                # Of two equal merges, the left one is done first.
                rank, right, far, _ = of_right
                last = results.get(far, character)[3]
                meanwhile = last >= max(results.get(right, character)[3], of_left[3])
                limit = (max(rank, last) if meanwhile else rank) + 1
            if ranks.get((left, right), limit) < limit:
                return True
        return False

    # {part: indices of merges that need the part and precede the merge that makes it}
    waiting: dict[str, list[int]] = {}
    for number in range(len(merges)):
        found = [number]
        while found:
            rank = found.pop()
            left, right = merges[rank]
            if ranks[left, right] != rank:
                continue  # of equal pairs, the last one counts
            lacking = [part for part in (left, right) if len(part) > 1 and part not in results]
            if lacking:
                waiting.setdefault(lacking[0], []).append(rank)
            elif left + right not in results and not joined_across(left, right):
                last = max(results.get(part, character)[3] for part in (left, right))
                results[left + right] = rank, left, right, max(rank, last)
                found += waiting.pop(left + right, ())
    return sorted(results, key=lambda result: results[result][0])
