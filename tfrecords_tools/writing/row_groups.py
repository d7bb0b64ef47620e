"""Divides the records of a stream into TFRecord files, whose rows are read in groups.

The rows of a batch are split into groups of consecutive rows. A shard has a range of steps of one
group, and the shards are numbered group by group; `official.data.row_groups` reads them.
"""

from typing import NamedTuple

MAX_GROUPS = 32
SHARD_BYTES = 16 << 20  # which a run that resumes may have to skip for each group


class RowShard(NamedTuple):
    """The records of a shard.

    Attributes:
      number: the number of the shard.
      total: the number of shards.
      rows: the rows of the batch.
      steps: the steps.
    """

    number: int
    total: int
    rows: range
    steps: range


def count_groups(rows: int, num_shards: int = 0) -> int:
    """Returns the largest divisor of the rows that is not above `MAX_GROUPS`, nor `num_shards`."""
    most = min(MAX_GROUPS, rows, num_shards or MAX_GROUPS)
    return max(count for count in range(1, most + 1) if rows % count == 0)


def divide(rows: int, steps: int, record_bytes: float, num_shards: int = 0) -> list[RowShard]:
    """Returns the shards of a stream.

    Args:
      rows: the number of rows of a batch.
      steps: the number of steps.
      record_bytes: the size of a record.
      num_shards: the number of shards, or fewer if there are fewer steps; 0 = shards of at most
        about `SHARD_BYTES`.
    """
    groups = count_groups(rows, num_shards)
    size = rows // groups  # rows of a group
    counts = [-(-int(steps * size * record_bytes) // SHARD_BYTES)] * groups
    if num_shards:
        counts = [(num_shards + i) // groups for i in range(groups)]
    counts = [min(max(count, 1), steps) for count in counts]
    shards = [
        (range(group * size, (group + 1) * size), range(i * steps // n, (i + 1) * steps // n))
        for group, n in enumerate(counts)
        for i in range(n)
    ]
    return [RowShard(number, len(shards), *each) for number, each in enumerate(shards)]
