"""Compares the files of a shard folder with its manifest.

TensorFlow reads a TFRecord file that is empty, or cut between two records, without an error. The
sizes and checksums of the manifest show such damage.
"""

import mmap
import os
import struct
from concurrent.futures import ThreadPoolExecutor

from official.shards import manifest
from official.utils import checksums, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_AT_ONCE = 16  # shards


def verify(folder: str | os.PathLike, deep: bool, split: str | None = None) -> list[str]:
    """Compares the shards of a folder with its manifest.

    Args:
      folder: a shard folder.
      deep: whether to read every byte and to check the other files of the folder as well. If it is
        False, only the sizes of the shards are compared.
      split: the only split to check; None = all splits.

    Returns:
      One sentence for each file that has changed: the file, what is expected and what is there.

    Raises:
      UserError: the manifest itself cannot be read.
    """
    content = manifest.read(folder)
    found = []
    if deep:
        for name, recorded in content.files.items():
            found.append(checksums.problem(paths.path(folder) / name, recorded))
    shards = content.shards if split is None else content.split(split)
    # The answers of a remote file system take their time, also about sizes.
    at_once = _AT_ONCE if paths.is_remote(folder) and not deep else 1
    with ThreadPoolExecutor(at_once) as pool:
        found += pool.map(
            lambda shard: _problem(paths.path(folder) / shard.name, shard, deep), shards
        )
    return [problem for problem in found if problem]


def describe(path: str | os.PathLike, split: str = "train") -> manifest.Shard:
    """Returns the manifest's entry of a finished shard file, measured on the disk.

    Raises:
      UserError: the file ends within a record.
    """
    records, size, digest = _measure(paths.path(path))
    if records is None:
        raise UserError(f"{path} ends within a record: write it again")
    return manifest.Shard(paths.path(path).name, records, size, digest, split)


def _problem(path: AnyPath, shard: manifest.Shard, deep: bool) -> str | None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return f"{path} is missing: expected {shard.bytes} bytes"
    if size != shard.bytes:
        kind = "empty" if size == 0 else "cut" if size < shard.bytes else "longer than written"
        return f"{path} is {kind}: expected {shard.bytes} bytes, found {size}"
    if not deep:
        return None
    records, _, digest = _measure(path)
    if changed := checksums.difference(path, shard.sha256, digest):
        return changed
    if records != shard.records:
        found = "a cut record" if records is None else f"{records} records"
        return (
            f"{path} does not match its manifest: expected {shard.records} records, found {found}"
        )
    return None


def _measure(path: AnyPath) -> tuple[int | None, int, str]:
    """Returns the number of records, the bytes and the SHA-256 of a TFRecord file, in one read.

    The number of records is None if the last one is cut.
    """
    size = path.stat().st_size
    if size == 0:
        return 0, 0, checksums.hash_bytes(b"")
    with (
        paths.local_copy(path) as file,
        open(file, "rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        digest = checksums.hash_bytes(data)
        records = position = 0
        while position + 12 <= size:  # a record: length (8 bytes), its CRC (4), content, its CRC
            position += 16 + struct.unpack_from("<Q", data, position)[0]
            records += 1
        return (records if position == size else None), size, digest
