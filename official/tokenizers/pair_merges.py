"""The merges of a byte-level BPE, for many short words at once.

In each round, every word joins one pair: the one that comes first in the merges, and of equal ones
the left one. A word without a pair is done. A word of n bytes has at most n - 1 rounds, so this is
for words of some tens of bytes.

Shapes: K words, S symbols of all words that are not done.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from official.tokenizers.byte_vocabulary import ALPHABET
from official.tokenizers.integer_table import IntegerTable

_BITS = 32  # of an id, a rank and a place
_NO_PAIR = (1 << _BITS - 1) - 1  # a rank after all others


class PairMerges:
    """Joins the bytes of words to pieces."""

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]):
        """Makes the table of the pairs.

        Args:
          ids: {piece: id}.
          merges: pairs of pieces, in the order in which they are joined.
        """
        self._bytes = np.array([ids[ALPHABET[byte]] for byte in range(256)], np.int64)
        # Ranks count from 1.
        self._results = np.array([0, *(ids[a + b] for a, b in merges)], np.int64)
        pairs = np.array([(ids[a], ids[b]) for a, b in merges], np.int64).reshape(-1, 2)
        self._ranks = IntegerTable(1, len(merges))
        self._ranks.add(_keys(pairs[:, 0], pairs[:, 1]))

    def join(self, words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of K words, one after the other, int32; and their row splits, [K + 1]."""
        symbols = self._bytes[np.frombuffer(b"".join(words), np.uint8)]
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        rows = np.repeat(np.arange(len(words)), lengths)
        ranks = np.zeros(len(symbols), np.int64)  # of a symbol and the next one
        new = np.arange(len(symbols))  # where there is another pair than in the round before
        done = [(symbols[:0], rows[:0])]
        while len(symbols):
            ranks[new] = _NO_PAIR
            new = new[new < len(symbols) - 1]
            new = new[rows[new] == rows[new + 1]]
            found = self._ranks.find(_keys(symbols[new], symbols[new + 1]))
            ranks[new] = np.where(found, found, _NO_PAIR)
            begins = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
            first = np.minimum.reduceat(ranks << _BITS | np.arange(len(ranks)), begins)
            goes_on = first < _NO_PAIR << _BITS
            joined = first[goes_on] & (1 << _BITS) - 1
            symbols[joined] = self._results[ranks[joined]]
            changed = np.zeros(len(symbols), bool)
            changed[joined] = changed[np.maximum(joined - 1, 0)] = True
            kept = np.repeat(goes_on, np.diff(begins, append=len(rows)))
            finished = np.flatnonzero(~kept)
            done.append((symbols[finished], rows[finished]))
            kept[joined + 1] = False
            symbols, rows, ranks, changed = (x[kept] for x in (symbols, rows, ranks, changed))
            new = np.flatnonzero(changed)
        ids, numbers = map(np.concatenate, zip(*done, strict=True))
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=len(words))
        return ids[order].astype(np.int32), np.cumsum(np.append(0, counts))


def _keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the rows of pairs in the table, uint64 [..., 1]."""
    return (left << _BITS | right).astype(np.uint64)[:, None]
