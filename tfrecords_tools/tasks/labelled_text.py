"""Builds the shard folder of a classification or regression task from its files.

A text of a task with several labels has any number of them: a cell such as `sport|news`, or in JSON
Lines a list.

Rows are read (`tables`), tokenized in batches, packed and written (`splits`). The feature `row` is
the number of the row in the file, which assigns predictions to rows.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import flags

from official.shards import manifest
from official.shards.manifest import TaskSettings
from official.tasks import KINDS, SPLITS, Task, nearest
from official.tasks.task import SEPARATOR
from official.tokenizers import Tokenizer, pair_packing
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress
from tfrecords_tools.tasks import folder as task_folder
from tfrecords_tools.tasks import splits, tables
from tfrecords_tools.tasks.folder import Example, SplitCounts
from tfrecords_tools.writing.execution import Execution

ROWS_AT_ONCE = 4096  # tokenizers are several times faster on thousands of texts than on one
MAX_INFERRED_LABELS = 1000

# The number of the row, its one or two texts, and the id of its label, its score, a flag for each
# label, or None.
UsableRow = tuple[int, list[str], int | float | list[int] | None]


def from_flags(
    options: flags.FlagValues,
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    max_length: int,
    execution: Execution,
    report: Callable[[str], None],
) -> manifest.Manifest:
    """Builds the folder that the flags of `build_task_shards` describe; see `build`."""
    return build(
        task,
        files,
        tokenizer,
        options.output,
        max_length,
        options.format,
        options.skip_bad_rows,
        unlabelled=("train",) if options.unlabelled_train else (),
        seed=options.seed,
        execution=execution,
        report=report,
    )


def build(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    output: AnyPath,
    max_length: int = 128,
    format: str | None = None,
    skip_bad_rows: bool = False,
    unlabelled: Collection[str] = (),
    seed: int = 0,
    execution: Execution = Execution(),  # noqa: B008
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Builds the shard folder of a task and returns its manifest.

    Args:
      task: the task. If it has no labels, they are those of the train file.
      files: the file of each split; only test files may have no labels.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to create.
      max_length: the length of the longest example in tokens, special tokens counted; longer
        examples are cut.
      format: "tsv", "csv" or "jsonl"; None = by the file names.
      skip_bad_rows: whether rows that cannot be used are left out and counted.
      unlabelled: the splits whose labels are not read, and may be missing: text that a teacher
        labels.
      seed: the seed of the order of training examples.
      execution: where the work is done; this does not change the shards.
      report: is called with lines of progress and the summary.

    Raises:
      UserError: files, columns, rows or labels cannot be used.
    """
    parts = 2 if task.columns.text_pair is not None else 1
    task_folder.check_max_length(parts, tokenizer, max_length)
    if task.kind in ("classification", "multi_label") and not task.labels:
        if "train" in unlabelled:
            raise UserError(
                "--unlabelled_train: without the labels of a train file their names cannot be "
                "found: name them with --labels, in the teacher's order"
            )
        task = with_labels_of_train_file(task, files, format, skip_bad_rows)
    shards: list[manifest.Shard] = []
    counts: dict[str, SplitCounts] = {}
    with splits.new_folder(output, tokenizer, execution, seed) as writer:
        for split in (s for s in SPLITS if s in files):
            known = () if split.startswith("test") else task.skipped
            bad = tables.BadRows(skip_bad_rows, known)
            each = SplitCounts(bad, task_folder.no_targets(task.labels))
            usable_rows = usable(task, split, files[split], format, bad, split not in unlabelled)
            rows = _with_progress(usable_rows, split, report)
            make = functools.partial(_examples, task=task, max_length=max_length)
            shards += writer.write(split, rows, ROWS_AT_ONCE, make, each)
            if not each.examples:
                raise UserError(f"{files[split]}: no row can be used: {each.bad}")
            counts[split] = each
            report(_summary(split, each, max_length))
        built = _manifest(task, files, tokenizer, max_length, shards, counts, seed)
        manifest.write(writer.folder, built)
    return built


def with_labels_of_train_file(
    task: Task, files: Mapping[str, AnyPath], format: str | None, skip_bad_rows: bool
) -> Task:
    """Returns a classification task with the labels that its train file has.

    Raises:
      UserError: there is no train file, or it has less than two labels or too many.
    """
    if "train" not in files:
        raise UserError("without a train file the labels cannot be found: name them with --labels")
    columns = task.columns_for("train", tables.file_format(files["train"], format))
    column = columns.label
    values: set[str] = set()
    bad = tables.BadRows(skip_bad_rows)
    several = task.kind == "multi_label"
    rows = tables.read(
        files["train"],
        [column],
        header=columns.header,
        format=format,
        bad=bad,
        lists=SEPARATOR if several else None,
    )
    cells = ((row, row.cells[0].split(SEPARATOR) if several else row.cells) for row in rows)
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
    if len(values) < (1 if several else 2):
        shown = ", ".join(map(repr, values)) or "nothing"
        raise UserError(
            f"{files['train']}: column {column!r} holds {shown}, where at least two labels are "
            "wanted to tell apart"
        )
    try:
        labels = sorted(values, key=int)
    except ValueError:
        labels = sorted(values)
    return dataclasses.replace(task, labels=tuple(labels), values=())


def _examples(
    rows: Sequence[UsableRow],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    task: Task,
    max_length: int,
) -> Iterator[Example]:
    """Yields the examples of some rows and counts them."""
    parts = 2 if task.columns.text_pair is not None else 1
    specials = pair_packing.num_specials(parts, tokenizer)
    texts = [text for _, both, _ in rows for text in both]
    ids, words = tokenizer.encode(texts), pair_packing.split_words(texts, tokenizer)
    for i, (number, _, target) in enumerate(rows):
        segments = ids[i * parts : (i + 1) * parts]
        token_ids, segment_lengths = pair_packing.pack_arrays(segments, tokenizer, max_length)
        counts.count(len(token_ids))
        counts.truncated += len(token_ids) < sum(map(len, segments)) + specials
        example = {"token_ids": token_ids, "segment_lengths": segment_lengths, "row": number}
        if words is not None:
            mine = words[i * parts : (i + 1) * parts]
            example |= pair_packing.pack_word_arrays(mine, max_length)
        if target is None:
            counts.labelled = False
        elif task.kind == "classification":
            example["label"] = target
            counts.targets[task.labels[target]] += 1
        elif task.kind == "multi_label":
            example["label_flags"] = target
            for label, flag in zip(task.labels, target, strict=True):
                counts.targets[label] += flag
        else:
            example["score"] = target
        yield example


def _with_progress(
    rows: Iterator[UsableRow], split: str, report: Callable[[str], None]
) -> Iterator[UsableRow]:
    progress = Progress(None, report, f"{split}: ", "rows")
    for number, row in enumerate(rows, 1):
        yield row
        if number % 1000 == 0:
            progress(1000)


def usable(
    task: Task,
    split: str,
    path: AnyPath,
    format: str | None,
    bad: tables.BadRows,
    labelled: bool = True,
) -> Iterator[UsableRow]:
    """Yields the rows of a file whose texts and label or score can be used.

    Args:
      task: a classification with its labels, or a regression.
      split: the split of the file; only a test file may have no labels.
      path: the file.
      format: "tsv", "csv" or "jsonl"; None = by the file name.
      bad: is called with rows that cannot be used.
      labelled: whether the file has labels or scores.
    """
    columns = task.columns_for(split, tables.file_format(path, format))
    text_columns = [c for c in (columns.text, columns.text_pair) if c is not None]
    title_columns = [] if columns.title is None else [columns.title]
    label_columns = [columns.label] if labelled and columns.label is not None else []
    test = split.startswith("test")
    rows = tables.read(
        path,
        text_columns + title_columns + label_columns,
        optional=label_columns if test else (),
        header=columns.header,
        format=format,
        bad=bad,
        labels=task.labels,
        lists=SEPARATOR if task.kind == "multi_label" else None,
    )
    ids = {name: i for names in (task.labels, task.values) for i, name in enumerate(names)}
    for number, line, cells in rows:
        texts = list(cells[: len(text_columns)])
        if title_columns:
            texts[0] = f"{cells[len(text_columns)]} {texts[0]}"
        if task.line_break:
            texts = [text.replace(task.line_break, " ") for text in texts]
        label = cells[-1].strip() if label_columns and cells[-1] is not None else None
        where = tables.location(path, line)
        empty = [c for c, text in zip(text_columns, texts, strict=True) if not text.strip()]
        if empty and not test:
            bad("empty text", f"{where}: nothing in column {empty[0]!r}")
        elif label is None:
            yield number, texts, None
        elif (value := _value(task, label, ids)) is not None:
            yield number, texts, value
        elif task.kind == "multi_label":
            unknown = next(name for name in _several(label) if name not in ids)
            bad(
                "label not in the set",
                f"{where}: label {unknown!r} in column {columns.label!r} is none of "
                f"{', '.join(map(repr, task.values))}{nearest(unknown, task.values)}; "
                f"{SEPARATOR!r} separates the labels of a text",
            )
        elif task.kind == "classification":
            bad(
                "label not in the set",
                f"{where}: label {label!r} in column {columns.label!r} is none of "
                f"{', '.join(map(repr, task.values))}{nearest(label, task.values)}",
            )
        else:
            bad(
                "score not a number",
                f"{where}: {label!r} in column {columns.label!r} is not a number",
            )


def _several(cell: str) -> list[str]:
    """Returns the labels of a text that may have any number of them."""
    return [name for part in cell.split(SEPARATOR) if (name := part.strip())]


def _value(task: Task, label: str, ids: Mapping[str, int]) -> int | float | list[int] | None:
    """Returns the class, the score or the flags of a label; None if it is none."""
    if task.kind == "multi_label":
        numbers = [ids.get(name) for name in _several(label)]
        return None if None in numbers else [int(i in numbers) for i in range(len(task.labels))]
    if task.kind == "classification":
        return ids.get(label)
    score = _score(label)
    return score if math.isfinite(score) else None


def _score(text: str) -> float:
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(float(text)))  # Stored as float32: 1e39 is infinite.
    except ValueError:
        return math.nan


def _manifest(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    max_length: int,
    shards: Iterable[manifest.Shard],
    counts: Mapping[str, SplitCounts],
    seed: int,
) -> manifest.Manifest:
    (target,) = KINDS[task.kind].targets
    totals = {
        split: each.totals(labels=dict(each.targets) if each.labelled else {})
        for split, each in counts.items()
    }
    return task_folder.make_manifest(
        task.description(),
        ("token_ids", "segment_lengths", "row", *pair_packing.word_features(tokenizer), target),
        tokenizer,
        max_length,
        shards,
        totals,
        counts,
        TaskSettings(files=task_folder.file_names(files)),
        seed,
    )


def _summary(split: str, counts: SplitCounts, max_length: int) -> str:
    parts = [
        f"{split}: {counts.examples:,} examples",
        f"{counts.tokens:,} tokens",
        f"{counts.truncated:,} cut at {max_length} tokens",
    ]
    if counts.bad.counts:
        parts.append(f"left out: {counts.bad}")
    if not counts.labelled:
        parts.append("no labels")
    elif counts.targets:
        parts.append(counts.shares())
    return "; ".join(parts)
