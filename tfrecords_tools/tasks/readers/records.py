"""Splits text files into records: lines, and the cells of TSV, CSV and TREC's questions."""

import csv
import sys
from collections.abc import Iterator

from official.utils import text_lines
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks.readers import layouts


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
            yield number, layouts.trec_cells(line)
