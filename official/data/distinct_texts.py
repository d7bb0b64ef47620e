"""Puts rows of texts into batches in which no text stands twice (`recipe.distinct_texts`).

A text that occurs twice in a batch would be a negative of itself. A row may be in a batch only if
none of its texts, in any column, is in another row of the batch. Each row, in order, goes to the
first batch that has room and none of its texts. In the end, a row that no batch with room can take
goes to a full batch, if one of that batch's rows can move to another.

Shapes: n rows, C texts of a row, K batches, B rows of a batch.
"""

import collections
from collections.abc import Sequence

import numpy as np


def places(texts: np.ndarray, batches: int) -> np.ndarray:
    """Returns the rows of each batch.

    Args:
      texts: a number for each text of each row, int [n, C]; n is a multiple of `batches`.
      batches: K.

    Returns:
      int32 [K, B], with B = n / K: the numbers of the rows of each batch, and then -1 where no row
      can be. The first row of a batch is never -1.
    """
    plan = _Plan(texts.tolist(), int(batches))
    waiting = [row for row in range(len(texts)) if not plan.put(row)]
    for row in waiting:
        plan.make_room(row)
    size = len(texts) // int(batches)
    return np.array([rows + [-1] * (size - len(rows)) for rows in plan.rows], np.int32)


class _Plan:
    """Batches that are being filled.

    Attributes:
      rows: the numbers of the rows of each batch.
    """

    def __init__(self, texts: Sequence[Sequence[int]], batches: int):
        self.rows: list[list[int]] = [[] for _ in range(batches)]
        self._texts = texts
        self._size = len(texts) // batches
        self._open = list(range(batches))  # those with room
        self._with = collections.defaultdict[int, set[int]](set)  # the batches that have a text

    def put(self, row: int) -> bool:
        """Puts a row into the first batch that can take it; returns whether there is one."""
        taken = self._taken(row)
        batch = next((batch for batch in self._open if batch not in taken), None)
        if batch is None:
            return False
        self._add(row, batch)
        return True

    def make_room(self, row: int) -> None:
        """Puts a row into a full batch, if a row of this can go to a batch with room."""
        if self.put(row):  # where another row has moved
            return
        taken = self._taken(row)
        for batch in range(len(self.rows)):
            if batch in taken:
                continue
            for other in self.rows[batch]:
                # Batches with room have a text of the row, so this one is full.
                if self.put(other):
                    self.rows[batch].remove(other)
                    for text in self._texts[other]:
                        self._with[text].discard(batch)
                    self._add(row, batch)
                    return

    def _taken(self, row: int) -> set[int]:
        """Returns the batches that have a text of a row."""
        return set().union(*(self._with[text] for text in self._texts[row]))

    def _add(self, row: int, batch: int) -> None:
        self.rows[batch].append(row)
        for text in self._texts[row]:
            self._with[text].add(batch)
        if len(self.rows[batch]) == self._size and batch in self._open:
            self._open.remove(batch)
