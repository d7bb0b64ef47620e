"""Cuts files into ranges, each of which a process reads without the rest of the corpus.

A file is divided every `size` bytes. Range n has the text from its begin, which is in the nth of
these stretches, to the begin of the next range. The begin is the first of these in the stretch:

* the begin of a document: the line after a blank one, or any line of JSON Lines;
* if there is none, the first line of text: the range continues a document of an earlier one.

There is no range n if one line fills the stretch, nor if the last stretch has the end of a document
alone. A document of more than `MAX_DOCUMENT_BYTES` is divided, so that no process has to look
further back for its begin.

The ranges of a packed file (see `official.utils.packed_files`) cannot be read alone. `read_packed`
reads them all, in order, and cuts them where documents begin.
"""

import dataclasses
import functools
import io
import re
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from official.utils import input_files, packed_files
from official.utils.errors import UserError
from official.utils.input_files import InputFile
from official.utils.paths import AnyPath

MAX_LINE_BYTES = 16 << 20  # Without the line break.
MAX_DOCUMENT_BYTES = 16 << 20
_SEARCHED_AT_ONCE = 64 << 10
_LOOK_BACK = 1 << 10  # A longer blank line across the begin of a range is not seen as a blank one.
# What `str.isspace` takes for white space, without the line break, in UTF-8.
_SPACE = (
    rb"(?:[\t\x0b\x0c\r\x1c-\x20]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]"
    rb"|\xe2\x81\x9f|\xe3\x80\x80)"
)
_BLANK = re.compile(_SPACE + rb"*\n?")
_BLANK_LINE = re.compile(rb"\n" + _SPACE + rb"*\n")
_LINE = re.compile(rb"\n")
_LINE_ENDS = re.compile(rb"(?:\r?\n)*+")
_MANY_ENDS = 1 << 10  # bytes, which text does not have between two documents
_NOT_SPACE = rb"(?!" + _SPACE + rb")[!-~\x80-\xff]"
# A line break with no white space before it or after it.
_INNER_BREAK = re.compile(
    rb"\n(?=" + _NOT_SPACE + rb")(?<=[!-~\x80-\xff]\n)(?<!\xc2[\x85\xa0]\n)(?<!\xe1\x9a\x80\n)"
    rb"(?<!\xe2\x80[\x80-\x8a\xa8\xa9\xaf]\n)(?<!\xe2\x81\x9f\n)(?<!\xe3\x80\x80\n)"
)


class FileRange(NamedTuple):
    """A range of a file.

    Attributes:
      path: the file.
      number: the number of the range in the file.
      start: the position of the first byte in the file, after it is unpacked.
      data: the bytes.
      begins_in: the number of the range in which the first document begins: `number`, or, if this
        range continues a document, a lower one. It is the last document of that range. The data
        then begins with the line break before the first line.
      unfinished: whether the last document continues in a later range.
      long_lines: the number of lines that were left out, because they are too long.
    """

    path: AnyPath
    number: int
    start: int
    data: bytes
    begins_in: int
    unfinished: bool
    long_lines: int = 0


class _Begin(NamedTuple):
    position: int
    document: bool  # whether a document begins here


@dataclasses.dataclass(frozen=True)
class PlainFile:
    """The ranges of a file that is not packed.

    Attributes:
      source: the file, as it was when its ranges were counted.
      size: the number of bytes of a stretch.
      skip_long_lines: whether lines of more than `MAX_LINE_BYTES` are left out; if not, they are an
        error.
    """

    source: InputFile
    size: int
    skip_long_lines: bool = False

    def read(self, number: int) -> FileRange | None:
        """Reads a range; None if there is none with this number.

        Raises:
          UserError: the file cannot be read, has changed, or has a line that is too long.
        """
        path, total = self.source.path, self.source.size
        with input_files.opened(self.source) as file:
            ranges = _Ranges(file, total, self.size, packed_files.is_json(path))
            begin = ranges.begin(number)
            if begin is None:
                return None
            following = range(number + 1, -(-total // self.size))
            begins = ((n, found) for n in following if (found := ranges.begin(n)))
            last, end = next(((n, found.position) for n, found in begins), (None, total))
            begins_in = ranges.begins_in(number)
            unfinished = last is not None and ranges.begins_in(last) != last
            data, long_lines = _read(file, self, begin.position, end)
        return FileRange(path, number, begin.position, data, begins_in, unfinished, long_lines)


class _Ranges:
    """The begins of the ranges of an open file."""

    def __init__(self, file: IO[bytes], total: int, size: int, json: bool):
        self._file, self._total, self._size, self._json = file, total, size, json
        self._most = max(1, MAX_DOCUMENT_BYTES // size)  # stretches of a document
        self.begin = functools.cache(self._begin)

    def _begin(self, number: int) -> _Begin | None:
        """Returns the begin of range `number`; None if it is not in its stretch."""
        if number == 0:
            return _Begin(0, True)
        first, end = number * self._size, (number + 1) * self._size
        before = max(0, first - (1 if self._json else _LOOK_BACK))
        # Most documents are short, so a part of the range is enough.
        for stop in (min(first + _SEARCHED_AT_ONCE, end), end):
            self._file.seek(before)
            data = self._file.read(stop + 4 - before)  # a character more
            pattern = _LINE if self._json else _BLANK_LINE
            found = pattern.search(data)
            while found and before + found.end() < first:
                found = pattern.search(data, found.end() - (not self._json))
            if found and before + found.end() < min(end, before + len(data)):
                return _Begin(before + found.end(), True)
        if self._json or end >= self._total:
            return None
        inner = _INNER_BREAK.search(data, first - before)
        if inner and before + inner.start() < end:
            return _Begin(before + inner.start(), False)
        return None

    def begins_in(self, number: int) -> int:
        """Returns the number of the range in which the first document of range `number` begins.

        A document that began `most` stretches ago, or earlier, is divided at the next multiple of
        `most`.
        """
        multiple = number // self._most * self._most
        for i in range(number, max(multiple - self._most, -1), -1):
            if (begin := self.begin(i)) and begin.document:
                return i
        return multiple


def read_packed(source: InputFile, size: int, skip_long_lines: bool = False) -> Iterator[FileRange]:
    """Yields the ranges of a packed file, of at least `size` bytes each but the last.

    Args:
      source: the file, as it was when the work was planned.
      size: the number of bytes.
      skip_long_lines: see `PlainFile`.

    Raises:
      UserError: the file cannot be read, has changed, or has a line that is too long.
    """
    path = source.path
    most = max(1, MAX_DOCUMENT_BYTES // size)  # ranges of a document
    json = packed_files.is_json(path)
    number = start = total = long_lines = 0
    begins_in = last_begin = 0  # the ranges in which the first and the last document begin
    lines: list[bytes] = []
    previous = b"\n"
    with input_files.opened(source) as file:
        for line in _lines(packed_files.unpacked(file, path), path, skip_long_lines):
            if line is None:
                long_lines += 1
                continue
            many = len(line) > _MANY_ENDS and _is_blank(line)
            document = json or many or (_is_blank(previous) and not _is_blank(line))
            inner = total >= 2 * size and _INNER_BREAK.search(previous[-4:] + line[:4])
            if total >= size and (document or inner):
                unfinished = not document and number + 1 - last_begin < most
                cut = b"" if document else b"\n"
                data = b"".join(lines).removesuffix(cut)
                yield FileRange(path, number, start, data, begins_in, unfinished, long_lines)
                lines, start, total, long_lines = [cut], start + len(data), 0, 0
                number += 1
                begins_in = last_begin = last_begin if unfinished else number
            if document:
                last_begin = number
            lines.append(line)
            total += len(line)
            previous = line
    if lines or long_lines:
        yield FileRange(path, number, start, b"".join(lines), begins_in, False, long_lines)


def _read(file: IO[bytes], plain: PlainFile, begin: int, end: int) -> tuple[bytes, int]:
    """Returns the bytes from `begin` to `end`, and the number of long lines that are left out."""
    file.seek(begin)
    if end - begin <= MAX_LINE_BYTES:
        return file.read(end - begin), 0
    lines, long_lines = [], 0
    for line in _lines(file, plain.source.path, plain.skip_long_lines):
        beyond = max(0, file.tell() - end)  # the line break, if the next range begins with it
        if line is None:
            long_lines += 1
        else:
            lines.append(line[: len(line) - beyond])
        if file.tell() >= end:
            break
    return b"".join(lines), long_lines


def _lines(
    file: IO[bytes] | io.BufferedIOBase, path: AnyPath, skip: bool
) -> Iterator[bytes | None]:
    """Yields the lines of an open file, and None for a line that is too long.

    Thousands of empty lines are one: a few packed bytes may unpack to millions of them.

    Raises:
      UserError: the file cannot be read, or has a line that is too long and is not to be skipped.
    """
    position = 0
    while True:
        try:
            position = file.tell()
            line = file.readline(MAX_LINE_BYTES + 1)
            long = len(line) > MAX_LINE_BYTES and not line.endswith(b"\n")
            rest = line
            if line in (b"\n", b"\r\n"):
                line += _line_ends(file)
            while long and skip and rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE_BYTES + 1)
        except (EOFError, zlib.error, OSError) as error:
            raise UserError(
                f"{path}: cannot be read past line {line_number(path, position) - 1}: {error}: the "
                "file is damaged or cut short; fetch or make it again"
            ) from error
        if not line:
            return
        if long and not skip:
            raise UserError(
                f"{path}:{line_number(path, position)}: the line has more than "
                f"{MAX_LINE_BYTES >> 20} MiB: break it into lines of a sentence or a paragraph, or "
                "pass --on_long_line=skip"
            )
        yield None if long else line


def _line_ends(file: IO[bytes] | io.BufferedIOBase) -> bytes:
    """Reads the line ends that follow if they are many; b"" otherwise."""
    peek = getattr(file, "peek", None)
    ends = _LINE_ENDS.match(peek(1)) if peek else None
    return file.read(ends.end()) if ends and ends.end() > _MANY_ENDS else b""


def line_number(path: AnyPath, position: int) -> int:
    """Returns the number, from 1, of the line at a position in the (unpacked) file."""
    count = 1
    with input_files.opened(path) as file:
        stream = packed_files.unpacked(file, path) if packed_files.is_packed(path) else file
        while position > 0 and (block := stream.read(min(position, 1 << 20))):
            count += block.count(b"\n")
            position -= len(block)
    return count


def _is_blank(line: bytes) -> bool:
    return not line.strip() or _BLANK.fullmatch(line) is not None
