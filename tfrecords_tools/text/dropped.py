"""The documents that filters have left out, in a file that every process reads.

The file is an array, int64 [3, N], in the order of the first two rows:

* the file and the range in which the document begins, as `key` has them;
* the number of the document in the range;
* the number of the reason in `REASONS`.

Shapes: N documents that are left out.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from official.utils import atomic, checksums, paths
from official.utils.paths import AnyPath
from tfrecords_tools.text.documents import Document, ReadCounts

REASONS = (
    "documents of too few words",
    "documents of too many symbols",
    "duplicate documents",
    "near-duplicate documents",
)
_RANGE_BITS = 40
_PREFIX = "dropped-"


def key(file: int, number: int) -> int:
    """Returns the number that stands for a range of a file."""
    return (file << _RANGE_BITS) + number


def write(folder: AnyPath, table: np.ndarray) -> str:
    """Writes the file of a table, int64 [3, N] in any order, and returns its path.

    The name has the checksum of the content: another table gets another name.
    """
    table = np.ascontiguousarray(table[:, np.lexsort((table[1], table[0]))])
    path = folder / f"{_PREFIX}{checksums.hash_bytes(table.tobytes())[:16]}.npy"
    with atomic.file(path, "wb") as stream:
        np.save(stream, table)
    return str(path)


def find(folder: AnyPath) -> str:
    """Returns the path of the file that `write` has written in a folder; "" = there is none."""
    return next((str(path) for path in sorted(folder.glob(f"{_PREFIX}*.npy"))), "")


def leave_out(path: str, documents: Sequence[Document], read_counts: ReadCounts) -> list[Document]:
    """Returns the documents of a range that filters have not left out.

    Args:
      path: the file of what they have left out.
      documents: the documents.
      read_counts: their counts. Those that are left out are counted by their reasons instead.
    """
    table = _read(path)
    reasons = {
        place: _of_range(table, key(*place))
        for place in {document.identity[:2] for document in documents}
    }
    kept = []
    for document in documents:
        reason = reasons[document.identity[:2]].get(document.identity[2])
        if reason is None:
            kept.append(document)
        elif not document.part:
            read_counts.documents -= 1
            read_counts.long -= document.unfinished
            read_counts.skipped[REASONS[reason]] += 1
    return kept


def note(skipped: Mapping[str, int]) -> str:
    """Returns how many documents filters have left out, for a message; "" = none."""
    counts = ", ".join(f"{skipped[reason]:,} {reason}" for reason in REASONS if reason in skipped)
    return f"; filters left out {counts}" if counts else ""


def _of_range(table: np.ndarray, range_key: int) -> dict[int, int]:
    """Returns the reason of each document of a range that is left out, by its number."""
    begin, end = np.searchsorted(table[0], [range_key, range_key + 1])
    return dict(zip(table[1, begin:end].tolist(), table[2, begin:end].tolist(), strict=True))


@functools.lru_cache(maxsize=1)
def _read(path: str) -> np.ndarray:
    """Returns the table of a file; the processes of a machine share the memory."""
    with paths.local_copy(path) as local:
        return np.load(local, mmap_mode="r")
