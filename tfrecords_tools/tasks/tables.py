"""Reads the rows of labelled texts: TSV, CSV, JSON Lines, Parquet, folders, and TREC's questions.

TSV is read as GLUE distributes it: tabs separate columns, line ends separate rows, and every other
character is part of the text, quotation marks too. CSV is read with its quoting, so a quoted cell
may span several lines. JSON Lines has one object on each line. All three are UTF-8, may begin with
a byte-order mark and may be compressed (.gz). Blank lines are not rows. A row of Parquet is read
as an object of JSON Lines; its line is its number from 1.

A folder has a folder for each label, with one text in each file (aclImdb's `train/pos/0_9.txt`).
The columns are `label` and `text`. A line of a `.label` file is `COARSE:fine question`. The columns
are `label` (COARSE), `fine_label` (COARSE:fine) and `text`.
"""

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from official.tasks import nearest
from official.utils import packed_files, text_lines
from official.utils.errors import UserError
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
      label: the value of the requested label; None where it is missing, or not requested.
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
      lists: joins the texts of a list in JSON Lines; None = a list is refused.

    Raises:
      UserError: the file or a column is missing, the file is empty, or a row is bad.
    """
    bad = bad or BadRows()
    format = file_format(path, format)
    rows = 0
    if format in ("jsonl", "parquet"):
        more = [] if label is None else [label]
        if format == "jsonl":
            objects = text_lines.objects(path, bad)
        else:
            objects = _parquet(path, [*columns, *more], [*columns, *([] if optional else more)])
        source = _objects(objects, path, columns, label, optional, bad, lists)
    else:
        source = _cells(path, columns, label, optional, header, format, bad, labels)
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
                continue
        if damaged:
            bad("not UTF-8", f"{location(path, damaged[0])}: not UTF-8: convert the file")
            damaged.clear()
        elif cells is None:
            bad(
                "no labelled question",
                f"{location(path, line)}: expected COARSE:fine and a question, such as "
                "'NUM:date When did ...'",
            )
        elif len(cells) != width:
            bad(
                "wrong number of columns",
                f"{path}, line {line}: {_count(len(cells))} where the "
                f"{'header' if header else 'first line'} has {width}",
            )
        else:
            text = None if label_index is None else cells[label_index]
            yield Row(number, line, tuple(cells[i] for i in indices), text)
        number += 1


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
    path: AnyPath, columns: Sequence[str], required: Sequence[str]
) -> Iterator[tuple[int, int, dict]]:
    """Yields the number, the number from 1 and the columns of each row of a Parquet file.

    Raises:
      UserError: the package that reads it is not installed, the file is damaged, or it has no such
        column.
    """
    packed_files.check(path)
    import pyarrow
    from pyarrow import parquet

    plain = (str, int, float, bool, list, dict, type(None))
    number = 0
    try:
        with path.open("rb") as stream:
            table = parquet.ParquetFile(stream)
            names = table.schema_arrow.names
            for column in required:
                _column_index(path, column, names, 0)
            known = [name for name in columns if name in names]
            for batch in table.iter_batches(_ROWS_AT_ONCE, columns=known, use_threads=False):
                for row in batch.to_pylist():
                    values = {k: v if isinstance(v, plain) else str(v) for k, v in row.items()}
                    yield number, number + 1, values
                    number += 1
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as Parquet behind row {number}: {error}") from error


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
    for number, line, value in objects:
        if absent is None:
            absent = {label} if label and optional and value.get(label) is None else set()
        if lists is not None:
            value = {key: _joined(part, lists) for key, part in value.items()}
        missing = {column for column in wanted if value.get(column) is None}
        nested = [c for c in wanted if isinstance(value.get(c), (list, dict))]
        if missing - absent:
            column = next(c for c in wanted if c in missing - absent)
            bad(
                "missing key",
                f"{path}, line {line}: no {column!r}{nearest(column, value)}: "
                f"its keys are {', '.join(map(repr, value))}",
            )
        elif absent - missing:
            given = ", ".join(map(repr, sorted(absent - missing)))
            bad(
                "labelled among unlabelled",
                f"{path}, line {line}: has {given}, which the first row lacks: give it in all rows "
                "or in none",
            )
        elif nested:
            bad(
                "not a text",
                f"{path}, line {line}: {nested[0]!r} is a {type(value[nested[0]]).__name__}, "
                "not a text or a number",
            )
        else:
            text = None if label is None or label in missing else _text(value[label])
            yield Row(number, line, tuple(_text(value[column]) for column in columns), text)


def _joined(value: Any, separator: str) -> Any:
    """Returns a list of texts without the separator as one text, and other values as they are."""
    if isinstance(value, list) and all(isinstance(x, str) and separator not in x for x in value):
        return separator.join(value)
    return value


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
