"""The right answers of a task of text to text, in a file beside the shards.

The file `references-<split>.jsonl` has one example per line. Targets are token ids, which a
tokenizer may not decode to the same text, so answers are scored against these texts.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from official.shards import manifest
from official.utils import checksums
from official.utils.errors import UserError


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
    name = file_name(split)
    with open(Path(folder) / name, "wb") as stream:
        for each in references:
            values = {name: value for name, value in each._asdict().items() if value is not None}
            stream.write(f"{json.dumps(values, ensure_ascii=False)}\n".encode())
    return {name: checksums.hash_file(Path(folder) / name)}


def read(folder: str | os.PathLike, split: str, content: manifest.Manifest) -> dict[int, Reference]:
    """Reads the references of a split, by the `row` of the example.

    Raises:
      UserError: the file is missing or has changed.
    """
    name = file_name(split)
    if name not in content.files:
        raise UserError(
            f"{folder} has no {name}: its shards are not those of a task of text to text; make "
            "them with build_task_shards --text_to_text"
        )
    path = Path(folder) / name
    checksums.check(path, content.files[name], manifest.ADVICE)
    references = {}
    for line in path.read_bytes().splitlines():
        values = json.loads(line)
        answers = tuple(values["answers"]) if "answers" in values else None
        references[values["row"]] = Reference(values["row"], values["id"], answers)
    return references
