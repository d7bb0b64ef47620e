"""Reads the rows of labeled texts: TSV, CSV, JSON Lines, Parquet, folders, and TREC's questions.

TSV is read as GLUE distributes it: tabs separate columns, line ends separate rows, and every other
character is part of the text, quotation marks too. CSV is read with its quoting, so a quoted cell
may span several lines. JSON Lines has one object on each line; a file that begins with `[` is one
list of objects. All are UTF-8, may begin with a byte-order mark and may be compressed (.gz). Blank
lines are not rows. A row of Parquet is read as an object of JSON Lines; its line is its number from
1. Rows that an annotation tool marks as not to be used are left out (`official.tasks.annotations`).

A folder has a folder for each label, with one text in each file (aclImdb's `train/pos/0_9.txt`).
The columns are `label` and `text`. A line of a `.label` file is `COARSE:fine question`. The columns
are `label` (COARSE), `fine_label` (COARSE:fine) and `text`.
"""

import csv
import decimal
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from official.tasks import annotations, label_studio
from official.utils import input_files, packed_files, text_lines
from official.utils.errors import UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, location

FORMATS = {
    ".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl",
    ".label": "trec", ".parquet": "parquet",
}  # fmt: skip
FOLDER_COLUMNS = ("label", "text")
TREC_COLUMNS = ("label", "fine_label", "text")
_ROWS_AT_ONCE = 1024
_QUESTION = re.compile(r"(\w+):(\w+)\s+(.*)")
# The columns of formats that have no header.
_KNOWN_COLUMNS = {"folders": FOLDER_COLUMNS, "trec": TREC_COLUMNS}


class Row(NamedTuple):
    """One row of a file.

    Attributes:
      number: the number of the row, from 0; the header and blank lines are not counted.
      line: the number of its first line in the file, from 1; for a folder, the name of the file.
      cells: the values of the requested columns.
      label: the value of the requested label; None where it is not requested, and in rows without
        one: of a file without labels, or with null as their label.
    """

    number: int
    line: int | str
    cells: tuple[str, ...]
    label: str | None = None


def file_format(path: AnyPath, given: str | None = None) -> str:
    """Returns the given format of a file, or the one that its name implies.

    Raises:
      UserError: none is given, and the name implies none.
    """
    if given:
        return given
    if path.is_dir():
        return "folders"
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix
    if suffix not in FORMATS:
        raise UserError(
            f"{path}: cannot tell the format from the name: "
            "set --format=tsv, --format=csv or --format=jsonl"
        )
    return FORMATS[suffix]


def read(
    path: AnyPath,
    columns: Sequence[str],
    label: str | None = None,
    optional: bool = False,
    header: bool = True,
    format: str | None = None,
    bad: BadRows | None = None,
    labels: Sequence[str] = (),
    lists: str | None = None,
) -> Iterator[Row]:
    """Yields the rows of a file with the requested columns.

    Args:
      path: the file.
      columns: names (of the header, or keys of the objects) or indices from "0".
      label: the column of the label; None = none is read.
      optional: whether the label may be missing in the whole file.
      header: whether the first line of a TSV or CSV file names the columns.
      format: "tsv", "csv", "jsonl", "parquet", "trec" or "folders"; None = by the file name.
      labels: the labels of a folder whose texts are read; empty = all.
      bad: is called with rows that have the wrong number of columns, are not UTF-8 or not JSON.
      lists: joins the texts or the numbers of a list in JSON Lines; None = a list is refused, but a
        label may be the only one of a list.

    Raises:
      UserError: the file or a column is missing, the file is empty, or a row is bad.
    """
    bad = bad or BadRows()
    format = file_format(path, format)
    rows = 0
    if format in ("jsonl", "parquet"):
        more = [] if label is None else [label]
        read = [*columns, *more]
        if format == "jsonl":
            objects = annotations.objects(path, bad, not optional, read)
        else:
            required = columns if optional else read
            objects = _unmarked(_parquet(path, read, required, bad), read, not optional, bad)
        source = _objects(objects, path, columns, label, optional, bad, lists)
    else:
        source = _cells(path, columns, label, optional, header, format, bad, labels, lists)
    for row in source:
        rows += 1
        yield row
    if not rows and not bad.counts:
        raise UserError(f"{path} is empty: it has no rows")


def _cells(
    path: AnyPath,
    columns: Sequence[str],
    label: str | None,
    optional: bool,
    header: bool,
    format: str,
    bad: BadRows,
    labels: Sequence[str],
    lists: str | None,
) -> Iterator[Row]:
    damaged: list[Any] = []  # lines, or names of the files of a folder
    source: Iterable[tuple[Any, Any]]
    if format == "folders":
        source = folder_records(path, labels, damaged)
    elif format == "trec":
        source = trec_records(path)
    else:
        source = (tsv_records if format == "tsv" else csv_records)(path, damaged)
    known = _KNOWN_COLUMNS.get(format)
    header = header and known is None
    names: Sequence[str] | None = None
    indices: list[int] | None = None
    label_index: int | None = None
    marks: dict[str, int] = {}
    width = number = 0
    for line, cells in source:
        if indices is None:
            if header and damaged:
                raise UserError(f"{path}, line {damaged[0]}: the header is not UTF-8")
            width = len(known or cells)
            names = [cell.strip() for cell in cells] if header else known
            indices = [_column_index(path, column, names, width) for column in columns]
            if label is not None and not (optional and _lacks(label, names, width)):
                label_index = _column_index(path, label, names, width)
            if header:
                marks = _marks(names or (), [*columns, *([] if label is None else [label])])
                continue
        if damaged:
            bad("not UTF-8", f"{location(path, damaged[0])}: not UTF-8: convert the file")
            damaged.clear()
        elif cells is None:
            bad(
                "no labeled question",
                f"{location(path, line)}: expected COARSE:fine and a question, such as "
                "'NUM:date When did ...'",
            )
        elif len(cells) != width:
            bad(
                "wrong number of columns",
                f"{path}, line {line}: {_count(len(cells))} where the "
                f"{'header' if header else 'first line'} has {width}",
            )
        elif marks and (reason := _mark(cells, marks, optional)):
            bad.leave_out(reason)
        else:
            text = None if label_index is None else cells[label_index]
            if text is not None and (plain := label_studio.plain(text)) != text:
                text = str(_joined(plain, lists) if lists is not None else plain)
            yield Row(number, line, tuple(cells[i] for i in indices), text)
        number += 1


def _marks(names: Sequence[str], read: Sequence[str]) -> dict[str, int]:
    """Returns the columns of a header that may mark a row, but for those that are read."""
    known = (*annotations.MARKS, annotations.ANNOTATION)
    return {name: i for i, name in enumerate(names) if name in known and name not in read}


def _mark(cells: Sequence[str], marks: Mapping[str, int], optional: bool) -> str:
    """Returns why a row of a table says that it is not to be used; "" if it does not."""
    return annotations.mark({key: cells[i] for key, i in marks.items()}, not optional)


def _unmarked(
    rows: Iterable[tuple[int, int, dict]], read: Sequence[str], labeled: bool, bad: BadRows
) -> Iterator[tuple[int, int, dict]]:
    """Yields the rows that are not marked as not to be used."""
    for number, line, value in rows:
        if reason := annotations.mark(value, labeled, read):
            bad.leave_out(reason)
        else:
            yield number, line, {key: value[key] for key in read if key in value}


def _count(columns: int) -> str:
    return f"{columns} column{'' if columns == 1 else 's'}"


def _lacks(column: str, names: Sequence[str] | None, width: int) -> bool:
    """Returns whether a file has no such column."""
    return column not in (names or ()) and not (column.isdecimal() and int(column) < width)


def _column_index(path: AnyPath, column: str, names: Sequence[str] | None, width: int) -> int:
    """Returns the index of a column.

    Raises:
      UserError: the file has no such column, or several.
    """
    if names is not None and column in names:
        if names.count(column) > 1:
            raise UserError(f"{path} has {names.count(column)} columns named {column!r}")
        return names.index(column)
    if column.isdecimal() and int(column) < width:
        return int(column)
    if names is None:
        raise UserError(
            f"{path} has no column {column!r}: without a header its columns are 0 to {width - 1}"
        )
    raise UserError(
        f"{path} has no column {column!r}{nearest(column, names)}: "
        f"its columns are {', '.join(repr(n) for n in names)}"
    )


def _parquet(
    path: AnyPath, columns: Sequence[str], required: Sequence[str], bad: BadRows
) -> Iterator[tuple[int, int, dict]]:
    """Yields the number, the number from 1 and the columns of each row of a Parquet file.

    Columns of binary values are texts in UTF-8, as Spark, Hive and Impala write them.

    Args:
      path: the file.
      columns: the columns that are read where the file has them, with those that mark rows.
      required: the columns that the file must have.
      bad: is called with rows whose binary values are no UTF-8.

    Raises:
      UserError: the package that reads it is not installed, the file is damaged, or it has no such
        column.
    """
    packed_files.check(path)
    import pyarrow
    from pyarrow import parquet

    number = 0
    with input_files.opened(path) as stream:
        try:
            table = parquet.ParquetFile(stream)
            names = table.schema_arrow.names
            for column in required:
                _column_index(path, column, names, 0)
            wanted = {*columns, *annotations.MARKS, annotations.ANNOTATION}
            known = [name for name in names if name in wanted]
            for batch in table.iter_batches(_ROWS_AT_ONCE, columns=known, use_threads=False):
                for row in batch.to_pylist():
                    try:
                        yield number, number + 1, {key: _decoded(row[key]) for key in row}
                    except UnicodeDecodeError:
                        where = location(path, number + 1)
                        bad("not UTF-8", f"{where}: a binary value is not UTF-8: write texts")
                    number += 1
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{path} cannot be read as Parquet behind row {number}: {error}"
            ) from error


def _decoded(value: Any) -> Any:
    """Returns a value of Parquet as one of JSON; dates and times stay, which are neither."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return str(value) if isinstance(value, decimal.Decimal) else value


def _objects(
    objects: Iterable[tuple[int, int, dict]],
    path: AnyPath,
    columns: Sequence[str],
    label: str | None,
    optional: bool,
    bad: BadRows,
    lists: str | None = None,
) -> Iterator[Row]:
    wanted = [*columns] if label is None else [*columns, label]
    absent: set[str] | None = None  # The optional columns that the first row lacks.
    for number, line, row in objects:
        where = f"{path}, line {line}"
        if absent is None:
            absent = {label} if label and optional and label not in row else set()
        value = {key: row[key] for key in wanted if key in row}
        if label is not None and label in value:
            value[label] = _single(label_studio.plain(value[label]), lists)
        if lists is not None:
            value = {key: _joined(part, lists) for key, part in value.items()}
        missing = {column for column in wanted if value.get(column) is None}
        if lacking := missing - absent - {label if label in value else None}:
            column = next(c for c in wanted if c in lacking)
            bad(
                "missing key",
                f"{where}: no {column!r}{nearest(column, row)}: "
                f"its keys are {', '.join(map(repr, row))}",
            )
        elif absent - missing:
            given = ", ".join(map(repr, sorted(absent - missing)))
            bad(
                "labeled among unlabeled",
                f"{where}: has {given}, which the first row lacks: give it in all rows or in none",
            )
        elif others := [c for c in wanted if not _is_cell(value.get(c))]:
            bad("not a text", f"{where}: {others[0]!r} is {_kind(value[others[0]])}")
        else:
            bad.unread.update(annotations.unread(row, wanted))
            found = None if label is None else value.get(label)
            text = None if found is None else _text(found)
            yield Row(number, line, tuple(_text(value[column]) for column in columns), text)


def _single(value: Any, lists: str | None) -> Any:
    """Returns the only label of a list, as tools write it, where a text has one label; or None."""
    if lists is not None or not isinstance(value, list) or len(value) > 1:
        return value
    return value[0] if value else None


def _is_cell(value: Any) -> bool:
    """Returns whether a value is a text, a number or missing."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)


def _kind(value: Any) -> str:
    """Returns what a value is that is neither a text nor a number, for messages."""
    if isinstance(value, float):
        return f"{value}, which is no number: leave the value out, or write null"
    if isinstance(value, list | dict):
        return f"a {type(value).__name__}, not a text or a number"
    return f"{value!r}, a {type(value).__name__}: write it as a text"


def _joined(value: Any, separator: str) -> Any:
    """Returns a list of texts or numbers as one text, and other values as they are.

    A list with the separator in a text stays.
    """
    if not isinstance(value, list):
        return value
    if not all(
        isinstance(item, str | int | float) and not isinstance(item, bool) for item in value
    ):
        return value
    texts = [str(item) for item in value]
    return value if any(separator in text for text in texts) else separator.join(texts)


def _text(value: str | float | bool) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    # JSON can escape half of a surrogate pair, which is no character.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def tsv_records(path: AnyPath, damaged: list[int]) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number and the cells of each row; see `text_lines.lines` for `damaged`."""
    for number, line in enumerate(text_lines.lines(path, damaged), 1):
        if line:
            yield number, line.split("\t")


def csv_records(path: AnyPath, damaged: list[int]) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line number and the cells of each row; see `text_lines.lines` for `damaged`.

    Raises:
      UserError: the file is not CSV.
    """
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader((line + "\n" for line in text_lines.lines(path, damaged)), strict=True)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        # For an open quotation mark, the reader's line number is the end of the file.
        raise UserError(
            f"{path}, line {line}: not CSV from here on ({error}); is a quotation mark left open, "
            "or the file really TSV (--format=tsv)?"
        ) from error


def trec_records(path: AnyPath) -> Iterator[tuple[int, list[str] | None]]:
    """Yields the line number and the cells of each question; None for other lines."""
    for number, line in enumerate(text_lines.lines(path, []), 1):
        if line.strip():
            yield number, trec_cells(line)


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
    names = sorted(p.name for p in path.iterdir() if p.is_dir())
    if not names:
        raise UserError(
            f"{path} is a folder, not a file, and has no subfolder of texts for each label"
        )
    if missing := [label for label in labels if label not in names]:
        raise UserError(
            f"{path} has no folder {missing[0]!r}, the texts of that label: it has "
            f"{', '.join(names)}"
        )
    for label in labels or names:
        for file in sorted(p for p in (path / label).iterdir() if p.is_file()):
            content = input_files.read(file).removeprefix(b"\xef\xbb\xbf")
            name = f"{label}/{file.name}"
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError:
                damaged.append(name)
                text = ""
            yield name, [label, text.strip()]


def trec_cells(line: str) -> list[str] | None:
    """Returns the cells of `TREC_COLUMNS`; None if the line is no labeled question.

    One byte of the train file is no character. It stands for a space and is read as one.
    """
    match = _QUESTION.fullmatch(line.replace("\ufffd", " ").strip())
    return [match[1], f"{match[1]}:{match[2]}", match[3]] if match else None
