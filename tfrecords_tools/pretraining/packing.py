"""Several short examples in one row: which ones share it.

Two ways are gone, and the one that needs fewer rows is taken: rows as short as the longest example
are filled best by the one, rows several times as long by the other.

Shapes: E examples, R rows.
"""

import numpy as np


def pack(lengths: np.ndarray, room: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Spreads examples over rows.

    Args:
      lengths: tokens of each example with specials, none above `room`; int64 [E].
      room: tokens of a row.
      most: examples that may share a row; 1 = each has its own, in the order given.

    Returns:
      The examples' numbers, row by row [E], and where each row begins among them, and the end
      [R + 1].
    """
    if most == 1:
        return np.arange(len(lengths)), np.arange(len(lengths) + 1)
    rows = min((way(lengths, room, most) for way in (_best_fit, _exact_fit)), key=len)
    members = np.array([example for row in rows for example in row], np.int64)
    return members, np.cumsum([0, *map(len, rows)])


def _best_fit(lengths: np.ndarray, room: int, most: int) -> list[list[int]]:
    """The longest first, each into the fullest row that has room.

    (Best fit in decreasing order, which needs at most 11/9 of the fewest rows possible where `most`
    does not bind: Johnson et al., 1974.)
    """
    rows: list[list[int]] = []
    by_room: list[list[list[int]]] = [[] for _ in range(room)]  # rows that may still be added to
    some = 0  # a number whose bit n is set where `by_room[n]` holds a row
    for example in np.argsort(-lengths, kind="stable").tolist():
        size = int(lengths[example])
        if fitting := some >> size:
            left = size + (fitting & -fitting).bit_length() - 1  # the lowest bit from `size` up
            row = by_room[left].pop()
            if not by_room[left]:
                some ^= 1 << left
        else:
            row, left = [], room
            rows.append(row)
        row.append(example)
        left -= size
        if left and len(row) < most:
            by_room[left].append(row)
            some |= 1 << left
    return rows


def _exact_fit(lengths: np.ndarray, room: int, most: int) -> list[list[int]]:
    """Row by row the longest that fits, until one or two are there that fill the row exactly."""
    waiting: list[list[int]] = [[] for _ in range(room + 1)]  # examples by length
    some = mirrored = 0  # bit n, and bit room - n, is set where `waiting[n]` holds an example
    for example, size in reversed(list(enumerate(lengths.tolist()))):
        waiting[size].append(example)
        some |= 1 << size
        mirrored |= 1 << (room - size)
    rows: list[list[int]] = []
    while some:
        row: list[int] = []
        left = room
        while len(row) < most and (fitting := some & ((2 << left) - 1)):
            size = fitting.bit_length() - 1
            if row and size < left and len(row) + 2 <= most:
                # Lengths n below left / 2 of which there is one, and one of left - n.
                pairs = some & (mirrored >> (room - left)) & ((1 << ((left + 1) // 2)) - 1)
                if pairs:
                    size = (pairs & -pairs).bit_length() - 1
            row.append(waiting[size].pop())
            if not waiting[size]:
                some ^= 1 << size
                mirrored ^= 1 << (room - size)
            left -= size
        rows.append(row)
    return rows
