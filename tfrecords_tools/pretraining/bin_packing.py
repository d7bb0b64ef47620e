"""Packs several short examples into one row.

Two methods are tried, and the one that needs fewer rows is used: usually `best_fit` if rows are as
short as the longest example, and `exact_fit` if they are several times as long.

Shapes: E examples, R rows.
"""

import numpy as np


def pack(lengths: np.ndarray, room: int, max_examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Assigns examples to rows.

    Args:
      lengths: the length of each example with special tokens, at most `room`; int64 [E].
      room: the length of a row, in tokens.
      max_examples: the largest number of examples in a row; 1 = one in each row, in order.

    Returns:
      The indices of the examples, row by row [E], and the row splits [R + 1].
    """
    if max_examples == 1:
        return np.arange(len(lengths)), np.arange(len(lengths) + 1)
    rows = min((method(lengths, room, max_examples) for method in (best_fit, exact_fit)), key=len)
    members = np.array([example for row in rows for example in row], np.int64)
    return members, np.cumsum([0, *map(len, rows)])


def best_fit(lengths: np.ndarray, room: int, max_examples: int) -> list[list[int]]:
    """Returns rows of examples, packed by best fit in decreasing order of length.

    Each example goes into the fullest row that has room for it. Without `max_examples`, this needs
    at most 11/9 of the fewest rows possible (Johnson et al., 1974). `pack` describes the arguments.
    """
    rows: list[list[int]] = []
    by_room: list[list[list[int]]] = [[] for _ in range(room)]  # The rows by their remaining room.
    occupied = 0  # Bit n is set if `by_room[n]` has a row.
    for example in np.argsort(-lengths, kind="stable").tolist():
        size = int(lengths[example])
        if fitting := occupied >> size:
            left = size + (fitting & -fitting).bit_length() - 1  # The lowest bit from `size` up.
            row = by_room[left].pop()
            if not by_room[left]:
                occupied ^= 1 << left
        else:
            row, left = [], room
            rows.append(row)
        row.append(example)
        left -= size
        if left and len(row) < max_examples:
            by_room[left].append(row)
            occupied |= 1 << left
    return rows


def exact_fit(lengths: np.ndarray, room: int, max_examples: int) -> list[list[int]]:
    """Returns rows of examples, each filled exactly by its last one or two, if possible.

    A row takes the longest example that fits, until one or two examples fill it exactly. `pack`
    describes the arguments.
    """
    waiting: list[list[int]] = [[] for _ in range(room + 1)]  # The examples by length.
    occupied = mirrored = 0  # Bit n, and bit room - n, is set if `waiting[n]` has an example.
    for example, size in reversed(list(enumerate(lengths.tolist()))):
        waiting[size].append(example)
        occupied |= 1 << size
        mirrored |= 1 << (room - size)
    rows: list[list[int]] = []
    while occupied:
        row: list[int] = []
        left = room
        while len(row) < max_examples and (fitting := occupied & ((2 << left) - 1)):
            size = fitting.bit_length() - 1
            if row and size < left and len(row) + 2 <= max_examples:
                # The lengths n below left / 2 that exist together with left - n.
                pairs = occupied & (mirrored >> (room - left)) & ((1 << ((left + 1) // 2)) - 1)
                if pairs:
                    size = (pairs & -pairs).bit_length() - 1
            row.append(waiting[size].pop())
            if not waiting[size]:
                occupied ^= 1 << size
                mirrored ^= 1 << (room - size)
            left -= size
        rows.append(row)
    return rows
