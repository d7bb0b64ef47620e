"""A hash table of rows of integers, with vectorized lookups.

Rows are numbered from 1. Collisions are resolved by linear probing.

Shapes: K rows, C integers of a row.
"""

import math
import mmap

import numpy as np
from numpy.typing import DTypeLike


def zeros(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Like `np.zeros` of a large array, but memory is always allocated when it is written.

    Where a program has freed a large array, malloc keeps it for the next one, and clears that.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    private = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)  # A forked process has its own.
    return np.frombuffer(private, dtype).reshape(shape)


class IntegerTable:
    """Gives each distinct row of integers a number.

    Attributes:
      count: the number of rows.
    """

    def __init__(self, columns: int, capacity: int, places: int = 2):
        """Makes an empty table.

        Args:
          columns: C: 1, 2, 4 or 8.
          capacity: the largest number of rows. Memory is allocated when rows are written.
          places: the least number of slots for each row; there may be up to twice as many.
        """
        self.count = 0
        self._rows = zeros((capacity + 1, columns), np.uint64)  # row 0 is unused
        bits = (places * capacity - 1).bit_length()
        self._places = zeros((1 << bits,), np.int32)
        self._shift = np.uint64(64 - bits)
        # Random odd factors, so that nobody can construct a text whose words have the same hash.
        factors = np.random.default_rng().integers(1 << 63, size=columns, dtype=np.uint64)
        self._factors = factors * np.uint64(2) + np.uint64(1)

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of rows, uint64 [K, C]: int64 [K], 0 for those not in the table."""
        places = self._first_places(rows)
        numbers = np.take(self._places, places).astype(np.int64)
        others = np.flatnonzero(numbers != 0)
        others = others[self._differ(np.take(numbers, others), np.take(rows, others, axis=0))]
        while len(others):
            places[others] = (places[others] + 1) % len(self._places)
            numbers[others] = found = self._places[places[others]]
            others = others[(found != 0) & self._differ(found, rows[others])]
        return numbers

    def add(self, rows: np.ndarray) -> np.ndarray:
        """Adds rows that are not in the table, uint64 [K, C]; rows may be repeated.

        The capacity must suffice for all K.

        Returns:
          The numbers of the rows, int64 [K], in the order of their first occurrences.
        """
        before = self.count + 1
        own = np.arange(before, before + len(rows))
        self._rows[own] = rows
        places = self._first_places(rows)
        numbers = np.zeros(len(rows), np.int64)
        left = np.arange(len(rows))
        while len(left):
            wanted = places[left]
            free = self._places[wanted] == 0
            self._places[wanted[free]] = own[left[free]]  # of rows with the same slot, one wins
            numbers[left] = found = self._places[wanted]
            left = left[self._differ(found, rows[left])]
            places[left] = (places[left] + 1) % len(self._places)
        first = np.flatnonzero(numbers == own)  # of equal rows, the one that has the slot
        self.count += len(first)
        final = np.zeros(len(rows), np.int64)
        final[first] = self._places[places[first]] = np.arange(before, self.count + 1)
        self._rows[before : self.count + 1] = rows[first]
        return final[numbers - before]

    def last(self, count: int) -> np.ndarray:
        """Returns the rows with the last numbers, uint64 [count, C]."""
        return self._rows[self.count + 1 - count : self.count + 1]

    def _first_places(self, rows: np.ndarray) -> np.ndarray:
        hashes = rows[:, 0] * self._factors[0]
        for column in range(1, rows.shape[1]):  # faster than a matrix product
            hashes += rows[:, column] * self._factors[column]
        return (hashes >> self._shift).view(np.int64)

    def _differ(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns whether rows differ from the rows with the given numbers, bool [K]."""
        # `take` is faster than indexing, and viewing the flags of a row as one integer is faster
        # than `any`.
        different = np.take(self._rows, numbers, axis=0) != rows
        return different.view(f"u{rows.shape[1]}")[:, 0] != 0
