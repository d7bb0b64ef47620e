"""Learns the merges of byte-pair encoding from words.

`Pairs` counts the pairs of neighbouring pieces, and `grow` joins the most frequent pair until the
vocabulary is complete. Ties are decided by order, so the same words give the same merges.
"""

import collections
import heapq
from collections.abc import Callable, Iterable

from official.utils.errors import UserError

MIN_COUNT = 2


class Pairs:
    """The pairs of neighbouring pieces in words, with their counts."""

    def __init__(self, words: Iterable[tuple[list[int], int]]):
        """Counts the pairs of words, each given as the numbers of its pieces and its count."""
        self._words: list[list[int]] = []
        self._weights: list[int] = []
        self._counts: dict[tuple[int, int], int] = collections.defaultdict(int)
        self._where: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
        for spelled, count in words:
            if len(spelled) == 1:
                continue
            for pair in zip(spelled, spelled[1:], strict=False):
                self._counts[pair] += count
                self._where[pair].append(len(self._words))
            self._words.append(spelled)
            self._weights.append(count)
        self._heap = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

    def pop(self) -> tuple[int, int] | None:
        """Returns the most frequent pair, or None; of a tie, the pair of the oldest pieces."""
        while self._heap:
            negative, pair = heapq.heappop(self._heap)
            count = self._counts.get(pair, 0)
            if count == -negative and count >= MIN_COUNT:
                return pair
            if MIN_COUNT <= count < -negative:  # It has become rarer since it was pushed.
                heapq.heappush(self._heap, (-count, pair))
        return None

    def join(self, left: int, right: int, joined: int) -> None:
        """Replaces `left` followed by `right` by `joined`."""
        new = set()
        for index in dict.fromkeys(self._where.pop((left, right))):
            old = self._words[index]
            word = _joined(old, left, right, joined)
            if len(word) == len(old):
                continue
            self._words[index] = word
            weight = self._weights[index]
            for pair in zip(old, old[1:], strict=False):
                self._counts[pair] -= weight
            for pair in zip(word, word[1:], strict=False):
                self._counts[pair] += weight
                if joined in pair:
                    self._where[pair].append(index)
                    new.add(pair)
        self._counts.pop((left, right), None)
        for pair in new:
            heapq.heappush(self._heap, (-self._counts[pair], pair))


def grow(
    pieces: list[str],
    vocab_size: int,
    words: Iterable[tuple[list[int], int]],
    text: Callable[[str, str], str],
    report: Callable[[int], None],
) -> list[tuple[str, str]]:
    """Appends pieces to `pieces`, by joining the most frequent pairs, until it has `vocab_size`.

    Args:
      pieces: the first pieces, which the words consist of.
      vocab_size: the number of pieces at the end.
      words: the numbers of the pieces of each word, and its count.
      text: returns the text of two joined pieces.
      report: is called at intervals with the number of pieces so far.

    Returns:
      The pairs that were joined, in order.

    Raises:
      UserError: the words do not have enough pairs that occur at least `MIN_COUNT` times.
    """
    ids = {piece: i for i, piece in enumerate(pieces)}
    pairs = Pairs(words)
    merges = []
    while len(pieces) < vocab_size:
        pair = pairs.pop()
        if pair is None:
            raise UserError(
                f"--vocab_size={vocab_size} is more than the text supports: it has {len(pieces)} "
                f"pieces that occur {MIN_COUNT} times or more; take --vocab_size={len(pieces)} or "
                "more text"
            )
        left, right = pair
        merges.append((pieces[left], pieces[right]))
        joined = text(*merges[-1])
        # Different pairs may give the same text: "a" + "bc" and "ab" + "c".
        if joined not in ids:
            ids[joined] = len(pieces)
            pieces.append(joined)
            if len(pieces) % 1000 == 0:
                report(len(pieces))
        pairs.join(left, right, ids[joined])
    return merges


def _joined(word: list[int], left: int, right: int, joined: int) -> list[int]:
    result, i, last = [], 0, len(word) - 1
    while i <= last:
        if i < last and word[i] == left and word[i + 1] == right:
            result.append(joined)
            i += 2
        else:
            result.append(word[i])
            i += 1
    return result
