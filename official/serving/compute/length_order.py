"""Batches of texts of similar length, for what encodes lists of any size."""

from collections.abc import Iterator

import numpy as np


def groups(
    lengths: np.ndarray,
    longest: int,
    batch_size: int | None,
    positions: float = np.inf,
    padding: float = np.inf,
) -> Iterator[np.ndarray]:
    """Yields the indices of the texts of each batch, the shortest texts first.

    Args:
      lengths: the number of tokens of each text, special tokens included, int [N].
      longest: longer texts are cut to this number of tokens.
      batch_size: the most texts of a batch; None = any number.
      positions: the most positions of a batch, padding included.
      padding: the most positions of padding.
    """
    order = np.argsort(lengths, kind="stable")
    widths, start = np.minimum(lengths[order], longest), 0
    while start < len(order):
        end, real = start + 1, widths[start]
        last = len(order) if batch_size is None else min(start + batch_size, len(order))
        while end < last:
            area, real = (end + 1 - start) * widths[end], real + widths[end]
            if area > positions or area - real > padding:
                break
            end += 1
        yield order[start:end]
        start = end
