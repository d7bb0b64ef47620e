"""The documents of a range of a text or JSON Lines file.

A text file (with any name) has one sentence or paragraph on each line, and a blank line between
documents. A JSON Lines file (`.jsonl`) has one document on each line, an object whose `text` field
has one sentence or paragraph on each line.

The text of a document begins and ends with a character that is not white space, and is not changed
here. `slices` and `cleaned` divide it into its lines.
"""

import collections
import dataclasses
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from official.utils import packed_files
from official.utils.errors import UserError
from tfrecords_tools.text import file_ranges
from tfrecords_tools.text.file_ranges import FileRange

LAST = -1  # Stands for the number of the last document of a range.
# Unicode's property White_Space, which is `\s` in GPT-2's pattern. Python also takes four control
# characters (U+001C to U+001F) for white space.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")  # without the line break
# Control characters that separate words become spaces. The others are removed, as BERT's tokenizer
# does.
_CLEAN = {code: None for code in (*range(0x20), *range(0x7F, 0xA0))} | dict.fromkeys(
    (*b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f", 0x85), " "
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BLANK_LINES = re.compile(r"\n\s*\n")
_MANY_ENDS = (b"\n" * 1024, b"\r\n" * 1024)
_LINE_OR_ENDS = re.compile(rb"(?:\r?\n)++|[^\n]*+\n|[^\n]++")
_BOM = b"\xef\xbb\xbf"


class Document(NamedTuple):
    """A document, or the part of a long one that a range has.

    Attributes:
      text: the text. That of a further part begins with the white space before it.
      identity: the number of the file; the number of the range in which the document begins; and
        its number among the documents of this range, or `LAST` if it continues in another range.
      part: the number of the part; 0 = the document begins here.
      unfinished: whether the document continues in a later range.
    """

    text: str
    identity: tuple[int, int, int]
    part: int = 0
    unfinished: bool = False


@dataclasses.dataclass
class ReadCounts:
    """Counts of what is read.

    Attributes:
      documents: the number of documents that begin and are not blank.
      long: the number of documents that begin and are read in parts.
      skipped: the number of lines or documents left out, by reason.
    """

    documents: int = 0
    long: int = 0
    skipped: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def add(self, other: "ReadCounts") -> None:
        """Adds the counts of other text."""
        self.documents += other.documents
        self.long += other.long
        self.skipped += other.skipped


def parse(
    text_range: FileRange, file: int = 0, skip_bad_utf8: bool = False
) -> tuple[list[Document], ReadCounts]:
    """Returns the documents of a range, and the counts.

    Args:
      text_range: the range.
      file: the number of its file.
      skip_bad_utf8: whether lines that are not UTF-8 are left out; if not, they are an error.

    Raises:
      UserError: a line cannot be read; the message names the file and the line.
    """
    read_counts = ReadCounts()
    if text_range.long_lines:
        read_counts.skipped["lines too long"] = text_range.long_lines
    lines = _Lines(text_range, skip_bad_utf8, read_counts)
    texts = _json_texts(lines) if packed_files.is_json(text_range.path) else _texts(lines)
    documents = [Document(text, (file, text_range.number, i)) for i, text in enumerate(texts)]
    if documents and text_range.unfinished:
        last = (file, text_range.number, LAST)
        documents[-1] = documents[-1]._replace(identity=last, unfinished=True)
    if documents and text_range.begins_in != text_range.number:
        # The first document of such a range may also be its last one.
        part = text_range.number - text_range.begins_in
        documents[0] = documents[0]._replace(identity=(file, text_range.begins_in, LAST), part=part)
    begun = [document for document in documents if not document.part]
    read_counts.documents = len(begun)
    read_counts.long = sum(document.unfinished for document in begun)
    return documents, read_counts


def cleaned(text: str) -> list[str]:
    """Returns the lines of a text for tokenizers that do not keep white space.

    Control characters and the white space around each line are removed, and so are empty lines.
    """
    lines: Iterable[str] = map(str.strip, text.split("\n"))
    if _CONTROL.search(text):
        lines = (line.translate(_CLEAN).strip() for line in lines)
    return [line for line in lines if line]


def slices(text: str) -> list[str]:
    """Returns the text in slices, one for each line that is not blank.

    A slice begins with the white space before it and ends with another character.
    """
    found = []
    before = ""  # The white space before the next slice.
    for line in _LINE.findall(text):
        content = line.rstrip(WHITE_SPACE)
        if content:
            found.append(before + content)
            before = ""
        before += line[len(content) :]
    return found


class _Lines:
    """The lines of a range.

    Attributes:
      read_counts: counts the lines that are left out.
      continues: whether the range continues a document.
    """

    def __init__(self, text_range: FileRange, skip_bad_utf8: bool, read_counts: ReadCounts):
        self._range, self._skip, self.read_counts = text_range, skip_bad_utf8, read_counts
        self.continues = text_range.begins_in != text_range.number
        bom = text_range.start == 0 and text_range.data.startswith(_BOM)
        self._begin = len(_BOM) if bom else 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yields the position and the text of each line, with its line break.

        Where there are very many empty lines, those that follow one another are one.
        """
        position = self._begin
        data = self._range.data[position:]
        lines: Iterable[bytes] = io.BytesIO(data)
        if any(ends in data for ends in _MANY_ENDS):
            lines = (found.group() for found in _LINE_OR_ENDS.finditer(data))
        for line in lines:
            try:
                yield position, line.decode()
            except UnicodeDecodeError as error:
                what = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
                self.bad_utf8(position, what)
            position += len(line)

    def text(self) -> str:
        """Returns the lines together."""
        try:
            return str(memoryview(self._range.data)[self._begin :], "utf-8")
        except UnicodeDecodeError:
            return "".join(line for _, line in self)

    def where(self, position: int) -> str:
        """Returns the file and the line at a position in the range."""
        path = self._range.path
        return f"{path}:{file_ranges.line_number(path, self._range.start + position)}"

    def bad_utf8(self, position: int, what: str) -> None:
        """Counts a line that is not UTF-8 as left out, or raises UserError."""
        if not self._skip:
            raise UserError(
                f"{self.where(position)}: not UTF-8 ({what}): convert the file, for example with "
                "`iconv -t UTF-8`, or pass --on_bad_utf8=skip to leave such lines out"
            )
        self.read_counts.skipped["lines not UTF-8"] += 1


def _texts(lines: _Lines) -> Iterator[str]:
    """Yields the documents between blank lines."""
    text = lines.text()
    break_ = "\n" if text.startswith("\n") and lines.continues else ""
    for number, document in enumerate(_BLANK_LINES.split(f"\n{text.removeprefix(break_)}\n")):
        if document := _stripped(document, lines.read_counts):
            yield document if number else break_ + document


def _json_texts(lines: _Lines) -> Iterator[str]:
    """Yields the documents of JSON Lines."""
    for position, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            where = lines.where(position)
            raise UserError(f"{where}: not a JSON object ({error}): one object a line") from error
        text = row.get("text") if isinstance(row, dict) else None
        if not isinstance(text, str):
            has = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
            raise UserError(
                f"{lines.where(position)}: no `text` field that is a string; it has: {has[:200]}"
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            lines.bad_utf8(position, f"lone surrogate \\u{ord(text[error.start]):04x} in `text`")
            continue
        document = _stripped(text, lines.read_counts)
        if document:
            yield document
        elif not text.strip(WHITE_SPACE):
            lines.read_counts.skipped["empty documents"] += 1


def _stripped(text: str, read_counts: ReadCounts) -> str:
    """Returns a document without white space around it; "" if it is left out."""
    text = text.strip(WHITE_SPACE)
    if _CONTROL.match(text) and not cleaned(text):
        read_counts.skipped["empty documents"] += 1
        return ""
    return text
