"""A vectorized implementation of byte-level BPE merges, for many short words.

In each round, one pair is joined in every word: the pair that comes first in the merges and, if it
occurs several times, the leftmost. A word of n bytes takes up to n - 1 rounds, so words should be
short (tens of bytes).

The symbols of a word are a column of a matrix, each in the row of its first byte, and the last row
has none. An index into the flat matrix is `row << bits | word`: the number of columns is a power of
two. The pair to join in each word is the minimum rank of its column, and one pass over the rows
finds all minima.

Shapes: K words, L bytes of the longest word, P pairs.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from official.tokenizers.byte_vocabulary import ALPHABET
from official.tokenizers.integer_table import IntegerTable

LONGEST = 32  # bytes of a word
_BLOCK = 1 << 14  # words that are processed at once
_BITS = 32  # for an id
_ROW_BITS = 6  # for the row of a symbol
_NO_PAIR = np.int32((1 << 31) - 1)  # a rank that is higher than all others
_NO_SYMBOL = -1


class PairMerges:
    """Joins the bytes of words into pieces."""

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]):
        """Makes the table of the pairs.

        Args:
          ids: {piece: id}.
          merges: pairs of pieces, in the order in which they are joined.
        """
        self._bytes = np.array([ids[ALPHABET[byte]] for byte in range(256)], np.int32)
        # Ranks count from 1.
        self._results = np.array([0, *(ids[a + b] for a, b in merges)], np.int32)
        pairs = np.array([(ids[a], ids[b]) for a, b in merges], np.int64).reshape(-1, 2)
        # With many slots, the first probe rejects most pairs that are not in the table.
        self._table = IntegerTable(1, len(merges), places=8)
        self._table.add(_keys(pairs[:, 0], pairs[:, 1]))
        symbols = self._bytes.astype(np.int64)
        left, right = np.repeat(symbols, 256), np.tile(symbols, 256)
        self._first_ranks = self._ranks(left, right)  # [256 * 256]

    def join(self, words: bytes, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of words. It is fastest if long words come first.

        Args:
          words: the concatenated bytes of K words.
          lengths: the number of bytes of each word, int64 [K], from 1 to `LONGEST`.

        Returns:
          The concatenated ids of the words, int32; and their row splits, [K + 1].
        """
        ids, counts = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        end = 0
        for first in range(0, len(lengths), _BLOCK):
            some = lengths[first : first + _BLOCK]
            start, end = end, end + int(some.sum())
            symbols = self._merged(words[start:end], some)
            kept = symbols != _NO_SYMBOL
            ids.append(symbols[kept])
            counts.append(kept.sum(axis=1))
        return np.concatenate(ids), np.cumsum(np.concatenate(counts))

    def _merged(self, words: bytes, lengths: np.ndarray) -> np.ndarray:
        """Returns the symbols of words after the last round, int32 [K, L]."""
        rows = int(lengths.max()) + 1  # the last row has no symbols
        bits = int(len(lengths) - 1).bit_length()
        symbols = np.full((rows, 1 << bits), _NO_SYMBOL, np.int32)
        # For each symbol, the rank of its pair with the next symbol, and the row of the symbol.
        pairs = np.full((rows, 1 << bits), _NO_PAIR, np.int32)
        self._fill(words, lengths, symbols, pairs, bits)
        self._merge(symbols, pairs, bits)
        return symbols[:-1, : len(lengths)].T

    def _fill(
        self,
        words: bytes,
        lengths: np.ndarray,
        symbols: np.ndarray,
        pairs: np.ndarray,
        bits: int,
    ) -> None:
        """Writes the bytes and their pairs into the columns of two matrices [L + 1, 2**bits]."""
        values = np.frombuffer(words, np.uint8)
        ends = np.cumsum(lengths)
        # The index of each byte in the matrices.
        steps = np.full(len(values), 1 << bits)
        steps[0] = 0
        steps[ends[:-1]] = 1 - (lengths[:-1] - 1 << bits)
        places = np.cumsum(steps)
        symbols.ravel()[places] = np.take(self._bytes, values)
        ranks = np.take(self._first_ranks, values[:-1].astype(np.int64) << 8 | values[1:])
        ranks[ends[:-1] - 1] = _NO_PAIR  # the neighbors are in two words
        pairs.ravel()[places[:-1]] = ranks | places[:-1] >> bits

    def _merge(self, symbols: np.ndarray, pairs: np.ndarray, bits: int) -> None:
        """Joins pairs in two matrices [L + 1, 2**bits] until no pair is left."""
        # The rows of the symbols after and before each one.
        rows = np.arange(len(symbols), dtype=np.uint8)
        after = np.repeat(np.roll(rows, -1), 1 << bits)
        before = np.repeat(np.roll(rows, 1), 1 << bits)
        columns = symbols.shape[1]
        of_symbols, of_pairs = symbols.ravel(), pairs.ravel()
        while True:
            first = pairs[:, :columns].min(axis=0)
            words = np.flatnonzero(first < _NO_PAIR)
            if not len(words):
                return
            columns = words[-1] + 1  # later words have no pairs left
            first = np.take(first, words)
            row = first & (1 << _ROW_BITS) - 1
            left = (row.astype(np.int64) << bits) + words
            right = (np.take(after, left).astype(np.int64) << bits) + words
            previous_row, next_row = np.take(before, left), np.take(after, right)
            previous = (previous_row.astype(np.int64) << bits) + words
            following = (next_row.astype(np.int64) << bits) + words
            joined = np.take(self._results, first >> _ROW_BITS)
            of_symbols[left], of_symbols[right] = joined, _NO_SYMBOL
            after[left], before[following] = next_row, row
            ranks = self._ranks(
                np.concatenate([np.take(of_symbols, previous), joined]),
                np.concatenate([joined, np.take(of_symbols, following)]),
            )
            of_pairs[right] = _NO_PAIR
            of_pairs[np.concatenate([previous, left])] = ranks | np.concatenate([previous_row, row])

    def _ranks(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Returns the ranks of P pairs of symbols, int32 [P]; the bits of the row are 0."""
        found = self._table.find(_keys(left, right)).astype(np.int32)
        return np.where(found != 0, found << _ROW_BITS, _NO_PAIR)


def _keys(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the keys of P pairs for the table, uint64 [P, 1]."""
    return (left.astype(np.int64) << _BITS | right).view(np.uint64)[:, None]
