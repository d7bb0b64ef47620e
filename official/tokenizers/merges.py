"""The merges of a byte-level BPE: their order, and which of them occur in texts."""

from collections.abc import Mapping, Sequence

from official.tokenizers.byte_alphabet import ALPHABET
from official.utils.errors import UserError


def check(ids: Mapping[str, int], merges: Sequence[tuple[str, str]], source: str) -> None:
    """Checks that each merge joins earlier results and makes a piece of the vocabulary.

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
                    f"{where}: {part!r} is neither a byte nor what an earlier merge makes: are "
                    "the lines of merges.txt all there, and in their order?"
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


def reachable(merges: Sequence[tuple[str, str]], source: str = "the vocabulary") -> list[str]:
    """Returns the results of the merges that can occur in a text, in the order of the merges.

    A merge occurs in some text if both parts are results of earlier merges, and if its result
    becomes a single piece when it is split alone. The pieces of a string depend on its characters
    only, as long as no pair across its ends is joined.

    Args:
      merges: pairs of pieces, each part a character or the result of an earlier merge.
      source: the name of the vocabulary in messages.

    Raises:
      UserError: a part of a merge is made by a later merge only, so that the order of the merges is
        not the order in which pairs are joined.
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    results: dict[str, tuple[int, str, str]] = {}  # {result: (rank, left part, right part)}

    def joined_across(left: str, right: str, limit: int) -> bool:
        """Returns whether a merge before `limit` joins the end of `left` to the start of `right`.

        The function goes back from the merge `limit`. It undoes the later of the two merges that
        made `left` and `right`. The pair at the border must then not be a merge before the undone
        one. Of two equal merges the left one is done first.
        """
        while left in results or right in results:
            left_rank = results[left][0] if left in results else -1
            right_rank = results[right][0] if right in results else -1
            if left_rank > right_rank:
                limit, left = left_rank, results[left][2]
            else:
                limit, right = right_rank + 1, results[right][1]
            if ranks.get((left, right), limit) < limit:
                return True
        return False

    too_early = {}  # {part: rank of the first merge that needs it and comes too early}
    for rank, pair in enumerate(merges):
        result = "".join(pair)
        missing = [part for part in pair if len(part) > 1 and part not in results]
        too_early |= {part: rank for part in missing if part not in too_early}
        if not missing and result not in results and not joined_across(*pair, rank):
            if result in too_early:
                first = too_early[result]
                raise UserError(
                    f"{source}: merge {first + 1} ({' '.join(merges[first])}) "
                    f"joins {result!r}, which no merge before merge {rank + 1} "
                    f"({' '.join(pair)}) makes of any text: are the lines in their order?"
                )
            results[result] = rank, *pair
    return list(results)
