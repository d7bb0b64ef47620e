"""The questions of a span task, with their contexts and answers, in a file beside the shards.

The file `questions-<split>.jsonl` has one paragraph per line. Predictions are slices of the
original text, and are scored against the original answers.
"""

import itertools
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from official.shards import manifest, text_records


class Question(NamedTuple):
    """One question.

    Attributes:
      id: the id in the source file.
      text: the question.
      context: the text that may contain the answer.
      answers: the right answers; empty = the context has no answer; None = they are not known.
    """

    id: str
    text: str
    context: str
    answers: tuple[str, ...] | None


def file_name(split: str) -> str:
    """Returns the file name of a split."""
    return f"questions-{split}.jsonl"


def write(folder: str | os.PathLike, split: str, questions: Iterable[Question]) -> dict[str, str]:
    """Writes questions in their order.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    groups = itertools.groupby(questions, key=lambda question: question.context)
    records = (
        {"context": context, "questions": [_record(question) for question in group]}
        for context, group in groups
    )
    return text_records.write(folder, file_name(split), records)


def _record(question: Question) -> dict[str, Any]:
    known = {} if question.answers is None else {"answers": question.answers}
    return {"id": question.id, "text": question.text, **known}


def read(folder: str | os.PathLike, split: str, content: manifest.Manifest) -> list[Question]:
    """Reads the questions of a split; the `row` of an example is the index of its question.

    Raises:
      UserError: the file is missing or has changed.
    """
    advice = (
        "a task of questions and spans; make them with build_task_shards --task=squad1 or squad2"
    )
    return [
        Question(
            asked["id"],
            asked["text"],
            paragraph["context"],
            tuple(asked["answers"]) if "answers" in asked else None,
        )
        for paragraph in text_records.read(folder, file_name(split), content, advice)
        for asked in paragraph["questions"]
    ]
