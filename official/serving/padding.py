"""Batches of sequences, padded on one side to a few lengths, so that a few graphs serve all.

Shapes: B batch, T length.
"""

from collections.abc import Iterator, Sequence

import numpy as np

# Sequences are padded to a multiple of this.
_STEP = 16


def batches(
    rows: Sequence[Sequence[int]], batch_size: int, max_length: int, pad_id: int, *, side: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields the numbers of the rows of a batch int [B], and its `padded` ids and mask."""
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        length = min(max_length, -(-max(map(len, batch)) // _STEP) * _STEP)
        yield np.arange(start, start + len(batch)), *padded(batch, length, pad_id, side=side)


def padded(
    rows: Sequence[Sequence[int]], length: int, pad_id: int, *, side: str
) -> tuple[np.ndarray, np.ndarray]:
    """Pads rows on the side "left" or "right"; returns ids int32 [B, T] and the mask of tokens."""
    lengths = np.array([len(row) for row in rows])[:, None]
    places = np.arange(length)
    mask = places < lengths if side == "right" else places >= length - lengths
    ids = np.full(mask.shape, pad_id, np.int32)
    ids[mask] = np.concatenate(rows)
    return ids, mask
