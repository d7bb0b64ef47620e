"""Writes records into shards in their order."""

import dataclasses
from collections.abc import Iterable, Iterator

from official.shards import manifest
from official.utils.paths import AnyPath
from tfrecords_tools.writing import frames, shards
from tfrecords_tools.writing.shuffle import FRAME_BYTES


def write(folder: AnyPath, split: str, records: Iterable[bytes]) -> tuple[manifest.Shard, ...]:
    """Writes the shards of a split, one after the other, and returns their entries in the manifest.

    The last shard gets what is left; the others are as large as `shards.MAX_SHARD_BYTES` allows.

    Raises:
      OSError: the disk is full.
    """
    # The names tell the number of shards, which is known at the end.
    entries = [
        shards.store(folder / f"{split}-{number:05d}", frames.framed(some), split)
        for number, some in enumerate(_shares(records))
    ]
    named = []
    for entry in entries:
        name = f"{entry.name}-of-{len(entries):05d}.tfrecord"
        (folder / entry.name).rename(folder / name)
        named.append(dataclasses.replace(entry, name=name))
    return tuple(named)


def _shares(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yields the records of each shard."""
    share: list[bytes] = []
    size = 0
    for record in records:
        size += len(record) + FRAME_BYTES
        if share and size > shards.MAX_SHARD_BYTES:
            yield share
            share, size = [], len(record) + FRAME_BYTES
        share.append(record)
    if share:
        yield share
