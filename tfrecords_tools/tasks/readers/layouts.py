"""Reads rows of texts that are not in a table: folders, and TREC's questions.

A folder has a folder for each label, with one text in each file (aclImdb's `train/pos/0_9.txt`).
The columns are `label` and `text`. A line of a `.label` file is `COARSE:fine question`. The columns
are `label` (COARSE), `fine_label` (COARSE:fine) and `text`.
"""

import re
from collections.abc import Iterator, Sequence

from official.utils.errors import UserError
from official.utils.paths import AnyPath

FOLDER_COLUMNS = ("label", "text")
TREC_COLUMNS = ("label", "fine_label", "text")
_QUESTION = re.compile(r"(\w+):(\w+)\s+(.*)")


def folder_records(path: AnyPath, labels: Sequence[str], damaged: list) -> Iterator[tuple]:
    """Yields the texts of a folder, label by label, in the order of the file names.

    Args:
      path: the folder.
      labels: the names of the folders to read; empty = all.
      damaged: a list to which the name of each file that is not UTF-8 is appended.

    Yields:
      The name of the file, relative to `path`, and the cells of `FOLDER_COLUMNS`.

    Raises:
      UserError: a label has no folder, or there are no folders.
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
    """Returns the cells of `TREC_COLUMNS`; None if the line is no labelled question.

    One byte of the train file is no character. It stands for a space and is read as one.
    """
    match = _QUESTION.fullmatch(line.replace("\ufffd", " ").strip())
    return [match[1], f"{match[1]}:{match[2]}", match[3]] if match else None
