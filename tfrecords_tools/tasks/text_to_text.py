"""Builds the shard folder of a task as text in and text out (`official.tasks.text_to_text`).

An example has the ids of its input and of its target, each with the token that ends it. The right
answers are kept beside the shards as texts (`official.shards.side_texts`).

Reads the files of a task as pairs of an input and a target (`official.tasks.text_to_text`).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from official.shards import manifest, side_texts
from official.shards.manifest import TaskSettings
from official.shards.side_texts import Reference
from official.tasks import LETTERS, SPLITS, Task, text_to_text
from official.tokenizers import Tokenizer
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import choice_files, labelled_text, splits, squad, tables
from tfrecords_tools.tasks import folder as task_folder
from tfrecords_tools.tasks.folder import Example
from tfrecords_tools.writing.execution import Execution

ROWS_AT_ONCE = 4096


class Pair(NamedTuple):
    """An input and its target.

    Attributes:
      row: the number of the row in its file, from 0.
      id: the id of a question; empty = it has none.
      source: the input.
      target: the target; None = it is not known.
      answers: the right answers: the label, the exact score, all answers to a question, or the
        target; None = they are not known.
      location: the place in the file, for messages.
    """

    row: int
    id: str
    source: str
    target: str | None
    answers: tuple[str, ...] | None
    location: str


def pairs(
    task: Task, split: str, path: AnyPath, format: str | None, bad: tables.BadRows
) -> Iterator[Pair]:
    """Yields the pairs of a file, in order.

    Args:
      task: a task of the kind "text_to_text", with its labels.
      split: the split of the file; only a test file may have no answers.
      path: the file.
      format: "tsv", "csv" or "jsonl"; None = by the file name.
      bad: is called with rows that cannot be used.

    Raises:
      UserError: the file cannot be read, or `bad` raises it.
    """
    if task.answers == "span":
        return _questions(task, split, path, bad)
    if task.answers == "choice":
        return _choices(task, split, path, bad)
    if task.answers == "generation":
        return _generation(task, split, path, format, bad)
    return _labelled(task, split, path, format, bad)


def _labelled(task, split, path, format, bad) -> Iterator[Pair]:
    """Yields rows with a label or a score."""
    plain = dataclasses.replace(task, kind=task.answers)
    for row, texts, value in labelled_text.usable(plain, split, path, format, bad):
        fields = dict(zip(task.fields, texts, strict=True))
        target = answers = None
        if value is not None and task.answers == "classification":
            target = task.labels[value]
            answers = (target,)
        elif value is not None:
            target, answers = text_to_text.number_text(value), (str(value),)
        source = text_to_text.input_text(task.prefix, fields)
        yield Pair(row, "", source, target, answers, f"{path}, row {row}")


def _questions(task, split, path, bad) -> Iterator[Pair]:
    """Yields questions with a context. All answers are right, and the first is the target."""
    asked = squad.read(path, task.no_answers, not split.startswith("test"), bad)
    for row, item in enumerate(asked):
        question, target, answers = item.question, None, None
        if question.answers is not None:
            answers = tuple(
                text_to_text.spaced(answer, task.punctuation) for answer in question.answers
            )
            target = answers[0] if answers else text_to_text.NO_ANSWER
        source = text_to_text.question_text(question.text, question.context, task.punctuation)
        yield Pair(row, question.id, source, target, answers, item.location)


def _choices(task, split, path, bad) -> Iterator[Pair]:
    """Yields questions with numbered choices. The answer is the name of a choice."""
    for item in choice_files.read(task, path, split.startswith("test"), bad):
        fields = {"context": item.context, "question": item.text}
        fields |= {text_to_text.choice_name(i): text for i, text in enumerate(item.choices)}
        fields = {name: text for name, text in fields.items() if text}
        target = None if item.answer is None else text_to_text.choice_name(item.answer)
        answers = None if target is None else (task.labels[item.answer],)
        source = text_to_text.input_text(task.prefix, fields)
        yield Pair(item.number, "", source, target, answers, item.location)


def _generation(task, split, path, format, bad) -> Iterator[Pair]:
    """Yields rows with a text and its target."""
    columns, test = task.columns, split.startswith("test")
    targets = [] if columns.label is None else [columns.label]
    rows = tables.read(
        path,
        [columns.text, *targets],
        optional=targets if test else (),
        header=columns.header,
        format=format,
        bad=bad,
    )
    for row, line, cells in rows:
        target = cells[-1] if targets else None
        answers = None if target is None else (target,)
        source, location = f"{task.prefix}{cells[0]}", tables.location(path, line)
        yield Pair(row, "", source, target, answers, location)


@dataclasses.dataclass
class SplitCounts(task_folder.SplitCounts):
    """The counts of one split.

    Attributes:
      longest_target: the length of the longest target in tokens, with the one that ends it.
      references: the right answers of the examples, in the order of the rows.
    """

    longest_target: int = 0
    references: list[Reference] = dataclasses.field(default_factory=list)

    def add(self, other: "SplitCounts") -> None:
        """Adds the counts of the next part."""
        longest = max(self.longest_target, other.longest_target)
        super().add(other)
        self.longest_target = longest


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
    how = options.max_target_length, options.format, options.skip_bad_rows, options.seed
    return build(
        task, files, tokenizer, options.output, max_length, *how, execution=execution, report=report
    )


def build(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    output: AnyPath,
    max_length: int = 512,
    max_target_length: int | None = None,
    format: str | None = None,
    skip_bad_rows: bool = False,
    seed: int = 0,
    execution: Execution = Execution(),  # noqa: B008
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Builds the shard folder of a task and returns its manifest.

    Args:
      task: a task of the kind "text_to_text". If its answers are labels and it has none, they are
        those of the train file.
      files: the file of each split; only test files may have no answers.
      tokenizer: an `official.tokenizers.Tokenizer`; its `sep_id` ends inputs and targets.
      output: the folder to create.
      max_length: the length of the longest input in tokens, with the one that ends it; longer
        inputs are cut.
      max_target_length: the same of targets; longer targets are refused. None = the length of the
        longest target.
      format: "tsv", "csv" or "jsonl"; None = by the file names.
      skip_bad_rows: whether rows that cannot be used are left out and counted.
      seed: the seed of the order of training examples.
      execution: where the work is done; this does not change the shards.
      report: is called with the summaries.

    Raises:
      UserError: files, columns, rows, labels or targets cannot be used.
    """
    if max_length < 2:
        raise UserError(f"--max_length={max_length} leaves no room for the input: the least is 2")
    task = _with_labels(task, files, tokenizer, format, skip_bad_rows)
    shards: list[manifest.Shard] = []
    counts: dict[str, SplitCounts] = {}
    digests: dict[str, str] = {}
    with splits.new_folder(output, tokenizer, execution, seed) as writer:
        for split in (s for s in SPLITS if s in files):
            known = () if split.startswith("test") else task.skipped
            each = SplitCounts(
                tables.BadRows(skip_bad_rows, known), task_folder.no_targets(task.labels)
            )
            rows = pairs(task, split, files[split], format, each.bad)
            lengths = {"max_length": max_length, "max_target_length": max_target_length}
            make = functools.partial(_examples, **lengths)
            shards += writer.write(split, rows, ROWS_AT_ONCE, make, each)
            if not each.examples:
                raise UserError(f"{files[split]}: no row can be used: {each.bad}")
            digests |= side_texts.write_references(writer.folder, split, each.references)
            counts[split] = each
            report(_summary(split, each, max_length))
        length = max_target_length or max(each.longest_target for each in counts.values())
        built = _manifest(
            task, files, tokenizer, max_length, length or 1, shards, counts, digests, seed
        )
        manifest.write(writer.folder, built)
    return built


def _with_labels(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    format: str | None,
    skip_bad_rows: bool,
) -> Task:
    """Returns the task with its labels, which are checked."""
    if task.answers == "choice" and not task.labels:
        first = next(split for split in SPLITS if split in files)
        count = choice_files.count_choices(files[first], skip_bad_rows)
        task = dataclasses.replace(task, labels=tuple(LETTERS[:count]), values=())
    if task.answers == "classification":
        if not task.labels:
            plain = dataclasses.replace(task, kind="classification", metrics=())
            plain = labelled_text.with_labels_of_train_file(plain, files, format, skip_bad_rows)
            task = dataclasses.replace(task, labels=plain.labels, values=plain.values)
        text_to_text.check_labels(task.labels)
    names = text_to_text.label_names(task.answers, task.labels)
    spelled: dict[tuple[int, ...], str] = {}
    for label, ids in zip(names, tokenizer.encode(list(names)), strict=True):
        other = spelled.setdefault(tuple(ids.tolist()), label)
        if other != label or not len(ids):
            what = f"the same tokens as {other!r}" if len(ids) else "no tokens"
            raise UserError(
                f"label {label!r} has {what} in this vocabulary: take a tokenizer that tells the "
                "labels apart, or other names"
            )
    return task


def _examples(
    rows: Sequence[Pair],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    max_length: int,
    max_target_length: int | None,
) -> Iterator[Example]:
    """Yields the examples of some pairs, counts them and collects their answers."""
    end = tokenizer.sep_id
    sources = tokenizer.encode([pair.source for pair in rows])
    targets = tokenizer.encode([pair.target or "" for pair in rows])
    for pair, source, target in zip(rows, sources, targets, strict=True):
        length = len(target) + 1
        if not len(source) and pair.target is not None:
            counts.bad(
                "empty text",
                f"{pair.location}: the text {pair.source!r} has no tokens: there is nothing to "
                "read",
            )
            continue
        if pair.target is not None and length == 1:
            counts.bad(
                "empty target",
                f"{pair.location}: the target {pair.target!r} has no tokens: a decoder has nothing "
                "to learn from it",
            )
            continue
        if pair.target is not None and length > (max_target_length or length):
            counts.bad(
                "target too long",
                f"{pair.location}: the target has {length} tokens with the one that ends it, and "
                f"--max_target_length={max_target_length}: make it at least {length}, or leave it "
                "out",
            )
            continue
        counts.truncated += len(source) + 1 > max_length
        token_ids = np.append(source[: max_length - 1], end)
        example = {"token_ids": token_ids, "segment_lengths": [len(token_ids)], "row": pair.row}
        counts.count(len(token_ids))
        if pair.target is None:
            counts.labelled = False
        else:
            example["target_ids"] = np.append(target, end)
            counts.longest_target = max(counts.longest_target, length)
            if counts.targets:
                counts.targets[pair.answers[0]] += 1
        counts.references.append(Reference(pair.row, pair.id, pair.answers))
        yield example


def _manifest(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    max_length: int,
    max_target_length: int,
    shards: Iterable[manifest.Shard],
    counts: Mapping[str, SplitCounts],
    digests: Mapping[str, str],
    seed: int,
) -> manifest.Manifest:
    totals = {
        split: each.totals(labels=dict(each.targets) if each.labelled else {})
        for split, each in counts.items()
    }
    description = dataclasses.replace(
        task.description(),
        max_target_length=max_target_length,
    )
    return task_folder.make_manifest(
        description,
        ("token_ids", "segment_lengths", "row", "target_ids"),
        tokenizer,
        max_length,
        shards,
        totals,
        counts,
        TaskSettings(files=task_folder.file_names(files)),
        seed,
        files=digests,
    )


def _summary(split: str, counts: SplitCounts, max_length: int) -> str:
    parts = [
        f"{split}: {counts.examples:,} examples",
        f"{counts.tokens:,} tokens of inputs",
        f"{counts.truncated:,} cut at {max_length} tokens",
    ]
    if counts.bad.counts:
        parts.append(f"left out: {counts.bad}")
    if not counts.labelled:
        parts.append("no targets")
    else:
        parts.append(f"targets of up to {counts.longest_target} tokens")
        if counts.targets:
            parts.append(counts.shares())
    return "; ".join(parts)
