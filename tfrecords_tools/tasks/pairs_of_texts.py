"""Reads the files of a task as pairs of an input and a target (`official.tasks.text_to_text`)."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from official.tasks import Task, text_to_text
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import labelled_text
from tfrecords_tools.tasks.readers import choice_files, squad, tables


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
