"""The questions of a span task, with their contexts and answers, in a file beside the shards.

The file `questions-<split>.jsonl` has one paragraph per line. Predictions are slices of the
original text, and are scored against the original answers.
"""

import itertools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from official.shards import manifest
from official.utils import checksums
from official.utils.errors import UserError


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
    name = file_name(split)
    with open(Path(folder) / name, "wb") as stream:
        for context, group in itertools.groupby(questions, key=lambda question: question.context):
            asked = [
                {
                    "id": q.id,
                    "text": q.text,
                    **({} if q.answers is None else {"answers": q.answers}),
                }
                for q in group
            ]
            line = json.dumps({"context": context, "questions": asked}, ensure_ascii=False)
            stream.write(f"{line}\n".encode())
    return {name: checksums.hash_file(Path(folder) / name)}


def read(folder: str | os.PathLike, split: str, content: manifest.Manifest) -> list[Question]:
    """Reads the questions of a split; the `row` of an example is the index of its question.

    Raises:
      UserError: the file is missing or has changed.
    """
    name = file_name(split)
    if name not in content.files:
        raise UserError(
            f"{folder} has no {name}: its shards are not those of a task of questions and spans; "
            "make them with build_task_shards --task=squad1 or squad2"
        )
    path = Path(folder) / name
    checksums.check(path, content.files[name], manifest.ADVICE)
    questions = []
    for line in path.read_bytes().splitlines():
        paragraph = json.loads(line)
        questions += [
            Question(
                asked["id"],
                asked["text"],
                paragraph["context"],
                tuple(asked["answers"]) if "answers" in asked else None,
            )
            for asked in paragraph["questions"]
        ]
    return questions
