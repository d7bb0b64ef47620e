"""What the shard folders of all fine-tuning tasks have alike, whatever their examples are."""

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from official import manifest
from official.errors import UserError
from official.tokenizers import packing
from tfrecords_tools import tables


class Tally(Protocol):
    """What the tally of a split has: what was left out, and examples by number of tokens."""

    bad: tables.BadRows
    lengths: collections.Counter[int]


def check_room(texts: int, tokenizer: Any, max_length: int) -> None:
    """Refuses a length that has no room for a token of each of one or two texts.

    Raises:
      UserError: with the least that will do.
    """
    least = packing.num_specials(texts, tokenizer) + texts
    if max_length < least:
        raise UserError(
            f"--max_length={max_length} leaves no room for the text beside the special tokens: "
            f"the least is {least}"
        )


def write_shards(
    folder: Path, split: str, examples: Iterator[bytes], per_shard: int
) -> list[manifest.Shard]:
    """Writes examples into shards, whose number is known when the last one is written."""
    written: list[Path] = []
    while shard := list(itertools.islice(examples, per_shard)):
        written.append(folder / f"{split}-{len(written):05d}")
        with tf.io.TFRecordWriter(str(written[-1])) as writer:
            for record in shard:
                writer.write(record)
    finished = [
        path.rename(folder / f"{path.name}-of-{len(written):05d}.tfrecord") for path in written
    ]
    return [manifest.describe(path, split) for path in finished]


def make_manifest(
    task: Mapping[str, Any],
    features: tuple[str, ...],
    tokenizer: Any,
    max_length: int,
    shards: Iterable[manifest.Shard],
    splits: Mapping[str, Mapping[str, Any]],
    tallies: Mapping[str, Tally],
    config: Mapping[str, Any],
    *,
    seed: int = 0,
    skipped: Mapping[str, int] | None = None,
    files: Mapping[str, str] | None = None,
) -> manifest.Manifest:
    """The manifest of a task, with totals over its splits.

    Args:
      task: its description, with what only this kind of task says.
      features: of its examples.
      tokenizer: that they were made with.
      max_length: longest sequence in tokens.
      shards: of all splits.
      splits: what the totals say of each split; `examples`, `tokens` and `truncated`, where it is
        there, are added up.
      tallies: of each split.
      config: what the folder was made of and with.
      seed: of the draws among its examples.
      skipped: counts of what was left out before there were splits, by reason.
      files: SHA-256 of other files in the folder, by name.
    """
    lengths = sum((tally.lengths for tally in tallies.values()), collections.Counter())
    left_out = sum((t.bad.counts for t in tallies.values()), collections.Counter(skipped))
    added = ("examples", "tokens", "truncated")
    totals = {
        name: sum(split[name] for split in splits.values())
        for name in added
        if all(name in split for split in splits.values())
    }
    return manifest.Manifest(
        kind="task",
        features=features,
        tokenizer=tokenizer.files,
        tokenizer_fingerprint=tokenizer.fingerprint,
        max_length=max_length,
        seed=seed,
        shards=tuple(shards),
        config=config,
        task=task,
        totals={**totals, "skipped": dict(left_out), "splits": splits},
        length_histogram=tuple(lengths[n] for n in range(max(lengths) + 1)),
        files=files or {},
    )


def names(files: Mapping[str, Path]) -> dict[str, str]:
    """The name of the file of each split, as manifests have it."""
    return {split: Path(path).name for split, path in files.items()}
