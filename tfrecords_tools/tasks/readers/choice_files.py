"""Reads and checks multiple-choice questions; `choice_formats` describes the files."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from official.tasks import LETTERS, Task
from official.utils import text_lines
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks.readers import choice_formats, tables
from tfrecords_tools.tasks.readers.choice_formats import RawQuestion


@dataclasses.dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
      number: the number of the question in the file, from 0; unusable questions count.
      location: the file and the position in it, for messages.
      context: the text that the question is about.
      text: the question; may be empty.
      choices: the texts of the choices.
      answer: the number of the right choice, or None.
    """

    number: int
    location: str
    context: str
    text: str
    choices: tuple[str, ...]
    answer: int | None


def count_choices(path: AnyPath, skip_bad_rows: bool = False) -> int:
    """Returns the number of choices of the first question of a JSON Lines file.

    Raises:
      UserError: the file has no usable question; or there are more choices than letters, and bad
        rows are not left out.
    """
    bad = tables.BadRows(skip_bad_rows)
    for _, line, value in text_lines.objects(path, tables.BadRows(skip=True)):
        choices = value.get("choices")
        if isinstance(choices, list) and len(choices) > 1:
            if len(choices) <= len(LETTERS):
                return len(choices)
            bad(
                "wrong number of choices",
                f"{path}, line {line}: {len(choices)} choices, and {len(LETTERS)} are the most",
            )
    raise UserError(f"{path}: no line with two or more `choices`")


def read(
    task: Task, path: AnyPath, optional_answers: bool, bad: tables.BadRows
) -> Iterator[Question]:
    """Yields the questions of a file or folder.

    Args:
      task: a task of the kind "choice", with its labels.
      path: the file, or RACE's folder.
      optional_answers: whether all questions may be without answers.
      bad: is called with questions that cannot be used.

    Raises:
      UserError: the file cannot be read, or `bad` raises it.
    """
    seen: dict[Any, str] = {}
    answered: bool | None = None
    for raw in choice_formats.read(task, path, optional_answers, bad):
        if problem := _problem(raw, task, seen):
            bad(problem[0], f"{raw.location}: {problem[1]}")
            continue
        given = raw.answer is not None
        if answered is None and optional_answers:
            answered = given
        if not given and not optional_answers:
            bad("no answer", f"{raw.location}: no answer; only a test file can go without")
            continue
        if optional_answers and given != answered:
            bad(
                "answered among unanswered",
                f"{raw.location}: {'an' if given else 'no'} answer, unlike the first question: "
                "give it for all or for none",
            )
            continue
        if raw.identity is not None:
            seen[raw.identity] = raw.location
        yield Question(
            raw.number,
            raw.location,
            raw.context,
            raw.text or "",
            tuple(raw.choices),
            _answer(raw) if given else None,
        )


def _answer(raw: RawQuestion) -> int | None:
    """Returns the number of the right choice; None if the answer is not one of the choices."""
    if raw.known is None:
        return raw.choices.index(raw.answer) if raw.choices.count(raw.answer) == 1 else None
    usable = isinstance(raw.answer, str | int) and not isinstance(raw.answer, bool)
    return raw.known.get(raw.answer) if usable else None


def _problem(raw: RawQuestion, task: Task, seen: Mapping[Any, str]) -> tuple[str, str] | None:
    """Returns the reason that a question cannot be used, short and as a sentence, or None."""
    names = task.labels
    if not isinstance(raw.context, str) or not raw.context.strip():
        return "empty context", f"nothing in its {task.columns.text}"
    if not isinstance(raw.text, str | None):
        return "not a text", f"the question is a {type(raw.text).__name__}, not a text"
    if not isinstance(raw.choices, list) or not all(isinstance(c, str) for c in raw.choices):
        return "not a text", "the choices are no list of texts"
    if len(raw.choices) != len(names):
        return (
            "wrong number of choices",
            f"{len(raw.choices)} choices where {len(names)} are wanted, {', '.join(names)}",
        )
    if empty := [n for n, text in zip(names, raw.choices, strict=True) if not text.strip()]:
        return "empty choice", f"nothing in choice {empty[0]}"
    if raw.answer is not None and _answer(raw) is None:
        among = "one of its choices" if raw.known is None else f"one of {_listed(raw.known)}"
        return "answer not in the set", f"answer {raw.answer!r} is not {among}"
    if raw.identity is not None and raw.identity in seen:
        return "duplicate id", f"id {raw.identity!r} is there already, {seen[raw.identity]}"
    return None


def _listed(known: Mapping[Any, int]) -> str:
    return ", ".join(repr(value) for value in known)
