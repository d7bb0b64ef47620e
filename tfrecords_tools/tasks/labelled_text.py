"""Makes the shard folder of a fine-tuning task from its files.

Rows are read (`tables`), tokenized thousands at a time, packed and written in the order of their
file; `row` is the place there, so that predictions can be laid beside the rows they belong to.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from official.shards import features, manifest
from official.shards.provenance import TaskSettings
from official.tasks import SPLITS, Task, nearest
from official.tokenizers import Tokenizer, packing
from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.tasks.folder import (
    SplitCounts,
    check_room,
    make_manifest,
    names,
    no_targets,
    write_shards,
)
from tfrecords_tools.tasks.readers import tables

ROWS_AT_ONCE = 8192  # tokenizers are several times faster on thousands of texts than on one
MAX_LABELS_FOUND = 1000
SECONDS_BETWEEN_REPORTS = 5

# Number of the row, its one or two texts, and its label's id, its score, or None.
UsableRow = tuple[int, list[str], int | float | None]


def from_flags(
    options: flags.FlagValues,
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    max_length: int,
    report: Callable[[str], None],
) -> manifest.Manifest:
    """Builds what the flags of `build_task_shards` say; see `build`."""
    how = options.format, options.skip_bad_rows
    return build(task, files, tokenizer, Path(options.output), max_length, *how, report=report)


def build(
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    output: Path,
    max_length: int = 128,
    format: str | None = None,
    skip_bad_rows: bool = False,
    examples_per_shard: int = 100_000,
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Writes the shard folder of a task.

    Args:
      task: what the files hold; labels that it leaves open are found in the train file.
      files: the file of each split; only those of tests may lack their labels.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to make.
      max_length: longest example in tokens, special ones counted; what is longer is cut.
      format: "tsv", "csv" or "jsonl"; None to go by the names of the files.
      skip_bad_rows: whether rows that cannot be used are left out and counted.
      examples_per_shard: where a new shard is begun.
      report: takes lines of progress and the summary.

    Returns:
      The manifest as written.

    Raises:
      UserError: files, columns, rows or labels that cannot be used.
    """
    parts = 2 if task.columns.text_pair is not None else 1
    check_room(parts, tokenizer, max_length)
    if task.kind == "classification" and not task.labels:
        task = _with_found_labels(task, files, format, skip_bad_rows)
    shards: list[manifest.Shard] = []
    tallies: dict[str, SplitCounts] = {}
    with atomic.folder(output) as folder:
        for split in (s for s in SPLITS if s in files):
            known = () if split.startswith("test") else task.skipped
            bad = tables.BadRows(skip_bad_rows, known)
            tally = SplitCounts(bad, no_targets(task.labels))
            rows = _with_progress(_usable(task, split, files[split], format, bad), split, report)
            examples = _examples(rows, task, tokenizer, max_length, tally)
            shards += write_shards(folder, split, examples, examples_per_shard)
            if not tally.examples:
                raise UserError(f"{files[split]}: no row can be used: {tally.bad}")
            tallies[split] = tally
            report(_summary(split, tally, max_length))
        tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
        made = _manifest(task, files, tokenizer, max_length, shards, tallies)
        manifest.write(folder, made)
    return made


def _with_found_labels(
    task: Task, files: Mapping[str, Path], format: str | None, skip_bad_rows: bool
) -> Task:
    if "train" not in files:
        raise UserError("without a train file the labels cannot be found: name them with --labels")
    columns = task.columns_for("train", tables.format_of(files["train"], format))
    column = columns.label
    found: set[str] = set()
    for row in tables.read(
        files["train"],
        [column],
        header=columns.header,
        format=format,
        bad=tables.BadRows(skip_bad_rows),
    ):
        if label := row.cells[0].strip():
            found.add(label)
        if len(found) > MAX_LABELS_FOUND:
            raise UserError(
                f"{files['train']}: over {MAX_LABELS_FOUND:,} different values in column "
                f"{column!r}: is that the label? Name the labels with --labels, or use "
                "--task=regression for scores"
            )
    if len(found) < 2:
        shown = ", ".join(map(repr, found)) or "nothing"
        raise UserError(
            f"{files['train']}: column {column!r} holds {shown}, where at least two labels are "
            "wanted to tell apart"
        )
    try:
        labels = sorted(found, key=int)
    except ValueError:
        labels = sorted(found)
    return dataclasses.replace(task, labels=tuple(labels), values=())


def _examples(
    rows: Iterator[UsableRow], task: Task, tokenizer: Any, max_length: int, tally: SplitCounts
) -> Iterator[bytes]:
    """Yields the serialized examples of a file and keeps the tally."""
    parts = 2 if task.columns.text_pair is not None else 1
    specials = packing.num_specials(parts, tokenizer)
    while batch := list(itertools.islice(rows, ROWS_AT_ONCE)):
        ids = tokenizer.encode([text for _, texts, _ in batch for text in texts])
        for i, (number, _, target) in enumerate(batch):
            segments = ids[i * parts : (i + 1) * parts]
            token_ids, segment_lengths = packing.pack_arrays(segments, tokenizer, max_length)
            tally.add(len(token_ids))
            tally.truncated += len(token_ids) < sum(map(len, segments)) + specials
            example = {"token_ids": token_ids, "segment_lengths": segment_lengths, "row": number}
            if target is None:
                tally.labelled = False
            elif task.kind == "classification":
                example["label"] = target
                tally.targets[task.labels[target]] += 1
            else:
                example["score"] = target
            yield features.serialize(example)


def _with_progress(
    rows: Iterator[UsableRow], split: str, report: Callable[[str], None]
) -> Iterator[UsableRow]:
    started = reported = time.monotonic()
    for number, row in enumerate(rows, 1):
        yield row
        if number % 1000 == 0 and time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            report(f"{split}: {number:,} rows so far, {number / (reported - started):,.0f} rows/s")


def _usable(
    task: Task, split: str, path: Path, format: str | None, bad: tables.BadRows
) -> Iterator[UsableRow]:
    columns = task.columns_for(split, tables.format_of(path, format))
    text_columns = [c for c in (columns.text, columns.text_pair) if c is not None]
    title_columns = [] if columns.title is None else [columns.title]
    label_columns = [] if columns.label is None else [columns.label]
    test = split.startswith("test")
    rows = tables.read(
        path,
        text_columns + title_columns + label_columns,
        optional=label_columns if test else (),
        header=columns.header,
        format=format,
        bad=bad,
        labels=task.labels,
    )
    ids = {name: i for names in (task.labels, task.values) for i, name in enumerate(names)}
    for number, line, cells in rows:
        texts = list(cells[: len(text_columns)])
        if title_columns:
            texts[0] = f"{cells[len(text_columns)]} {texts[0]}"
        if task.line_break:
            texts = [text.replace(task.line_break, " ") for text in texts]
        label = cells[-1].strip() if label_columns and cells[-1] is not None else None
        where = tables.place(path, line)
        empty = [c for c, text in zip(text_columns, texts, strict=True) if not text.strip()]
        if empty and not test:
            bad("empty text", f"{where}: nothing in column {empty[0]!r}")
        elif label is None:
            yield number, texts, None
        elif task.kind == "classification":
            if label in ids:
                yield number, texts, ids[label]
                continue
            bad(
                "label not in the set",
                f"{where}: label {label!r} in column {columns.label!r} is none of "
                f"{', '.join(map(repr, task.values))}{nearest(label, task.values)}",
            )
        else:
            score = _score(label)
            if math.isfinite(score):
                yield number, texts, score
                continue
            bad(
                "score not a number",
                f"{where}: {label!r} in column {columns.label!r} is not a number",
            )


def _score(text: str) -> float:
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(float(text)))  # as it is stored, where 1e39 is infinite
    except ValueError:
        return math.nan


def _manifest(
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    max_length: int,
    shards: Iterable[manifest.Shard],
    tallies: Mapping[str, SplitCounts],
) -> manifest.Manifest:
    target = "label" if task.kind == "classification" else "score"
    splits = {
        split: tally.totals(labels=dict(tally.targets) if tally.labelled else {})
        for split, tally in tallies.items()
    }
    # Splits that lack the label or score, alone among the features.
    unlabelled = tuple(split for split, tally in tallies.items() if not tally.labelled)
    return make_manifest(
        dataclasses.replace(task.description(), unlabelled=unlabelled),
        ("token_ids", "segment_lengths", "row", target),
        tokenizer,
        max_length,
        shards,
        splits,
        tallies,
        TaskSettings(files=names(files)),
    )


def _summary(split: str, tally: SplitCounts, max_length: int) -> str:
    parts = [
        f"{split}: {tally.examples:,} examples",
        f"{tally.tokens:,} tokens",
        f"{tally.truncated:,} cut at {max_length} tokens",
    ]
    if tally.bad.counts:
        parts.append(f"left out: {tally.bad}")
    if not tally.labelled:
        parts.append("no labels")
    elif tally.targets:
        parts.append(tally.shares())
    return "; ".join(parts)
