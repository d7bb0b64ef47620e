"""What the shard folders of all fine-tuning tasks have alike, whatever their examples are."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from official.shards import integrity, manifest
from official.shards.provenance import SplitTotals, TaskSettings, TaskTotals
from official.tasks import Description
from official.tokenizers import packing
from official.utils.errors import UserError
from tfrecords_tools.tasks.readers import tables

ADDED = ("examples", "tokens", "truncated")  # over the splits


@dataclasses.dataclass
class SplitCounts:
    """What one split holds.

    Attributes:
      bad: what was left out.
      targets: examples of each label, in the order of the task's; `no_targets` to begin with.
      labelled: whether the file has labels, scores or answers.
      examples: those written.
      tokens: of all their sequences, special ones counted.
      truncated: examples or sequences that were longer than the limit and were cut.
      lengths: examples by the tokens of their longest sequence.
    """

    bad: tables.BadRows
    targets: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    labelled: bool = True
    examples: int = 0
    tokens: int = 0
    truncated: int = 0
    lengths: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    def add(self, *lengths: int) -> None:
        """Counts an example of sequences of so many tokens."""
        self.examples += 1
        self.tokens += sum(lengths)
        self.lengths[max(lengths)] += 1

    def totals(self, **more: Any) -> SplitTotals:
        """Returns what the manifest says of the split; `more` are counts of the task's kind."""
        counts = {name: getattr(self, name) for name in ADDED}
        return SplitTotals(**counts, skipped=dict(self.bad.counts), **more)

    def shares(self, most: int = 20) -> str:
        """Each label with its examples, `most` labels at the most."""
        shown = (
            f"{label} {count:,} ({count / self.examples:.1%})"
            for label, count in itertools.islice(self.targets.items(), most)
        )
        more = len(self.targets) - most
        return ", ".join(shown) + (f", and {more} more labels" if more > 0 else "")


def no_targets(labels: Iterable[str]) -> collections.Counter[str]:
    """Zero of each label, so that one without examples shows."""
    return collections.Counter(dict.fromkeys(labels, 0))


def several(packed: Iterable[tuple[np.ndarray, np.ndarray]], row: int) -> dict[str, Any]:
    """The example of several sequences, one after the other.

    Args:
      packed: token ids and segment lengths of each.
      row: its number.
    """
    token_ids, segment_lengths = zip(*packed, strict=True)
    return {
        "token_ids": np.concatenate(token_ids),
        "segment_lengths": np.concatenate(segment_lengths),
        "sequence_lengths": [len(ids) for ids in token_ids],
        "row": row,
    }


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
    return [integrity.describe(path, split) for path in finished]


def make_manifest(
    task: Description,
    features: tuple[str, ...],
    tokenizer: Any,
    max_length: int,
    shards: Iterable[manifest.Shard],
    splits: Mapping[str, SplitTotals],
    tallies: Mapping[str, SplitCounts],
    config: TaskSettings,
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
      splits: what the totals say of each split.
      tallies: of each split.
      config: what the folder was made of and with.
      seed: of the draws among its examples.
      skipped: counts of what was left out before there were splits, by reason.
      files: SHA-256 of other files in the folder, by name.
    """
    lengths = sum((tally.lengths for tally in tallies.values()), collections.Counter())
    left_out = sum((t.bad.counts for t in tallies.values()), collections.Counter(skipped))
    totals = {name: sum(getattr(t, name) for t in tallies.values()) for name in ADDED}
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
        totals=TaskTotals(**totals, skipped=dict(left_out), splits=splits),
        length_histogram=tuple(lengths[n] for n in range(max(lengths) + 1)),
        files=files or {},
    )


def names(files: Mapping[str, Path]) -> dict[str, str]:
    """The name of the file of each split, as manifests have it."""
    return {split: Path(path).name for split, path in files.items()}
