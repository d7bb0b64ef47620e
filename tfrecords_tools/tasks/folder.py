"""The counts and the manifest of a fine-tuning task's shard folder, for all kinds of tasks."""

import collections
import dataclasses
import itertools
import pickle
from collections.abc import Iterable, Mapping
from typing import IO, Any, Self

import numpy as np

from official.shards import manifest
from official.shards.manifest import SplitTotals, TaskSettings, TaskTotals
from official.tasks import Description
from official.tokenizers import Tokenizer, pair_packing
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import tables

SUMMED = ("examples", "tokens", "truncated")  # the counts that are summed over the splits

# An example before it is serialized: feature → value.
Example = dict[str, Any]


@dataclasses.dataclass
class SplitCounts:
    """The counts of one split, or of a part of it.

    Attributes:
      bad: what was left out.
      targets: the number of examples of each label, in the order of the labels; starts as
        `no_targets`.
      labelled: whether the file has labels, scores or answers.
      examples: the number of examples written.
      tokens: the number of tokens of all sequences, special tokens counted.
      truncated: the number of examples or sequences that were cut to the limit.
      lengths: the number of examples by the length of their longest sequence, in tokens.
    """

    bad: tables.BadRows = dataclasses.field(default_factory=tables.BadRows)
    targets: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    labelled: bool = True
    examples: int = 0
    tokens: int = 0
    truncated: int = 0
    lengths: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    def count(self, *lengths: int) -> None:
        """Counts an example with sequences of these lengths in tokens."""
        self.examples += 1
        self.tokens += sum(lengths)
        self.lengths[max(lengths)] += 1

    def blank(self) -> Self:
        """Returns counts that are 0, and treat rows that cannot be used in the same way."""
        bad = tables.BadRows(self.bad.skip, self.bad.known)
        return type(self)(bad, no_targets(self.targets))

    def add(self, other: Self) -> None:
        """Adds the counts of the next part."""
        for field in dataclasses.fields(self):
            mine, others = getattr(self, field.name), getattr(other, field.name)
            if isinstance(mine, tables.BadRows):
                mine.counts.update(others.counts)
            elif isinstance(mine, collections.Counter):
                mine.update(others)
            elif isinstance(mine, list):
                mine.extend(others)
            elif isinstance(mine, bool):
                setattr(self, field.name, mine and others)
            else:
                setattr(self, field.name, mine + others)

    def save(self, stream: IO[bytes]) -> None:
        """Writes the counts to a file; `load` reads them."""
        pickle.dump(self, stream)

    @classmethod
    def load(cls, stream: IO[bytes]) -> Self:
        """Reads what `save` wrote."""
        return pickle.load(stream)

    def totals(self, **more: Any) -> SplitTotals:
        """Returns the counts that the manifest records; `more` are those of the task's kind."""
        counts = {name: getattr(self, name) for name in SUMMED}
        return SplitTotals(**counts, skipped=dict(sorted(self.bad.counts.items())), **more)

    def shares(self, max_labels: int = 20) -> str:
        """Returns the number and the share of examples of each label, as text."""
        shown = (
            f"{label} {count:,} ({count / self.examples:.1%})"
            for label, count in itertools.islice(self.targets.items(), max_labels)
        )
        more = len(self.targets) - max_labels
        return ", ".join(shown) + (f", and {more} more labels" if more > 0 else "")


def no_targets(labels: Iterable[str]) -> collections.Counter[str]:
    """Returns a count of 0 for each label, so that labels without examples are shown."""
    return collections.Counter(dict.fromkeys(labels, 0))


def example_of_sequences(packed: Iterable[tuple[np.ndarray, np.ndarray]], row: int) -> Example:
    """Returns an example with several sequences, one after the other.

    Args:
      packed: token ids and segment lengths of each sequence.
      row: the number of the example.
    """
    token_ids, segment_lengths = zip(*packed, strict=True)
    return {
        "token_ids": np.concatenate(token_ids),
        "segment_lengths": np.concatenate(segment_lengths),
        "sequence_lengths": [len(ids) for ids in token_ids],
        "row": row,
    }


def check_max_length(texts: int, tokenizer: Tokenizer, max_length: int) -> None:
    """Checks that a sequence has room for a token of each of its texts.

    Raises:
      UserError: `max_length` is too small; the message names the least that is possible.
    """
    least = pair_packing.num_specials(texts, tokenizer) + texts
    if max_length < least:
        raise UserError(
            f"--max_length={max_length} leaves no room for the text beside the special tokens: "
            f"the least is {least}"
        )


def make_manifest(
    task: Description,
    feature_names: tuple[str, ...],
    tokenizer: Tokenizer,
    max_length: int,
    shards: Iterable[manifest.Shard],
    splits: Mapping[str, SplitTotals],
    counts: Mapping[str, SplitCounts],
    config: TaskSettings,
    seed: int,
    *,
    skipped: Mapping[str, int] | None = None,
    files: Mapping[str, str] | None = None,
) -> manifest.Manifest:
    """Returns the manifest of a task, with its splits without labels, and totals over all splits.

    Args:
      task: the description of the task, with the entries of its kind.
      feature_names: the features of the examples.
      tokenizer: the tokenizer of the examples.
      max_length: the length of the longest sequence, in tokens.
      shards: the shards of all splits.
      splits: the entry of each split in the totals.
      counts: the counts of each split.
      config: the settings and source files of the folder.
      seed: the seed of the order of its training examples, and of draws among them.
      skipped: the number of rows left out before they belonged to a split, by reason.
      files: the SHA-256 of other files in the folder, by name.
    """
    lengths = sum((each.lengths for each in counts.values()), collections.Counter())
    left_out = sum((each.bad.counts for each in counts.values()), collections.Counter(skipped))
    totals = {name: sum(getattr(each, name) for each in counts.values()) for name in SUMMED}
    unlabelled = tuple(split for split, each in counts.items() if not each.labelled)
    return manifest.Manifest(
        kind="task",
        features=feature_names,
        tokenizer=tokenizer.files,
        tokenizer_fingerprint=tokenizer.fingerprint,
        max_length=max_length,
        seed=seed,
        shards=tuple(shards),
        config=config,
        task=dataclasses.replace(task, unlabelled=unlabelled),
        totals=TaskTotals(**totals, skipped=dict(sorted(left_out.items())), splits=splits),
        length_histogram=tuple(lengths[n] for n in range(max(lengths) + 1)),
        files=files or {},
    )


def file_names(files: Mapping[str, AnyPath]) -> dict[str, str]:
    """Returns the name of the file of each split, without its folder."""
    return {split: paths.path(path).name for split, path in files.items()}
