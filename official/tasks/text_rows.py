"""Rows of TSV files and of JSON Lines, with the columns that have texts.

Rows of JSON that an annotation tool marks as not to be used are left out (`annotations`).
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

from official.tasks import annotations
from official.utils import paths, text_lines
from official.utils.errors import UserError
from official.utils.text_lines import BadRows

SUFFIXES = (".tsv", ".jsonl")


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a TSV file, or of JSON Lines, and the columns with the texts.

    Attributes:
      path: the file, by whose suffix the format is known; `.gz` is unpacked.
      columns: names, or indices from "0".
      header: whether the first line of a TSV file has the names of the columns.
    """

    path: paths.AnyPath
    columns: Sequence[str]
    header: bool = True

    def __post_init__(self):
        if self.format not in SUFFIXES:
            raise UserError(
                f"{self.path}: rows are read from {' or '.join(SUFFIXES)} files: name such a file"
            )

    @property
    def format(self) -> str:
        """The suffix without `.gz`."""
        path = self.path
        return (path.with_suffix("") if path.suffix == ".gz" else path).suffix

    def read(self, bad: BadRows) -> Iterator[tuple[int, list[str] | dict[str, Any]]]:
        """Yields the number of the line and the cells of each row; the header is line 1.

        Raises:
          UserError: a column does not exist, or a row is bad.
        """
        if self.format == ".jsonl":
            for _, number, value in annotations.objects(self.path, bad, False, self.columns):
                lacking = [c for c in self.columns if not isinstance(value.get(c), str)]
                if lacking:
                    known = ", ".join(map(repr, value))
                    bad(
                        "no text",
                        f"{self.path}, line {number}: {lacking[0]!r} is not a text of this row "
                        f"(its keys are {known})",
                    )
                else:
                    yield number, value
            return
        damaged: list[int] = []
        width = 0
        for number, line in enumerate(text_lines.lines(self.path, damaged), 1):
            cells = line.split("\t")
            if not line:
                continue
            if not width:
                width = len(cells)
                self.keys(cells)
            if damaged:
                damaged.clear()
                bad("not UTF-8", f"{self.path}, line {number}: not UTF-8: convert the file")
            elif len(cells) != width:
                bad(
                    "wrong number of columns",
                    f"{self.path}, line {number}: {len(cells)} columns where the first line has "
                    f"{width}",
                )
            else:
                yield number, cells

    def texts(self, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
        """Yields the number of the line and the texts of each row, without the header."""
        keys: list[Any] | None = None
        for number, row in self.read(bad):
            if keys is None:
                keys = self.keys(row)
                if self.header and self.format == ".tsv":
                    continue
            yield number, [row[key] for key in keys]

    def keys(self, first: list[str] | dict[str, Any]) -> list[Any]:
        """Returns the keys of the texts in a row, by the first row of the file.

        Raises:
          UserError: there is no such column.
        """
        if isinstance(first, dict):
            return list(self.columns)
        found = []
        for column in self.columns:
            if self.header and column in first:
                found.append(first.index(column))
            elif column.isdecimal() and int(column) < len(first):
                found.append(int(column))
            else:
                known = ", ".join(map(repr, first)) if self.header else f"0 to {len(first) - 1}"
                raise UserError(
                    f"--columns: {self.path} has no column {column!r}: its columns are {known}"
                )
        return found

    def write(self, row: list[str] | dict[str, Any], stream: IO[str]) -> None:
        """Writes a row."""
        if isinstance(row, dict):
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        else:
            stream.write("\t".join(row) + "\n")
