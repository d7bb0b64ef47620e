"""Blocks of records, as an engine moves them: an element of it costs more than a record.

Shapes: N records of a block.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tfrecords_tools.writing import shards
from tfrecords_tools.writing.shuffle import OVERHEAD_BYTES, ShardRecords, first_key, order

BYTES = 4 << 20  # of records that travel together
_KEY_BYTES = 8


class Block(NamedTuple):
    """Records in the order of their keys, as bytes, which every engine moves fast.

    Attributes:
      keys: uint64 [N].
      ends: the end of each record, int64 [N].
      data: the records, one behind the other.
    """

    keys: bytes
    ends: bytes
    data: bytes

    @classmethod
    def of(cls, keys: np.ndarray, records: Sequence[bytes]) -> "Block":
        """Returns the block of records in the order of their keys."""
        ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
        return cls(keys.tobytes(), ends.tobytes(), b"".join(records))

    def sizes(self) -> tuple[int, int]:
        """Returns the number of records and of their bytes in a TFRecord file."""
        count = len(self.keys) // _KEY_BYTES
        return count, len(self.data) + count * OVERHEAD_BYTES

    def parts(self, total: int) -> Iterator[tuple[int, "Block"]]:
        """Yields the numbers of parts, of `total`, and the records of each."""
        keys, ends = np.frombuffer(self.keys, np.uint64), np.frombuffer(self.ends, np.int64)
        cuts = np.searchsorted(keys, _later_keys(total))
        for number in np.unique(np.searchsorted(cuts, np.arange(len(keys)), "right")).tolist():
            first = int(cuts[number - 1]) if number else 0
            last = int(cuts[number]) if number < total - 1 else len(keys)
            start = int(ends[first - 1]) if first else 0
            own = ends[first:last] - start
            data = self.data[start : ends[last - 1]]
            yield number, Block(keys[first:last].tobytes(), own.tobytes(), data)

    def records(self) -> list[bytes]:
        """Returns the records."""
        ends = np.frombuffer(self.ends, np.int64).tolist()
        return [self.data[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


@functools.lru_cache(maxsize=1)
def _later_keys(total: int) -> np.ndarray:
    """Returns the first key of each part but the first, uint64 [total - 1]."""
    return np.array([first_key(part, total) for part in range(1, total)], np.uint64)


def shard_records(number: int, total: int, blocks: Iterable[Block]) -> ShardRecords:
    """Returns the records of a part in their order, from its blocks in any order."""
    blocks = list(blocks)
    keys = np.concatenate([np.frombuffer(block.keys, np.uint64) for block in blocks])
    records = [record for block in blocks for record in block.records()]
    chosen = order(keys, records.__getitem__)
    return ShardRecords(number, total, shards.encoded([records[i] for i in chosen]))
