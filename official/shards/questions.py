"""The questions that a shard folder's windows are of: contexts, ids and right answers.

A folder of a span task has `questions-<split>.jsonl`, a paragraph a line, so that predictions are
slices of the text that the user has, and are scored against the answers as they were written.
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
      id: as the file has it.
      text: what is asked.
      context: the text that may hold the answer.
      answers: the right ones, as written; empty = the context has none; None = not known.
    """

    id: str
    text: str
    context: str
    answers: tuple[str, ...] | None


def file_name(split: str) -> str:
    """The name of the file of a split."""
    return f"questions-{split}.jsonl"


def write(folder: str | os.PathLike, split: str, questions: Iterable[Question]) -> dict[str, str]:
    """Writes questions in their order.

    Returns:
      The file's SHA-256 by its name, for `files` of the manifest.
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


def read(folder: str | os.PathLike, split: str, found: manifest.Manifest) -> list[Question]:
    """Reads the questions of a split, in the order in which `row` of its examples counts them.

    Raises:
      UserError: the file is missing, or has changed.
    """
    name = file_name(split)
    if name not in found.files:
        raise UserError(
            f"{folder} has no {name}: its shards are not those of a task of questions and spans; "
            "make them with build_task_shards --task=squad1 or squad2"
        )
    path = Path(folder) / name
    checksums.check(path, found.files[name], manifest.ADVICE)
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
