"""A hash table of rows of integers, which finds many at once.

Rows are numbered from 1 in the order in which they are added. A row has the first free place from
that of its hash (linear probing).

Shapes: K rows, C integers of a row.
"""

import numpy as np


class IntegerTable:
    """Numbers different rows of integers.

    Attributes:
      count: the number of rows.
    """

    def __init__(self, columns: int, capacity: int):
        """Makes an empty table.

        Args:
          columns: C: 1, 2, 4 or 8.
          capacity: the largest number of rows. Their memory is taken when they are written.
        """
        self.count = 0
        self._rows = np.zeros((capacity + 1, columns), np.uint64)  # row 0 is none
        bits = capacity.bit_length() + 1  # two to four places for each row
        self._places = np.zeros(1 << bits, np.int32)
        self._shift = np.uint64(64 - bits)
        # Random, so that nobody can write a text whose words have the same hash. They are odd.
        factors = np.random.default_rng().integers(1 << 63, size=columns, dtype=np.uint64)
        self._factors = factors * np.uint64(2) + np.uint64(1)

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of rows, uint64 [K, C]: int64 [K], 0 for those not in the table."""
        places = self._first_places(rows)
        numbers = self._places[places].astype(np.int64)
        others = np.flatnonzero((numbers != 0) & self._differ(numbers, rows))
        while len(others):
            places[others] = (places[others] + 1) % len(self._places)
            numbers[others] = found = self._places[places[others]]
            others = others[(found != 0) & self._differ(found, rows[others])]
        return numbers

    def add(self, rows: np.ndarray) -> None:
        """Adds rows that are not in the table and differ from each other, uint64 [K, C]."""
        numbers = np.arange(self.count + 1, self.count + 1 + len(rows))
        self._rows[numbers] = rows
        self.count += len(rows)
        places = self._first_places(rows)
        while len(numbers):
            free = self._places[places] == 0
            self._places[places[free]] = numbers[free]  # one of those that want the same place
            left = self._places[places] != numbers
            numbers, places = numbers[left], (places[left] + 1) % len(self._places)

    def _first_places(self, rows: np.ndarray) -> np.ndarray:
        return (rows @ self._factors >> self._shift).astype(np.int64)

    def _differ(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns whether the rows of some numbers are other ones, bool [K]."""
        # `take` is faster than an index, and a view of all results of a row than `any`.
        different = np.take(self._rows, numbers, axis=0) != rows
        return different.view(f"u{rows.shape[1]}")[:, 0] != 0
