"""Examples of any task as text in and text out (`official.tasks.text_to_text`; see `builder`).

An example has the ids of its input and of its target, each with the token that ends it. The right
answers are kept beside the shards as texts (`official.shards.side_texts`).
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from official.shards import side_texts
from official.shards.side_texts import Reference
from official.tasks import SPLITS, Description, Task, metric_settings, text_to_text
from official.tokenizers import Tokenizer
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows
from tfrecords_tools.tasks import builder, labelled_text, multiple_choice, span, splits, tables
from tfrecords_tools.tasks.splits import Example, Make, Splits

_ENGLISH = re.compile("[a-z0-9]")


@dataclasses.dataclass
class SplitCounts(splits.SplitCounts):
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


@dataclasses.dataclass
class Builder(builder.Builder["Pair", SplitCounts]):
    """Builds the shards of inputs and targets; `max_length` is that of inputs, which are cut.

    Attributes:
      max_target_length: the length of the longest target in tokens, with the one that ends it;
        longer targets are refused. None = the length of the longest target.
    """

    max_target_length: int | None = None

    counts_type = SplitCounts

    @override
    def prepare(self) -> None:
        if self.max_length < 2:
            raise UserError(
                f"--max_length={self.max_length} leaves no room for the input: the least is 2"
            )
        self.task = _with_labels(
            self.task, self.files, self.tokenizer, self.format, self.skip_bad_rows, self.report
        )
        self._first_answers: list[str] = []

    @override
    def read(self, split: str, counts: SplitCounts, writer: Splits) -> Iterator["Pair"]:
        return pairs(self.task, split, self.files[split], self.format, counts.bad)

    @override
    def examples(self) -> Make["Pair", SplitCounts]:
        return functools.partial(
            _examples, max_length=self.max_length, max_target_length=self.max_target_length
        )

    @override
    def write_beside(self, folder: AnyPath, split: str, counts: SplitCounts) -> dict[str, str]:
        if self.task.answers in ("span", "generation"):
            self._first_answers += [each.answers[0] for each in counts.references if each.answers]
        return side_texts.write_references(folder, split, counts.references)

    @override
    def finish(self) -> None:
        note = ""
        if self.task.answers == "span":
            note = span.rule_note(self.task.answer_rule, self._first_answers)
        elif self.task.rouge_words == metric_settings.ROUGE_WORDS:
            note = _rouge_note(self._first_answers)
        if note:
            self.report(note)

    @property
    @override
    def features(self) -> tuple[str, ...]:
        return "token_ids", "segment_lengths", "row", "target_ids"

    @override
    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        return {"labels": dict(counts.targets) if counts.labeled else {}}

    @override
    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        longest = max(each.longest_target for each in counts.values())
        length = self.max_target_length or longest or 1
        return dataclasses.replace(self.task.description(), max_target_length=length)

    @override
    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        parts = [
            f"{split}: {counts.examples:,} examples",
            f"{counts.tokens:,} tokens of inputs",
            f"{counts.truncated:,} cut at {self.max_length} tokens",
            *counts.left_out(),
        ]
        if not counts.labeled:
            return [*parts, "no targets"]
        parts.append(f"targets of up to {counts.longest_target} tokens")
        return [*parts, counts.shares()] if counts.targets else parts


def _rouge_note(targets: Sequence[str]) -> str:
    """Returns a line about targets in which ROUGE finds no word; "" if they are few.

    Raises:
      UserError: it finds none in any.
    """
    count = sum(not _ENGLISH.search(target.lower()) for target in targets)
    if count <= len(targets) / 2:
        return ""
    what = "no target has" if count == len(targets) else f"{count:,} of {len(targets):,} lack"
    note = (
        f"{what} a letter a to z or a digit, the words of ROUGE, so two equal texts have 0: give "
        "--rouge_words=unicode, or another metric, such as --metrics=chrf"
    )
    if count == len(targets):
        raise UserError(note)
    return note


def _with_labels(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    format: str | None,
    skip_bad_rows: bool,
    report: Callable[[str], None],
) -> Task:
    """Returns the task with its labels, which are checked."""
    if task.answers == "choice":
        first = next(split for split in SPLITS if split in files)
        task = multiple_choice.with_labels(task, files[first], skip_bad_rows)
    if task.answers == "classification":
        if not task.labels:
            plain = dataclasses.replace(task, kind="classification", metrics=())
            plain = labelled_text.with_labels_of_train_file(
                plain, files, format, skip_bad_rows, report
            )
            task = dataclasses.replace(task, labels=plain.labels, values=plain.values)
        text_to_text.check_labels(task.labels)
    names = text_to_text.label_names(task.answers, task.labels)
    spelled: dict[tuple[int, ...], str] = {}
    for label, ids in zip(names, tokenizer.encode(list(names)), strict=True):
        other = spelled.setdefault(tuple(ids.tolist()), label)
        if other != label or not len(ids):
            what = f"the same tokens as {other!r}" if len(ids) else "no tokens"
            raise UserError(
                f"label {label!r} has {what} in this vocabulary: use a tokenizer that tells the "
                "labels apart, or rename them"
            )
    return task


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
    task: Task, split: str, path: AnyPath, format: str | None, bad: BadRows
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
    return _labeled(task, split, path, format, bad)


def _labeled(
    task: Task, split: str, path: AnyPath, format: str | None, bad: BadRows
) -> Iterator[Pair]:
    """Yields rows with a label or a score."""
    plain = dataclasses.replace(task, kind=task.answers)
    for row, texts, value, _ in labelled_text.usable(plain, split, path, format, bad):
        fields = dict(zip(task.fields, texts, strict=True))
        target = answers = None
        if isinstance(value, int):
            target = task.labels[value]
            answers = (target,)
        elif isinstance(value, float):
            target, answers = text_to_text.number_text(value), (str(value),)
        source = text_to_text.input_text(task.prefix, fields)
        yield Pair(row, "", source, target, answers, f"{path}, row {row}")


def _questions(task: Task, split: str, path: AnyPath, bad: BadRows) -> Iterator[Pair]:
    """Yields questions with a context. All answers are right, and the first is the target."""
    questions = span.read(path, task.no_answers, not split.startswith("test"), bad)
    for row, item in enumerate(questions):
        question, target, answers = item.question, None, None
        if question.answers is not None:
            answers = tuple(
                text_to_text.spaced(answer, task.punctuation) for answer in question.answers
            )
            target = answers[0] if answers else text_to_text.NO_ANSWER
        source = text_to_text.question_text(question.text, question.context, task.punctuation)
        yield Pair(row, question.id, source, target, answers, item.location)


def _choices(task: Task, split: str, path: AnyPath, bad: BadRows) -> Iterator[Pair]:
    """Yields questions with numbered choices. The answer is the name of a choice."""
    for item in multiple_choice.read(task, path, split.startswith("test"), bad):
        fields = {"context": item.context, "question": item.text}
        fields |= {text_to_text.choice_name(i): text for i, text in enumerate(item.choices)}
        fields = {name: text for name, text in fields.items() if text}
        target = answers = None
        if item.answer is not None:
            target = text_to_text.choice_name(item.answer)
            answers = (task.labels[item.answer],)
        source = text_to_text.input_text(task.prefix, fields)
        yield Pair(item.number, "", source, target, answers, item.location)


def _generation(
    task: Task, split: str, path: AnyPath, format: str | None, bad: BadRows
) -> Iterator[Pair]:
    """Yields rows with a text and its target."""
    columns, test = task.columns, split.startswith("test")
    rows = tables.read(
        path,
        [columns.text],
        columns.label,
        optional=test,
        header=columns.header,
        format=format,
        bad=bad,
    )
    for row, line, cells, target in rows:
        answers = None if target is None else (target,)
        source, location = f"{task.prefix}{cells[0]}", tables.location(path, line)
        yield Pair(row, "", source, target, answers, location)


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
                f"--max_target_length={max_target_length}: set it to at least {length}, or remove "
                "the row",
            )
            continue
        counts.truncated += len(source) + 1 > max_length
        token_ids = np.append(source[tokenizer.pairs.kept(len(source), max_length - 1)], end)
        example = {"token_ids": token_ids, "segment_lengths": [len(token_ids)], "row": pair.row}
        counts.count(len(token_ids))
        if pair.target is None:
            counts.labeled = False
        else:
            example["target_ids"] = np.append(target, end)
            counts.longest_target = max(counts.longest_target, length)
            if counts.targets and pair.answers:
                counts.targets[pair.answers[0]] += 1
        counts.references.append(Reference(pair.row, pair.id, pair.answers))
        yield example
