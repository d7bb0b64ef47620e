"""Rows of texts that are laid out otherwise than in a table: folders, and TREC's questions.

A folder has a folder for each label, whose files are a text each (aclImdb's `train/pos/0_9.txt`):
the columns are `label` and `text`. A line of a `.label` file is `COARSE:fine question`: the columns
are `label` (COARSE), `fine_label` (COARSE:fine) and `text`.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from official.utils.errors import UserError

FOLDER_COLUMNS = ("label", "text")
TREC_COLUMNS = ("label", "fine_label", "text")
_QUESTION = re.compile(r"(\w+):(\w+)\s+(.*)")


def folder_records(path: Path, labels: Sequence[str], damaged: list) -> Iterator[tuple]:
    """Yields the texts of a folder, label by label, each file's by name.

    Args:
      path: the folder.
      labels: the folders to read, where others are beside them; none = all that there are.
      damaged: takes the name of each file that is not UTF-8.

    Yields:
      The file's name, from the folder on, and the cells of `FOLDER_COLUMNS`.

    Raises:
      UserError: a label has no folder, or there is none at all.
    """
    there = sorted(p.name for p in path.iterdir() if p.is_dir())
    if not there:
        raise UserError(
            f"{path} is a folder where a file is wanted, or one with a folder of texts for each "
            "label"
        )
    if missing := [label for label in labels if label not in there]:
        raise UserError(
            f"{path} has no folder {missing[0]!r}, the texts of that label: it has "
            f"{', '.join(there)}"
        )
    for label in labels or there:
        for file in sorted(p for p in (path / label).iterdir() if p.is_file()):
            content = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
            name = f"{label}/{file.name}"
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError:
                damaged.append(name)
                text = ""
            yield name, [label, text.strip()]


def trec_cells(line: str) -> list[str] | None:
    """The cells of `TREC_COLUMNS`; None where the line is no labelled question.

    The train file has one byte that is no character, before a space was meant: it is read as one.
    """
    found = _QUESTION.fullmatch(line.replace("\ufffd", " ").strip())
    return [found[1], f"{found[1]}:{found[2]}", found[3]] if found else None
