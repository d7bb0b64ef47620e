"""Builds the shard folder of a fine-tuning task.

All kinds of tasks are built in the same way. Each split of the task is read row by row, the rows
become examples in any number of processes (`splits`), and the manifest counts them. What differs is
a `Builder`, which the module of a kind has: it reads the rows, makes their examples, and names the
features, the counts and the files beside the shards. `official.tasks.KINDS` names the modules, and
the flags of `build_task_shards` that only one kind has. The rows of some kinds may be in memory.
"""

import collections
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic

import numpy as np

from official.shards import manifest
from official.shards.manifest import TaskSettings, TaskTotals
from official.tasks import KINDS, SPLITS, Description, Task, kinds
from official.tokenizers import Tokenizer, pair_packing
from official.utils import input_files, paths
from official.utils.errors import UserError
from official.utils.input_files import Inputs
from official.utils.names import look_alike
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows
from tfrecords_tools.tasks import splits
from tfrecords_tools.tasks.splits import (
    SUMMED,
    AnyCounts,
    Example,
    Make,
    Row,
    SplitCounts,
    Splits,
)
from tfrecords_tools.writing.execution import Execution


def build(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    output: AnyPath,
    max_length: int | None = None,
    *,
    execution: Execution = Execution(),  # noqa: B008
    **options: Any,
) -> manifest.Manifest:
    """Builds the shard folder of a task and returns its manifest.

    Args:
      task: the task. If it needs labels and has none, they are those of its files.
      files: the file of each split.
      tokenizer: the tokenizer.
      output: the folder to create.
      max_length: the length of the longest sequence in tokens, special tokens counted; None = that
        of the kind.
      execution: where the work is done; this does not change the shards.
      **options: other attributes of the builder of the kind; they have the names of flags.

    Raises:
      UserError: files, rows or options cannot be used.
    """
    kind = KINDS[task.kind]
    builder = builder_of(task)(task, files, tokenizer, max_length or kind.max_length, **options)
    return builder.build(output, execution)


def build_rows(
    task: Task,
    rows: Mapping[str, Sequence[Any]],
    tokenizer: Tokenizer,
    output: AnyPath,
    max_length: int | None = None,
    **options: Any,
) -> manifest.Manifest:
    """Builds the shard folder of a task from rows in memory; see `build`.

    Args:
      task: a task with its labels; those of tags may be found.
      rows: those of each split, in the form that the module of the kind reads from files: of texts
        with labels or scores `labelled_text.UsableRow`, of questions `span.FileQuestion`, of tags
        `tagged_texts.TaggedWords`. Other kinds have files.
      tokenizer: as in `build`, and so are the other arguments.
      output: the folder to create.
      max_length: the length of the longest sequence in tokens.
      **options: other attributes of the builder of the kind, and `execution`.
    """
    return build(task, {}, tokenizer, output, max_length, rows=rows, **options)


def builder_of(task: Task) -> type["Builder"]:
    """Returns the class of the builder of a task."""
    return kinds.load(KINDS[task.kind].builder).Builder


@dataclasses.dataclass
class Builder(Generic[Row, AnyCounts]):
    """Builds the shard folder of a task.

    A kind of task is a subclass, with the types of its rows and counts. Its further attributes have
    the names of flags of `build_task_shards`.

    Attributes:
      task: the task.
      files: the file of each split; only test files may have no labels or answers.
      tokenizer: the tokenizer.
      max_length: the length of the longest sequence in tokens, special tokens counted.
      format: the format of the files; None = by their names.
      skip_bad_rows: whether rows that cannot be used are left out and counted.
      seed: the seed of the order of training examples, and of draws among them.
      report: is called with lines of progress and the summaries.
      rows: the rows of the splits that have no file; see `build_rows`.
    """

    task: Task
    files: Mapping[str, AnyPath]
    tokenizer: Tokenizer
    max_length: int
    format: str | None = None
    skip_bad_rows: bool = False
    seed: int = 0
    report: Callable[[str], None] = print
    rows: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    counts_type: ClassVar[type] = SplitCounts
    rows_at_once: ClassVar[int] = 4096  # tokenizers are several times faster on thousands of texts
    noun: ClassVar[str] = "row"  # what messages call a row

    def build(self, output: AnyPath, execution: Execution) -> manifest.Manifest:
        """Builds the folder and returns its manifest.

        Raises:
          UserError: files, rows or options cannot be used, or a file has changed meanwhile.
        """
        inputs = Inputs(self.inputs)
        with input_files.explained(inputs.check):
            return self._built(output, execution, inputs)

    def _built(self, output: AnyPath, execution: Execution, inputs: Inputs) -> manifest.Manifest:
        """See `build`; `inputs` are compared before the manifest is written."""
        self.prepare()
        if note := look_alike(self.task.labels):
            self.report(note)
        shards: list[manifest.Shard] = []
        files: dict[str, str] = {}
        counts: dict[str, AnyCounts] = {}
        with splits.new_folder(output, self.tokenizer, execution, self.seed) as writer:
            for split in self.splits:
                counts[split] = each = self.counts(split)
                rows = self.read(split, each, writer)
                shards += writer.write(split, rows, self.rows_at_once, self.examples(), each)
                if not each.examples:
                    raise UserError(self.nothing(split, each))
                files |= self.write_beside(writer.folder, split, each)
                self.report("; ".join(self.summary(split, each)))
            self.finish()
            built = self._manifest(shards, counts, files)
            inputs.check()
            manifest.write(writer.folder, built)
        return built

    @property
    def splits(self) -> list[str]:
        """The splits that have a file or rows, in their order."""
        return [split for split in SPLITS if split in self.files or split in self.rows]

    @property
    def inputs(self) -> Iterable[str | os.PathLike]:
        """All files and folders that are read."""
        return self.files.values()

    def prepare(self) -> None:
        """Checks the options, and completes the task by what its files have.

        Raises:
          UserError: an option or a file cannot be used.
        """

    def counts(self, split: str) -> AnyCounts:
        """Returns the counts of a split before it is read."""
        known = () if split.startswith("test") else self.task.skipped
        bad = BadRows(self.skip_bad_rows, known)
        return self.counts_type(bad, splits.no_targets(self.task.labels))

    def source(self, split: str, counts: AnyCounts) -> Iterable[Any]:
        """Returns the rows of a split that are in memory, or those of its file."""
        return self.rows[split] if split in self.rows else self.parsed(split, counts)

    def parsed(self, split: str, counts: AnyCounts) -> Iterable[Any]:
        """Returns the rows of a file; `counts.bad` is called with those that cannot be used."""
        raise NotImplementedError

    def read(self, split: str, counts: AnyCounts, writer: Splits) -> Iterable[Row]:
        """Returns the rows of a split; `counts.bad` is called with those that cannot be used."""
        raise NotImplementedError

    def examples(self) -> Make[Row, AnyCounts]:
        """Returns the function that makes the examples of some rows and counts them."""
        raise NotImplementedError

    def write_beside(self, folder: AnyPath, split: str, counts: AnyCounts) -> dict[str, str]:
        """Writes the files of a split beside its shards; returns the SHA-256 of each by name."""
        return {}

    def finish(self) -> None:
        """Reports what is known when all splits are written."""

    @property
    def features(self) -> tuple[str, ...]:
        """The features of the examples."""
        raise NotImplementedError

    def totals(self, counts: AnyCounts) -> dict[str, Any]:
        """Returns the counts of a split that only this kind records."""
        return {}

    def description(self, counts: Mapping[str, AnyCounts]) -> Description:
        """Returns the description of the task with the entries of its kind."""
        return self.task.description()

    def settings(self) -> dict[str, Any]:
        """Returns the settings that only this kind records."""
        return {}

    @property
    def skipped(self) -> Mapping[str, int]:
        """The number of rows left out before they belonged to a split, by reason."""
        return {}

    def summary(self, split: str, counts: AnyCounts) -> list[str]:
        """Returns the parts of the line that is reported of a split."""
        raise NotImplementedError

    def nothing(self, split: str, counts: AnyCounts) -> str:
        """Returns the message about a split without examples."""
        place = self.files.get(split, split)
        return f"{place}: no {self.noun} can be used: {counts.bad}"

    def _manifest(
        self,
        shards: Iterable[manifest.Shard],
        counts: Mapping[str, AnyCounts],
        files: Mapping[str, str],
    ) -> manifest.Manifest:
        """Returns the manifest, with the splits without labels, and totals over all splits."""
        lengths = sum((each.lengths for each in counts.values()), collections.Counter())
        left_out = collections.Counter(self.skipped)
        left_out = sum((each.bad.counts for each in counts.values()), left_out)
        totals = {name: sum(getattr(each, name) for each in counts.values()) for name in SUMMED}
        names = {split: paths.path(path).name for split, path in self.files.items()}
        unlabelled = tuple(split for split, each in counts.items() if not each.labeled)
        return manifest.Manifest(
            kind="task",
            features=self.features,
            tokenizer=self.tokenizer.files,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            max_length=self.max_length,
            seed=self.seed,
            shards=tuple(shards),
            config=TaskSettings(files=names, **self.settings()),
            task=dataclasses.replace(self.description(counts), unlabelled=unlabelled),
            totals=TaskTotals(
                **totals,
                skipped=dict(sorted(left_out.items())),
                splits={split: each.totals(**self.totals(each)) for split, each in counts.items()},
            ),
            length_histogram=tuple(lengths[n] for n in range(max(lengths) + 1)),
            files=files,
        )

    def check_max_length(self, texts: int) -> None:
        """Checks that a sequence has room for a token of each of its texts.

        Raises:
          UserError: `max_length` is too small; the message names the least that is possible.
        """
        least = pair_packing.num_specials(texts, self.tokenizer) + texts
        if self.max_length < least:
            raise UserError(
                f"--max_length={self.max_length} leaves no room for the text beside the special "
                f"tokens: the least is {least}"
            )


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
