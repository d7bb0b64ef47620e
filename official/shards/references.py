"""The right answers of a task of text to text, in a file beside the shards.

The file `references-<split>.jsonl` has one example per line. Targets are token ids, which a
tokenizer may not decode to the same text, so answers are scored against these texts.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from official.shards import manifest, text_records


class Reference(NamedTuple):
    """The answers to one example.

    Attributes:
      row: the number of the example's row in its source file.
      id: the id of a question in its source file; empty = it has none.
      answers: the right answers: one label, score or text, or all answers to a question; None =
        they are not known.
    """

    row: int
    id: str
    answers: tuple[str, ...] | None


def file_name(split: str) -> str:
    """Returns the file name of a split."""
    return f"references-{split}.jsonl"


def write(folder: str | os.PathLike, split: str, references: Iterable[Reference]) -> dict[str, str]:
    """Writes references in their order.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    records = (
        {name: value for name, value in each._asdict().items() if value is not None}
        for each in references
    )
    return text_records.write(folder, file_name(split), records)


def read(folder: str | os.PathLike, split: str, content: manifest.Manifest) -> dict[int, Reference]:
    """Reads the references of a split, by the `row` of the example.

    Raises:
      UserError: the file is missing or has changed.
    """
    advice = "a task of text to text; make them with build_task_shards --text_to_text"
    references = {}
    for values in text_records.read(folder, file_name(split), content, advice):
        answers = tuple(values["answers"]) if "answers" in values else None
        references[values["row"]] = Reference(values["row"], values["id"], answers)
    return references
