"""The pairs of neighbouring pieces in words: what byte-pair encoding joins next.

Everything that ties is decided by order, so that the same words give the same pairs.
"""

import collections
import heapq
from collections.abc import Iterable

MIN_COUNT = 2


class Pairs:
    """The pairs of neighbouring pieces in the words, with their counts, most frequent first."""

    def __init__(self, words: Iterable[tuple[list[int], int]]):
        """Takes words as their pieces, in the order of their making, and the words' counts."""
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
        """Returns the most frequent pair, of several the one made of the oldest pieces."""
        while self._heap:
            negative, pair = heapq.heappop(self._heap)
            count = self._counts.get(pair, 0)
            if count == -negative and count >= MIN_COUNT:
                return pair
            if MIN_COUNT <= count < -negative:  # it has become rarer since it was put in
                heapq.heappush(self._heap, (-count, pair))
        return None

    def join(self, left: int, right: int, joined: int) -> None:
        """Puts `joined` where `left` stands before `right`."""
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
