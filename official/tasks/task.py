"""What a fine-tuning task is."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping

from official.tasks.description import Description
from official.tasks.kinds import METRICS
from official.utils.errors import UserError

# What a file can be for: beside the usual three, MNLI's texts of genres that training has not seen.
SPLITS = ("train", "validation", "validation_mismatched", "test", "test_mismatched")

# What choices are called, in this order.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where a file keeps what a task needs: names from its header line, or indices from "0".

    Attributes:
      text: the column of the text, or of the first text of a pair.
      text_pair: the column of the second text; None for tasks on single texts.
      label: the column of the label or score; None where the file has none.
      header: whether the first line of the file names the columns.
      title: a column whose text stands before that of `text`, with a blank between them.
    """

    text: str
    text_pair: str | None = None
    label: str | None = None
    header: bool = True
    title: str | None = None


@dataclasses.dataclass(frozen=True)
class Submission:
    """The file in which GLUE takes the predictions of a test split.

    Attributes:
      file: its name.
      rows: how many there are to predict.
    """

    file: str
    rows: int


@dataclasses.dataclass(frozen=True)
class Task:
    """One fine-tuning task.

    Attributes:
      name: what `--task` calls it.
      kind: a key of `official.tasks.kinds.KINDS`.
      columns: the columns of every split but those in `split_columns`.
      labels: the names of the classes; the index is the id that the model learns. Empty for
        regression and ranking. Of a choice they are letters, one for each choice.
      values: what stands in the files for each of `labels`, where that is something else; a
        file may have the labels' names all the same.
      metrics: what is reported, the deciding one first.
      files: the file of each split.
      split_columns: the columns of splits that are laid out otherwise.
      format_columns: the columns of files in formats (of `tfrecords_tools.tasks.readers.tables`)
        that name them, where the files as distributed do not.
      line_break: what stands for a line break in the texts as distributed; it is read as a blank.
      skipped: why rows of the files as distributed are left out and counted, in the words of
        `tfrecords_tools.tasks.readers.tables`; not of a test file, whose rows are all predicted.
      submissions: for GLUE's test splits, what the benchmark takes.
      no_answers: of spans, whether some questions have no answer in their text.
      blank: of a choice, whether a run of underscores in a question is the place of the choice,
        which otherwise stands behind the question.
    """

    name: str
    kind: str
    columns: Columns
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    split_columns: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    format_columns: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    line_break: str = ""
    skipped: tuple[str, ...] = ()
    submissions: Mapping[str, Submission] = dataclasses.field(default_factory=dict)
    no_answers: bool = False
    blank: bool = False

    def __post_init__(self) -> None:
        """Checks what the user of `generic` can get wrong."""
        if self.kind not in METRICS:
            raise UserError(f"a task is {' or '.join(METRICS)}, not {self.kind!r}")
        if self.kind == "regression" and self.labels:
            raise UserError("a regression task has scores and no labels: leave the labels out")
        for label in self.labels:
            if not label.strip() or label != label.strip() or set(label) & set("\t\r\n"):
                raise UserError(
                    f"{label!r} cannot be a label: a label has no tab, line break or outer space "
                    "and is not empty"
                )
            if self.labels.count(label) > 1:
                raise UserError(f"label {label!r} is named twice in {listed(self.labels)}")
        if len(self.labels) == 1:
            raise UserError(
                f"one label ({self.labels[0]!r}) leaves nothing to tell apart: name two"
            )
        for metric in self.metrics:
            if metric not in METRICS[self.kind]:
                raise UserError(
                    f"{self.kind} has no metric {metric!r}{nearest(metric, METRICS[self.kind])}: "
                    f"its metrics are {listed(METRICS[self.kind])}"
                )
        named = [c for c in dataclasses.astuple(self.columns)[:3] if c is not None]
        for column in named:
            if named.count(column) > 1:
                raise UserError(
                    f"column {column!r} is given twice: text, second text and label want a "
                    "column each"
                )
        object.__setattr__(self, "values", self.values or self.labels)
        object.__setattr__(self, "metrics", self.metrics or METRICS[self.kind][:1])

    def columns_for(self, split: str, format: str = "tsv") -> Columns:
        """The columns of the file of `split`, which is in the format given."""
        return self.split_columns.get(split, self.format_columns.get(format, self.columns))

    def description(self) -> Description:
        """Returns what a manifest says of the task."""
        columns = dataclasses.asdict(self.columns)
        return Description(
            name=self.name,
            kind=self.kind,
            pair=self.columns.text_pair is not None,
            labels=self.labels,
            values=self.values,
            metrics=self.metrics,
            no_answers=self.no_answers if self.kind == "span" else None,
            blank=self.blank if self.kind == "choice" else None,
            columns={
                name: column
                for name, column in columns.items()
                if name != "header" and column is not None
            },
        )


def nearest(name: str, known: Iterable[str]) -> str:
    """Words for a message: the member of `known` most like `name`, or nothing."""
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[found[0]]!r}?)" if found else ""


def listed(names: Iterable[str]) -> str:
    """Names for a message, quoted, with commas."""
    return ", ".join(repr(n) for n in names)
