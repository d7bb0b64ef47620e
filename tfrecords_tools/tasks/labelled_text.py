"""Examples of single texts or pairs with a label, several labels or a score (see `builder`).

A text of a task with several labels has any number of them: a cell such as `sport|news`, or in JSON
Lines a list.

With `windows`, a text that is longer than a row is an example of several sequences, its windows
(`official.tokenizers.windows.TextWindows`).

The feature `row` is the number of the row in the file, which assigns predictions to rows.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from typing_extensions import override

from official.tasks import GENERIC, KINDS, Columns, Description, Task, missing_labels
from official.tasks.task import SEPARATOR
from official.tokenizers import Tokenizer, pair_packing
from official.tokenizers.windows import TextWindows
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress
from official.utils.text_lines import BadRows
from tfrecords_tools.tasks import builder, tables
from tfrecords_tools.tasks.label_cells import LIST_SEPARATOR, Labels
from tfrecords_tools.tasks.splits import Example, Make, SplitCounts, Splits

MAX_INFERRED_LABELS = 1000
# What joins the labels, or the texts, of a list in JSON Lines.
_SEPARATORS = {"multi_label": SEPARATOR, "embedding": LIST_SEPARATOR}


class UsableRow(NamedTuple):
    """A row whose texts, label or score and weight can be used.

    Attributes:
      number: the number of the row.
      texts: its one or two texts, or more of lists.
      target: the id of its label, its score, a flag for each label, the scores of a teacher; None =
        it has none.
      weight: its weight in the loss.
    """

    number: int
    texts: list[str]
    target: int | float | list[int] | tuple[float, ...] | None
    weight: float = 1.0


# Makes of texts and a tokenizer the tokens of each row, and whether they were cut.
_Pack = Callable[[Sequence[str], Tokenizer], Iterator[tuple[Example, bool]]]


@dataclasses.dataclass
class Builder(builder.Builder["UsableRow", SplitCounts]):
    """Builds the shards of single texts or pairs with a label, several labels or a score.

    Attributes:
      unlabelled_train: whether the labels of the train file are not read, and may be missing: text
        that a teacher labels.
      weight_column: the column with the weights of the rows; None = all are 1, as those of test
        files.
      windows: the largest number of windows of a text; None = longer texts are cut.
      window_overlap: the number of tokens that two neighboring windows share; None = a quarter of
        the text of a window.
    """

    unlabelled_train: bool = False
    weight_column: str | None = None
    windows: int | None = None
    window_overlap: int | None = None

    @override
    def prepare(self) -> None:
        self.check_max_length(_parts(self.task))
        self._check_windows()
        if self.weight_column is not None:
            columns = self.task.columns
            others = (columns.text, columns.text_pair, columns.label, "")
            if self.weight_column in others or self.task.name not in GENERIC:
                raise UserError(
                    f"--weight_column={self.weight_column}: it must be a column of its own, in "
                    f"files of --task={', '.join(GENERIC[:-1])}"
                )
        if self.task.kind == "regression" or self.task.labels:
            return
        if self.unlabelled_train:
            raise UserError(
                "--unlabelled_train does not read the labels of the train file: name them with "
                "--labels, in the teacher's order"
            )
        self.task = with_labels_of_train_file(
            self.task, self.files, self.format, self.skip_bad_rows, self.report
        )

    def _check_windows(self) -> None:
        """Raises UserError if windows are not for these texts, or have no room."""
        if self.windows is None:
            if self.window_overlap is not None:
                raise UserError("--window_overlap is for windows: add --windows, or remove it")
            return
        if _parts(self.task) > 1 or self.tokenizer.reads_words:
            what = "pairs of texts" if _parts(self.task) > 1 else "an encoder of characters"
            raise UserError(f"--windows is for single texts of tokens, not for {what}: remove it")
        if self.windows < 2:
            raise UserError(f"--windows={self.windows}: at least 2: without it, texts are cut")
        if self.window_overlap is None:
            room = self.max_length - pair_packing.num_specials(1, self.tokenizer)
            self.window_overlap = room // 4
        if (reading := self._windows) is not None:
            reading.check(self.tokenizer, "--window_overlap=")

    @property
    def _windows(self) -> TextWindows | None:
        """How texts are read; None = longer ones are cut."""
        if self.windows is None:
            return None
        return TextWindows(self.windows, self.window_overlap or 0, self.max_length)

    @override
    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        return dataclasses.replace(
            self.task.description(), windows=self.windows, window_overlap=self.window_overlap
        )

    @override
    def parsed(self, split: str, counts: SplitCounts) -> Iterator["UsableRow"]:
        labeled = split != "train" or not self.unlabelled_train
        path, column = self.files[split], self.weight_column
        if column is None or split.startswith("test"):
            return usable(self.task, split, path, self.format, counts.bad, labeled)
        return self._weighted(split, path, column, counts, labeled)

    def _weighted(
        self, split: str, path: AnyPath, column: str, counts: SplitCounts, labeled: bool
    ) -> Iterator["UsableRow"]:
        """Yields the rows of a file with weights, one of which at least is above 0."""
        total = found = 0.0
        given = located(self.task, split, path, self.format, counts.bad, labeled, column)
        for row, _ in given:
            total, found = total + row.weight, found + 1
            yield row
        if found and not total:
            raise UserError(
                f"{path}: all weights in column {column!r} are 0: nothing would be learned: give "
                "some rows a weight above 0, or leave out --weight_column"
            )

    @override
    def read(self, split: str, counts: SplitCounts, writer: Splits) -> Iterator["UsableRow"]:
        progress = Progress(None, self.report, f"{split}: ", "rows")
        for number, row in enumerate(self.source(split, counts), 1):
            yield row
            if number % 1000 == 0:
                progress(1000)

    @override
    def examples(self) -> Make["UsableRow", SplitCounts]:
        pack: _Pack = functools.partial(_cut, parts=_parts(self.task), max_length=self.max_length)
        if (reading := self._windows) is not None:
            pack = functools.partial(_in_windows, reading=reading)
        weighted = self.weight_column is not None
        return functools.partial(_examples, task=self.task, pack=pack, weighted=weighted)

    @property
    @override
    def features(self) -> tuple[str, ...]:
        words = pair_packing.word_features(self.tokenizer)
        several = () if self.windows is None else ("sequence_lengths",)
        weight = () if self.weight_column is None else ("row_weight",)
        targets = KINDS[self.task.kind].targets
        return "token_ids", "segment_lengths", *several, "row", *weight, *words, *targets

    @override
    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        return {"labels": dict(counts.targets) if counts.labeled else {}}

    @override
    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        limit, several = self.max_length, ""
        if (reading := self._windows) is not None:
            limit = reading.tokens(self.tokenizer)
            several = (
                f" in up to {reading.count} windows of {reading.max_length} tokens, of which two "
                f"neighbors share {reading.overlap}"
            )
        parts = [
            f"{split}: {counts.examples:,} examples{several}",
            f"{counts.tokens:,} tokens",
            f"{counts.truncated:,} cut at {limit} tokens",
            *counts.left_out(),
        ]
        if not counts.labeled:
            parts.append("no labels")
        elif counts.targets:
            parts.append(counts.shares())
        return parts


def _parts(task: Task) -> int:
    """Returns the number of texts of an example."""
    return 2 if task.columns.text_pair is not None else 1


def with_labels_of_train_file(
    task: Task,
    files: Mapping[str, AnyPath],
    format: str | None,
    skip_bad_rows: bool,
    report: Callable[[str], None] = print,
) -> Task:
    """Returns a classification task with the labels that its train file has.

    Args:
      task: the task.
      files: the file of each split.
      format: the format of the files; None = by their names.
      skip_bad_rows: whether rows that cannot be used are left out.
      report: takes a line about values that are no labels.

    Raises:
      UserError: there is no train file, or it has less than two labels or too many.
    """
    if "train" not in files:
        raise UserError("without a train file the labels cannot be found: name them with --labels")
    columns = task.columns_for("train", tables.file_format(files["train"], format))
    column = columns.label
    if column is None:
        raise UserError(f"{files['train']} has no column of labels: name them with --labels")
    values: set[str] = set()
    bad = BadRows(skip_bad_rows)
    several = task.kind == "multi_label"
    rows = tables.read(
        files["train"],
        [],
        column,
        header=columns.header,
        format=format,
        bad=bad,
        lists=SEPARATOR if several else None,
    )
    cells = ((row, _cells(row.label, several)) for row in rows)
    for row, label in ((row, label.strip()) for row, names in cells for label in names):
        if set(label) & set("\t\r\n"):
            where = tables.location(files["train"], row.line)
            bad(
                "label not in the set",
                f"{where}: {label!r} cannot be a label: it has a tab or a line break",
            )
        elif label:
            values.add(label)
        if len(values) > MAX_INFERRED_LABELS:
            raise UserError(
                f"{files['train']}: over {MAX_INFERRED_LABELS:,} different values in column "
                f"{column!r}: is that the label? Name the labels with --labels, or use "
                "--task=regression for scores"
            )
    if unlabelled := missing_labels.among(values) - {""}:
        values -= unlabelled
        report(
            f"{files['train']}: rows with {' or '.join(map(repr, sorted(unlabelled)))} in column "
            f"{column!r} have no label; --labels names what is one"
        )
    if len(values) < (1 if several else 2):
        shown = ", ".join(map(repr, values)) or "nothing"
        raise UserError(
            f"{files['train']}: column {column!r} holds {shown}, and at least two labels are needed"
        )
    try:
        # Several may be one number (1, 01), and the order of a set differs from run to run.
        labels = sorted(values, key=lambda value: (int(value), value))
    except ValueError:
        labels = sorted(values)
    return dataclasses.replace(task, labels=tuple(labels), values=())


def _cells(label: str | None, several: bool) -> Sequence[str]:
    """Returns the labels of a row."""
    if label is None:
        return ()
    return label.split(SEPARATOR) if several else (label,)


def _cut(
    texts: Sequence[str], tokenizer: Tokenizer, parts: int, max_length: int
) -> Iterator[tuple[Example, bool]]:
    """Yields for each `parts` texts an example of one sequence, and whether it was cut."""
    specials = pair_packing.num_specials(parts, tokenizer)
    ids, words = tokenizer.encode(texts), pair_packing.split_words(texts, tokenizer)
    for i in range(0, len(texts), parts):
        segments = ids[i : i + parts]
        token_ids, segment_lengths = pair_packing.pack_arrays(segments, tokenizer, max_length)
        example: Example = {"token_ids": token_ids, "segment_lengths": segment_lengths}
        if words is not None:
            own = words[i : i + parts]
            example |= pair_packing.pack_word_arrays(own, max_length, pairs=tokenizer.pairs)
        yield example, len(token_ids) < sum(map(len, segments)) + specials


def _in_windows(
    texts: Sequence[str], tokenizer: Tokenizer, reading: TextWindows
) -> Iterator[tuple[Example, bool]]:
    """Yields for each text an example of the sequences that are its windows, and if it was cut."""
    values, splits = tokenizer.encode_ragged(texts)
    limit = reading.tokens(tokenizer)
    with tf.device("/CPU:0"):
        ids = tf.RaggedTensor.from_row_splits(values, splits)
        token_ids, numbers = reading.pack(ids, tokenizer)
    rows = np.split(token_ids.values.numpy(), token_ids.row_splits[1:-1].numpy())
    windows_of = itertools.groupby(zip(numbers.numpy(), rows, strict=True), lambda pair: pair[0])
    for (_, own), length in zip(windows_of, np.diff(splits), strict=True):
        packed = [row for _, row in own]
        sizes = list(map(len, packed))
        example = {"token_ids": np.concatenate(packed), "segment_lengths": sizes}
        yield example | {"sequence_lengths": sizes}, bool(length > limit)


def _examples(
    rows: Sequence[UsableRow],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    task: Task,
    pack: _Pack,
    weighted: bool = False,
) -> Iterator[Example]:
    """Yields the examples of some rows and counts them."""
    rows = [UsableRow(*row) for row in rows]
    packed = pack([text for row in rows for text in row.texts], tokenizer)
    for (number, _, target, weight), (example, was_cut) in zip(rows, packed, strict=True):
        counts.count(*example.get("sequence_lengths", [len(example["token_ids"])]))
        counts.truncated += was_cut
        example["row"] = number
        if weighted:
            example["row_weight"] = weight
        if target is None:
            counts.labeled = False
        elif isinstance(target, int):
            example["label"] = target
            counts.targets[task.labels[target]] += 1
        elif isinstance(target, list):
            example["label_flags"] = target
            for label, flag in zip(task.labels, target, strict=True):
                counts.targets[label] += flag
        else:
            example["score"] = target
        yield example


def usable(
    task: Task,
    split: str,
    path: AnyPath,
    format: str | None,
    bad: BadRows,
    labeled: bool = True,
) -> Iterator[UsableRow]:
    """Yields the rows of a file whose texts and label or score can be used.

    Args:
      task: a task with its labels, or a regression.
      split: the split of the file; only a test file may have no labels.
      path: the file.
      format: "tsv", "csv" or "jsonl"; None = by the file name.
      bad: is called with rows that cannot be used.
      labeled: whether the file has labels or scores.
    """
    for row, _ in located(task, split, path, format, bad, labeled):
        yield row


def located(
    task: Task,
    split: str,
    path: AnyPath,
    format: str | None,
    bad: BadRows,
    labeled: bool = True,
    weight: str | None = None,
) -> Iterator[tuple[UsableRow, str]]:
    """Yields the rows of `usable`, each with its place in the file, for messages.

    `weight` is the column of their weights; None = all are 1.
    """
    columns = task.columns_for(split, tables.file_format(path, format))
    named = (columns.text, columns.text_pair, *task.negative_columns)
    text_columns = [c for c in named if c is not None]
    title_columns = [] if columns.title is None else [columns.title]
    weight_columns = [] if weight is None else [weight]
    test = split.startswith("test")
    rows = tables.read(
        path,
        text_columns + title_columns + weight_columns,
        columns.label if labeled else None,
        optional=test,
        header=columns.header,
        format=format,
        bad=bad,
        labels=task.labels,
        lists=_SEPARATORS.get(task.kind),
    )
    requested = labeled and columns.label is not None
    labels = Labels(task, test, lambda: _cells_of(task, columns, path, format))
    for number, line, cells, cell in rows:
        texts = list(cells[: len(text_columns)])
        if title_columns:
            texts[0] = f"{cells[len(text_columns)]} {texts[0]}"
        if task.line_break:
            texts = [text.replace(task.line_break, " ") for text in texts]
        label = None if cell is None else cell.strip()
        where = tables.location(path, line)
        factor = 1.0 if weight is None else _weight(cells[-1])
        empty = [c for c, text in zip(text_columns, texts, strict=True) if not text.strip()]
        if empty and not test:
            bad("empty text", f"{where}: column {empty[0]!r} is empty")
        elif factor is None:
            bad(
                "not a weight",
                f"{where}: {cells[-1]!r} in column {weight!r} is no weight: give a number from 0 "
                "on in all rows",
            )
        elif not requested:
            yield UsableRow(number, texts, None, factor), where
        elif label is None or (reason := labels.missing(label)):
            if labels.are_none:
                yield UsableRow(number, texts, None, factor), where
            else:
                bad.leave_out(missing_labels.WITHOUT if label is None else reason)
        elif (value := labels.value(label)) is not None:
            yield UsableRow(number, texts, value, factor), where
        elif labels.are_none:
            yield UsableRow(number, texts, None, factor), where
        else:
            bad(*labels.fault(label, columns.label, where))
    for note in labels.notes:
        bad.note(note)


def _weight(cell: str) -> float | None:
    """Returns the weight in a cell, which is stored as float32; None if there is none."""
    try:
        with np.errstate(over="ignore"):
            weight = float(np.float32(cell))
    except ValueError:
        return None
    return weight if 0 <= weight < math.inf else None


def _cells_of(
    task: Task, columns: Columns, path: AnyPath, format: str | None
) -> Iterator[str | None]:
    """Yields the labels or scores of the rows of a file; None for rows without."""
    rows = tables.read(
        path, [], columns.label, optional=True, header=columns.header, format=format,
        bad=BadRows(skip=True), labels=task.labels, lists=_SEPARATORS.get(task.kind),
    )  # fmt: skip
    return (None if row.label is None else row.label.strip() for row in rows)
