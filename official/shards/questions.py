"""The questions of a span task, with their contexts and answers, in a file beside the shards.

The file `questions-<split>.jsonl` has one paragraph per line. The row of a question is the number
after that of the question before it, or the one that stands there. Predictions are slices of the
original text, and are scored against the original answers.
"""

import itertools
import os
from collections.abc import Mapping
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


def write(
    folder: str | os.PathLike, split: str, questions: Mapping[int, Question]
) -> dict[str, str]:
    """Writes questions in their order.

    Args:
      folder: the shard folder.
      split: the split.
      questions: the questions by the `row` of their examples, which increases.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    befores = [-1, *questions][:-1]
    rows = zip(befores, questions.items(), strict=True)
    records = (
        {"context": context, "questions": [_record(*each) for each in group]}
        for context, group in itertools.groupby(rows, key=lambda each: each[1][1].context)
    )
    return text_records.write(folder, file_name(split), records)


def _record(before: int, item: tuple[int, Question]) -> dict[str, Any]:
    """Returns the record of a question, given the row of the question before it."""
    row, question = item
    given = {} if row == before + 1 else {"row": row}
    known = {} if question.answers is None else {"answers": question.answers}
    return {"id": question.id, **given, "text": question.text, **known}


def read(folder: str | os.PathLike, split: str, content: manifest.Manifest) -> dict[int, Question]:
    """Reads the questions of a split by the `row` of their examples, in order.

    Raises:
      UserError: the file is missing or has changed.
    """
    advice = (
        "a task of questions and spans; make them with build_task_shards --task=squad1 or squad2"
    )
    questions: dict[int, Question] = {}
    row = -1
    for paragraph in text_records.read(folder, file_name(split), content, advice):
        for asked in paragraph["questions"]:
            row = asked.get("row", row + 1)
            answers = tuple(asked["answers"]) if "answers" in asked else None
            questions[row] = Question(asked["id"], asked["text"], paragraph["context"], answers)
    return questions
