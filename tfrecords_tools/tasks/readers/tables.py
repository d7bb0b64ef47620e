"""Rows of TSV, CSV and JSON Lines files, each with the line it came from.

TSV is read as GLUE distributes it: a tab parts the columns, a line end parts the rows, and every
other character, a quotation mark too, is part of the text. CSV is read with its quoting (a quoted
cell may run over several lines). JSON Lines has an object a line. All three are UTF-8, may begin
with a byte-order mark and may be compressed (.gz). Blank lines are not rows. Folders of texts and
TREC's questions are rows too: see `text_layouts`.
"""

import collections
import csv
import gzip
import json
import sys
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from official.tasks import nearest
from official.utils.errors import UserError
from tfrecords_tools.tasks.readers import layouts

FORMATS = {
    ".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl",
    ".label": "trec",
}  # fmt: skip
# Formats whose columns are what they are, without a line that names them.
_KNOWN_COLUMNS = {"folders": layouts.FOLDER_COLUMNS, "trec": layouts.TREC_COLUMNS}


class Row(NamedTuple):
    """One row of a file.

    Attributes:
      number: its place among the rows, from 0; the header and blank lines are not counted.
      line: its (first) line in the file, from 1; of a folder the file's name.
      cells: the values of the columns asked for; None where an optional column is not there.
    """

    number: int
    line: int | str
    cells: tuple[str | None, ...]


class BadRows:
    """What happens to a row that cannot be used: an error, or left out and counted.

    Attributes:
      counts: rows left out, by reason.
    """

    def __init__(self, skip: bool = False, known: Collection[str] = ()):
        """Stops at the first bad row, or skips them all if `skip`, or those `known` to be there."""
        self.skip = skip
        self.known = known
        self.counts: collections.Counter[str] = collections.Counter()

    def __call__(self, reason: str, message: str) -> None:
        """Counts a bad row.

        Raises:
          UserError: with `message`, unless bad rows are skipped.
        """
        if not self.skip and reason not in self.known:
            raise UserError(f"{message}; --skip_bad_rows leaves such rows out")
        self.counts[reason] += 1

    def __str__(self) -> str:
        """The counts in words."""
        return ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.counts.items()))


def place(path: Path, line: int | str) -> str:
    """Where a row stands, for a message: a line of a file, or a file of a folder."""
    return f"{path}/{line}" if isinstance(line, str) else f"{path}, line {line}"


def format_of(path: Path, given: str | None = None) -> str:
    """The format of a file: the one given, or what the name says.

    Raises:
      UserError: neither says.
    """
    if given:
        return given
    if path.is_dir():
        return "folders"
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix
    if suffix not in FORMATS:
        raise UserError(
            f"{path}: cannot tell the format from the name: "
            "say --format=tsv, --format=csv or --format=jsonl"
        )
    return FORMATS[suffix]


def read(
    path: Path,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    header: bool = True,
    format: str | None = None,
    bad: BadRows | None = None,
    labels: Sequence[str] = (),
) -> Iterator[Row]:
    """Yields the rows of a file with the columns asked for.

    Args:
      path: the file.
      columns: names (of the header line, or keys of the objects) or indices from "0".
      optional: those of `columns` that the file may lack altogether.
      header: whether the first line of a TSV or CSV file names the columns.
      format: "tsv", "csv", "jsonl", "trec" or "folders"; None to go by the name of the file.
      labels: of a folder, those whose texts are read; none = all.
      bad: what to do with a row that has the wrong number of columns, is not UTF-8 or not JSON.

    Raises:
      UserError: no such file, an empty one, no such column, or a bad row.
    """
    bad = bad or BadRows()
    format = format_of(path, format)
    rows = 0
    try:
        if format == "jsonl":
            source = _objects(path, columns, optional, bad)
        else:
            source = _cells(path, columns, optional, header, format, bad, labels)
        for row in source:
            rows += 1
            yield row
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder where a file is wanted") from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UserError(f"{path} is damaged: it cannot be decompressed ({error})") from error
    if not rows and not bad.counts:
        raise UserError(f"{path} is empty: it has no rows")


def _lines(path: Path, damaged: list[int]) -> Iterator[str]:
    """Yields decoded lines without their ends; numbers of lines not in UTF-8 go to `damaged`."""
    opened = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")
    with opened as stream:
        for number, line in enumerate(stream, 1):
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                damaged.append(number)
                yield line.decode("utf-8", "replace")


def _tsv_records(path: Path, damaged: list[int]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(_lines(path, damaged), 1):
        if line:
            yield number, line.split("\t")


def _csv_records(path: Path, damaged: list[int]) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader((line + "\n" for line in _lines(path, damaged)), strict=True)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        # The reader's own line number would be the end of the file for a quote left open.
        raise UserError(
            f"{path}, line {line}: not CSV from here on ({error}); is a quotation mark left open, "
            "or the file really TSV (--format=tsv)?"
        ) from error


def _trec_records(path: Path) -> Iterator[tuple[int, list[str] | None]]:
    for number, line in enumerate(_lines(path, []), 1):
        if line.strip():
            yield number, layouts.trec_cells(line)


def _cells(
    path: Path,
    columns: Sequence[str],
    optional: Sequence[str],
    header: bool,
    format: str,
    bad: BadRows,
    labels: Sequence[str],
) -> Iterator[Row]:
    damaged: list[int | str] = []
    if format == "folders":
        records = layouts.folder_records(path, labels, damaged)
    elif format == "trec":
        records = _trec_records(path)
    else:
        records = (_tsv_records if format == "tsv" else _csv_records)(path, damaged)
    known = _KNOWN_COLUMNS.get(format)
    header = header and known is None
    names: Sequence[str] | None = None
    places: list[int | None] | None = None
    width = number = 0
    for line, cells in records:
        if places is None:
            if header and damaged:
                raise UserError(f"{path}, line {damaged[0]}: the header is not UTF-8")
            width = len(known or cells)
            names = [cell.strip() for cell in cells] if header else known
            places = [_place(path, column, names, width, optional) for column in columns]
            if header:
                continue
        if damaged:
            bad("not UTF-8", f"{place(path, damaged[0])}: not UTF-8: convert the file")
            damaged.clear()
        elif cells is None:
            bad(
                "no labelled question",
                f"{place(path, line)}: expected COARSE:fine and a question, such as "
                "'NUM:date When did ...'",
            )
        elif len(cells) != width:
            bad(
                "wrong number of columns",
                f"{path}, line {line}: {_count(len(cells))} where the "
                f"{'header' if header else 'first line'} has {width}",
            )
        else:
            yield Row(number, line, tuple(None if p is None else cells[p] for p in places))
        number += 1


def _count(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"


def _place(
    path: Path, column: str, names: Sequence[str] | None, width: int, optional: Sequence[str]
) -> int | None:
    """Where a column stands in a row, or None for an optional one that is not there."""
    if names is not None and column in names:
        if names.count(column) > 1:
            raise UserError(f"{path} has {names.count(column)} columns named {column!r}")
        return names.index(column)
    if column.isdecimal() and int(column) < width:
        return int(column)
    if column in optional:
        return None
    if names is None:
        raise UserError(
            f"{path} has no column {column!r}: without a header its columns are 0 to {width - 1}"
        )
    raise UserError(
        f"{path} has no column {column!r}{nearest(column, names)}: "
        f"its columns are {', '.join(repr(n) for n in names)}"
    )


def objects(path: Path, bad: BadRows) -> Iterator[tuple[int, int, dict]]:
    """Yields the objects of a JSON Lines file, each with its number and line, as `Row` has them.

    Args:
      path: the file.
      bad: what to do with a line that is not UTF-8 or no JSON object.
    """
    damaged: list[int] = []
    number = -1
    for line, text in enumerate(_lines(path, damaged), 1):
        if not text.strip():
            continue
        number += 1
        if damaged:
            damaged.clear()
            bad("not UTF-8", f"{path}, line {line}: not UTF-8: convert the file")
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            bad("not JSON", f"{path}, line {line}: not JSON ({error})")
            continue
        if not isinstance(found, dict):
            bad("not a JSON object", f"{path}, line {line}: every line is to be a JSON object")
            continue
        yield number, line, found


def _objects(
    path: Path, columns: Sequence[str], optional: Sequence[str], bad: BadRows
) -> Iterator[Row]:
    absent: set[str] | None = None  # the optional columns, if the first row lacks them
    for number, line, found in objects(path, bad):
        if absent is None:
            absent = {column for column in optional if found.get(column) is None}
        missing = {column for column in columns if found.get(column) is None}
        nested = [c for c in columns if isinstance(found.get(c), (list, dict))]
        if missing - absent:
            column = next(c for c in columns if c in missing - absent)
            bad(
                "missing key",
                f"{path}, line {line}: no {column!r}{nearest(column, found)}: "
                f"its keys are {', '.join(map(repr, found))}",
            )
        elif absent - missing:
            bad(
                "labelled among unlabelled",
                f"{path}, line {line}: has {', '.join(map(repr, absent - missing))}, which the "
                "first row lacks: give it in all rows or in none",
            )
        elif nested:
            bad(
                "not a text",
                f"{path}, line {line}: {nested[0]!r} is a {type(found[nested[0]]).__name__}, "
                "not a text or a number",
            )
        else:
            yield Row(number, line, tuple(_text(found.get(column)) for column in columns))


def _text(value: str | float | bool | None) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        return json.dumps(value)
    # JSON can escape half of a surrogate pair, which is not a character.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
