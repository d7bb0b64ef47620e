"""Several short examples in one row: which ones share it.

Shapes: E examples, R rows.
"""

import numpy as np


def pack(lengths: np.ndarray, room: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Spreads examples over rows: the longest first, each into the fullest row that has room.

    (Best fit in decreasing order, which needs at most 11/9 of the fewest rows possible where `most`
    does not bind: Johnson et al., 1974.)

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
    members = np.array([example for row in rows for example in row], np.int64)
    return members, np.cumsum([0, *map(len, rows)])
