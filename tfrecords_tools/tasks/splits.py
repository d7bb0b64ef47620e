"""Writes the splits of a task's shard folder, in any number of processes.

The rows of a file are read in chunks, and a function that runs in any process turns a chunk into
examples. The train split is shuffled (`tfrecords_tools.writing.shuffle`), so each of its shards is
a random sample of the file: the place of an example is a hash of the seed, of its row, and of its
number among the examples of the row. The other splits keep the order of the file.

Shapes: N examples.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self, TypeVar

import numpy as np

from official.shards import features, manifest
from official.shards.manifest import SplitTotals
from official.tokenizers import Tokenizer, loading
from official.utils import host_seeding, parallel, paths
from official.utils.batched import batched
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows
from tfrecords_tools.writing import folders, shards
from tfrecords_tools.writing.execution import Execution
from tfrecords_tools.writing.shuffle import Keyed, Runner

EXAMPLES_AT_ONCE = 2048
SUMMED = ("examples", "tokens", "truncated")  # the counts that are summed over the splits

# An example before it is serialized: feature → value.
Example = dict[str, Any]
Row = TypeVar("Row")
Result = TypeVar("Result")
AnyCounts = TypeVar("AnyCounts", bound="SplitCounts")
# Returns the examples of some rows, and counts them. A pure function that can be pickled.
Make = Callable[[Sequence[Row], Tokenizer, AnyCounts], Iterable[Example]]


@dataclasses.dataclass
class SplitCounts:
    """The counts of one split, or of a part of it.

    Attributes:
      bad: what was left out.
      targets: the number of examples of each label, in the order of the labels; starts as
        `no_targets`.
      labeled: whether the file has labels, scores or answers.
      examples: the number of examples written.
      tokens: the number of tokens of all sequences, special tokens counted.
      truncated: the number of examples or sequences that were cut to the limit.
      lengths: the number of examples by the length of their longest sequence, in tokens.
    """

    bad: BadRows = dataclasses.field(default_factory=BadRows)
    targets: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    labeled: bool = True
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
        bad = BadRows(self.bad.skip, self.bad.known)
        return type(self)(bad, no_targets(self.targets))

    def add(self, other: Self) -> None:
        """Adds the counts of the next part."""
        for field in dataclasses.fields(self):
            mine, others = getattr(self, field.name), getattr(other, field.name)
            if isinstance(mine, BadRows):
                mine.counts.update(others.counts)
                mine.unread.update(others.unread)
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

    def left_out(self) -> list[str]:
        """Returns what was left out and what was not read, as parts of a summary."""
        parts = [f"left out: {self.bad}"] if self.bad.counts else []
        if self.bad.unread:
            shown = (f"{key!r} ({count:,})" for key, count in sorted(self.bad.unread.items()))
            parts.append(f"keys that are not read: {', '.join(shown)}")
        return [*parts, *self.bad.notes]

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


@contextlib.contextmanager
def new_folder(
    output: AnyPath, tokenizer: Tokenizer, execution: Execution, seed: int
) -> Iterator["Splits"]:
    """Yields the writer of a shard folder, which has the tokenizer and wants a manifest.

    Args:
      output: the folder to create; it gets its name at the end.
      tokenizer: the tokenizer.
      execution: where the work is done; this does not change the shards.
      seed: the seed of the order of the train split.

    Raises:
      UserError: `output` is there already, or the disk is full.
    """
    output = paths.path(output)
    with folders.new_shards(output) as folder:
        # Sorted runs are on the disk that has the shards, if that is a local one.
        runs = folder / "runs" if isinstance(folder, Path) else None
        with execution.start_anew(output, start_worker, runs) as (runner, _):
            copy = folder / manifest.TOKENIZER_FOLDER
            tokenizer.save(copy)
            yield Splits(folder, runner, _Shared(str(copy), tokenizer), seed)
        if runs is not None:
            paths.remove_tree(runs)


def start_worker() -> None:
    """Sets up a worker process."""
    parallel.use_one_thread()


@dataclasses.dataclass(frozen=True)
class Splits:
    """Writes the splits of a folder.

    Attributes:
      folder: the folder.
    """

    folder: AnyPath
    _runner: Runner
    _tokenizer: "_Shared"
    _seed: int

    def apply(
        self, function: Callable[[Sequence[Row], Tokenizer], Result], rows: Iterable[Row], size: int
    ) -> Iterator[Result]:
        """Yields the result of a function for each chunk of rows, in order.

        Args:
          function: a pure function that can be pickled.
          rows: the rows.
          size: the number of rows of a chunk.
        """
        call = functools.partial(_call, function=function, tokenizer=self._tokenizer)
        return self._runner.ordered(call, batched(rows, size))

    def write(
        self,
        split: str,
        rows: Iterable[Row],
        size: int,
        make: Make[Row, AnyCounts],
        counts: AnyCounts,
    ) -> tuple[manifest.Shard, ...]:
        """Writes the shards of a split, and returns their entries in the manifest.

        Args:
          split: the split.
          rows: the rows of the file, which are read as needed.
          size: the number of rows of a chunk; it does not change the shards.
          make: makes the examples of a chunk. Those of a row are neighbors.
          counts: what is counted so far, to which the counts of the examples are added.

        Raises:
          UserError: a row cannot be used, or a process was killed.
        """
        blank = counts.blank()
        made = functools.partial(_made, make=make, tokenizer=self._tokenizer, blank=blank)
        chunks = batched(rows, size)
        if split == "train":
            written = self._runner.shuffle(
                functools.partial(_keyed, made=made, seed=self._seed),
                chunks,
                shards.count,
                functools.partial(shards.write_shard, folder=self.folder, split=split),
                type(counts),
                lambda _, chunk_counts: counts.add(chunk_counts),
            )
            return tuple(written)

        def serialized() -> Iterator[bytes]:
            for examples, _, chunk_counts in self._runner.ordered(made, chunks):
                counts.add(chunk_counts)
                yield from examples

        return shards.write_in_order(self.folder, split, serialized())


@dataclasses.dataclass(frozen=True)
class _Shared:
    """A tokenizer that each process loads once; the process that made this has it already."""

    folder: str
    tokenizer: Tokenizer

    def __reduce__(self):
        return _load, (self.folder, self.tokenizer.fingerprint)


@functools.lru_cache(maxsize=1)
def _load(folder: str, fingerprint: str) -> _Shared:
    del fingerprint  # Another tokenizer may have had the same folder before.
    return _Shared(folder, loading.load(folder))


def _call(
    rows: Sequence[Row], function: Callable[[Sequence[Row], Tokenizer], Any], tokenizer: _Shared
) -> Any:
    return function(rows, tokenizer.tokenizer)


def _made(
    rows: Sequence[Row], make: Make[Row, AnyCounts], tokenizer: _Shared, blank: AnyCounts
) -> tuple[list[bytes], np.ndarray, AnyCounts]:
    """Returns the serialized examples of some rows, the row of each, int64 [N], and the counts."""
    counts = blank.blank()
    examples = iter(make(rows, tokenizer.tokenizer, counts))
    serialized: list[bytes] = []
    numbers: list[int] = []
    for batch in batched(examples, EXAMPLES_AT_ONCE):
        serialized += features.serialize(batch)
        numbers += [example["row"] for example in batch]
    return serialized, np.array(numbers, np.int64), counts


def _keyed(
    rows: Sequence[Row],
    made: Callable[[Sequence[Row]], tuple[list[bytes], np.ndarray, AnyCounts]],
    seed: int,
) -> Iterator[Keyed[AnyCounts]]:
    """Yields the examples of some rows with the keys of their order."""
    serialized, numbers, counts = made(rows)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))  # the first example of each row
    lengths = np.diff(starts, append=len(numbers))
    among = np.arange(len(numbers)) - np.repeat(starts, lengths)
    yield Keyed(host_seeding.sort_keys(seed, numbers, among), serialized, counts)
