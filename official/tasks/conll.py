"""Reads words and tags from CoNLL: a word on each line, and a blank line between texts.

The columns of a file are separated by tabs alone or by blanks alone, as those of its first line: a
line with a tab is separated by tabs, and its words may contain blanks. A line that begins with
`-DOCSTART-` begins a document and is no word. Lines before the first word of a text that begin with
`#` and have other columns than its words are comments; `#` as a word has the same columns.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from official.tasks.tagged_texts import TaggedWords
from official.tasks.task import Columns
from official.utils import text_lines
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, Unusable, location

_BLANKS = re.compile(r"[ \t]+")


class Line(NamedTuple):
    """The number of a line from 1, and its cells; None if it is not UTF-8."""

    number: int
    text: str | None


def blocks(path: AnyPath) -> Iterator[list[Line]]:
    """Yields the lines of each text of a CoNLL file."""
    damaged: list[int] = []
    block: list[Line] = []
    for number, line in enumerate(text_lines.lines(path, damaged), 1):
        line = line.strip(" \t")
        if line and not _BLANKS.split(line)[0] == "-DOCSTART-":
            block.append(Line(number, None if damaged else line))
        elif block:
            yield block
            block = []
        damaged.clear()
    if block:
        yield block


def read(path: AnyPath, columns: Columns, labeled: bool, bad: BadRows) -> Iterator[TaggedWords]:
    """Yields the texts of a file: see `tag_files.read`."""
    table = _Table(path, columns, labeled)
    for block in blocks(path):
        try:
            record = table.record(block)
        except Unusable as fault:
            bad(*fault.args)
            continue
        yield record


class _Table:
    """The columns of a CoNLL file, whose first line tells how many there are."""

    def __init__(self, path: AnyPath, columns: Columns, labeled: bool):
        self._path = path
        self._names = columns.text, columns.label or "-1"
        self._indices = [_index(column) for column in self._names]
        self._has_tags: bool | None = labeled or None  # None = the first line tells
        self._first: tuple[int, str, int] | None = None  # line, separator and number of columns
        self._tags: set[str] = set()  # those that are checked

    def record(self, block: Sequence[Line]) -> TaggedWords:
        """Returns the text of some lines."""
        words, tags = [], []
        block = _without_comments(block)
        for line in block:
            cells = self._cells(line)
            words.append(self._cell(cells, 0, line))
            if self._has_tags:
                tags.append(self._cell(cells, 1, line))
                if tags[-1] not in self._tags:
                    self._tags.add(checked_tag(tags[-1], self._where(line)))
        lines = tuple(line.number for line in block)
        where = location(self._path, lines[0])
        return TaggedWords(tuple(words), tuple(tags) if self._has_tags else None, where, lines)

    def _where(self, line: Line) -> str:
        return f"{self._path}, line {line.number}"

    def _cells(self, line: Line) -> list[str]:
        if line.text is None:
            raise Unusable("not UTF-8", f"{self._where(line)}: not UTF-8: convert the file")
        cells, separator = _split(line.text)
        if self._first is None:
            self._first = line.number, separator, len(cells)
            self._has_tags = self._has_tags or len(cells) > 1
        first, wanted, width = self._first
        if separator == wanted and len(cells) == width > 1:
            return cells
        where = self._where(line)
        if self._has_tags and len(cells) < 2:
            raise Unusable(
                "wrong number of columns",
                f"{where}: one column ({line.text!r:.60}), expected a word and its tag: separate "
                "them by a blank or a tab",
            )
        if separator != wanted and len(cells) > 1 and width > 1:
            raise Unusable(
                "other separators",
                f"{where}: {line.text!r:.60} has columns separated by {separator}, and line "
                f"{first} by {wanted}: use either tabs or blanks in the whole file",
            )
        if len(cells) != width:
            raise Unusable(
                "wrong number of columns",
                f"{where}: {_count(len(cells))} ({line.text!r:.60}) where line {first} has "
                f"{width}: give all words the same columns",
            )
        return cells

    def _cell(self, cells: list[str], which: int, line: Line) -> str:
        index, what = self._indices[which], ("word", "tag")[which]
        if not -len(cells) <= index < len(cells):
            raise UserError(
                f"{self._where(line)}: no column {self._names[which]} for the {what}: the line has "
                f"{_count(len(cells))} (--text_column, --label_column)"
            )
        if not cells[index]:
            raise Unusable(f"empty {what}", f"{self._where(line)}: the {what} is empty")
        return cells[index]


def _split(line: str) -> tuple[list[str], str]:
    """Returns the cells of a line, and the name of what separates them; "" for one cell."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")], "tabs"
    cells = line.split()
    return cells, "blanks" if len(cells) > 1 else ""


def _without_comments(block: Sequence[Line]) -> Sequence[Line]:
    """Returns the lines of a text without the comments before its first word."""
    first = next((i for i, line in enumerate(block) if not _may_be_comment(line)), 0)
    cells, separator = _split(block[first].text or "")
    for i, line in enumerate(block[:first]):
        others, other = _split(line.text or "")
        if (len(others), other) == (len(cells), separator) or len(others) == 1:
            return block[i:]
    return block[first:]


def _may_be_comment(line: Line) -> bool:
    return line.text is not None and line.text.startswith("#")


def _count(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"


def _index(column: str) -> int:
    try:
        return int(column)
    except ValueError:
        raise UserError(
            f"column {column!r}: CoNLL files have no header: give the index of the column, "
            "0 for the first and -1 for the last (--text_column, --label_column)"
        ) from None


def checked_tag(tag: str, where: str) -> str:
    """Returns a tag; raises Unusable if it is empty."""
    if not tag:
        raise Unusable("not a tag", f"{where}: the tag is empty")
    return tag
