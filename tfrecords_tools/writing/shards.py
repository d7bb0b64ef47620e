"""Writes the shards that records are shuffled into, and decides their number."""

from collections.abc import Sequence

from official.shards import manifest
from official.utils import checksums
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.writing.shuffle import Part

# A shard is in memory when it is written and when it is read in training.
MAX_SHARD_BYTES = 32 << 20
MIN_SHARD_BYTES = 2 << 20
MIN_SHARD_RECORDS = 32  # on average; fewer may leave a shard without any
# The page cache takes large blocks of memory for a large write. A virtual machine may have to get
# them from its host first. Small writes use memory that it already has.
_WRITE_BYTES = 256 << 10
_FEW = 16  # shards, which several workers can share, of a folder that is not large


def count(records: int, size: int, wanted: int = 0) -> int:
    """Returns the number of shards.

    Args:
      records: the number of records.
      size: the number of their bytes.
      wanted: the number of shards that the user wants; 0 = by the size.

    Raises:
      UserError: there are more shards than records.
    """
    if 0 < records < wanted:
        raise UserError(
            f"{records} examples do not fill {wanted} shards: name fewer with --num_shards"
        )
    if not records or wanted:
        return wanted if records else 0
    by_size = max(-(-size // MAX_SHARD_BYTES), min(_FEW, 1 + size // MIN_SHARD_BYTES))
    return min(by_size, -(-records // MIN_SHARD_RECORDS))


def write(part: Part, folder: AnyPath, split: str = "train") -> manifest.Shard:
    """Writes a part as a shard of a split, and returns its entry in the manifest.

    Raises:
      UserError: the part has no record.
    """
    if not part.framed:
        raise UserError(
            f"shard {part.number} of {part.total} would have no example: name fewer shards with "
            "--num_shards"
        )
    path = folder / f"{split}-{part.number:05d}-of-{part.total:05d}.tfrecord"
    return store(path, part.framed, split)


def store(path: AnyPath, framed: Sequence[bytes | memoryview], split: str) -> manifest.Shard:
    """Writes records, each as it is in a TFRecord file, and returns their entry in the manifest."""
    data = b"".join(framed)
    with path.open("wb") as stream:
        for start in range(0, len(data), _WRITE_BYTES):
            stream.write(data[start : start + _WRITE_BYTES])
    return manifest.Shard(path.name, len(framed), len(data), checksums.hash_bytes(data), split)
