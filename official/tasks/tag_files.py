"""Reads files of words and tags: CoNLL, and JSON Lines of words or of texts with spans.

CoNLL has a word on each line, with its tag in another column, and a blank line between texts. The
columns of a file are separated by tabs alone or by blanks alone, as those of its first line: a line
with a tab is separated by tabs, and its words may contain blanks. A line that begins with
`-DOCSTART-` begins a document and is no word. JSON Lines has one of these objects on each line,
where positions count characters (code points):

  {"tokens": ["Ada", "Lovelace", "wrote"], "tags": ["B-PER", "I-PER", "O"]}
  {"text": "Ada Lovelace wrote", "spans": [{"start": 0, "end": 12, "type": "PER"}]}

Other names of these keys are read as well: see `KEYS`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from official.tasks.task import Columns
from official.utils import text_lines
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, Unusable, location

FORMATS = {".jsonl": "jsonl", ".json": "jsonl"}
# The names that a key may have: those of predictions and of other tools come last.
KEYS = {
    "tokens": ("tokens", "words"),
    "tags": ("tags", "ner_tags"),
    "spans": ("spans", "entities", "label"),
    "type": ("type", "label"),
}
_BLANKS = re.compile(r"[ \t]+")
_SPACE = re.compile(r"[ \t\r\n]")


class TaggedWords(NamedTuple):
    """A text that is split into words.

    Attributes:
      words: the words.
      tags: their tags; None = the file has none.
      location: the file and the line of the text, for messages.
      lines: the line of each word.
      text: the text that was split into the words; None = the file has the words.
      offsets: the first character of each word in `text`, and the character after its last one.
      left_out: the number of spans that were left out because of others inside or around them.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    location: str
    lines: tuple[int, ...]
    text: str | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    left_out: int = 0


class Span(NamedTuple):
    """An entity: its first character, the character after its last one, and its type."""

    start: int
    end: int
    type: str

    def __str__(self) -> str:
        """Returns the span for messages."""
        return f"{self.start}-{self.end} ({self.type})"


class TextWithSpans(NamedTuple):
    """A text that is not split into words.

    Attributes:
      text: the text.
      spans: its entities, in the order of the file; None = the file has none.
      location: the file and the line of the text, for messages.
      line: the line.
    """

    text: str
    spans: tuple[Span, ...] | None
    location: str
    line: int


Record = TaggedWords | TextWithSpans


def file_format(path: AnyPath, given: str | None = None) -> str:
    """Returns "conll" or "jsonl": the given format, or the one of the file name.

    Raises:
      UserError: another format is given.
    """
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix
    format = given or FORMATS.get(suffix, "conll")
    if format not in ("conll", "jsonl"):
        raise UserError(f"--format={format}: files of tags are conll or jsonl: give one of these")
    return format


def read(
    path: AnyPath,
    columns: Columns,
    format: str | None = None,
    labelled: bool = True,
    bad: BadRows | None = None,
    labels: Sequence[str] = (),
) -> Iterator[Record]:
    """Yields the texts of a file, in order.

    Args:
      path: the file.
      columns: of CoNLL, the indices of the columns of the word and of the tag; "-1" is the last.
      format: "conll" or "jsonl"; None = by the file name.
      labelled: whether the file must have tags.
      bad: is called with texts that cannot be used.
      labels: the names of the tags that are numbers.

    Raises:
      UserError: the file is missing, has no text, or `bad` raises it.
    """
    bad = bad or BadRows()
    if file_format(path, format) == "jsonl":
        rows = _objects(path, labelled, bad, labels)
    else:
        rows = _conll(path, columns, labelled, bad)
    number = 0
    for number, record in enumerate(rows, 1):  # noqa: B007
        yield record
    if not number and not bad.counts:
        raise UserError(f"{path} is empty: it has no words")


class _Line(NamedTuple):
    """The number of a line from 1, and its cells; None if it is not UTF-8."""

    number: int
    text: str | None


def _blocks(path: AnyPath) -> Iterator[list[_Line]]:
    """Yields the lines of each text of a CoNLL file."""
    damaged: list[int] = []
    block: list[_Line] = []
    for number, line in enumerate(text_lines.lines(path, damaged), 1):
        line = line.strip(" \t")
        if line and not _BLANKS.split(line)[0] == "-DOCSTART-":
            block.append(_Line(number, None if damaged else line))
        elif block:
            yield block
            block = []
        damaged.clear()
    if block:
        yield block


def _conll(path: AnyPath, columns: Columns, labelled: bool, bad: BadRows) -> Iterator[TaggedWords]:
    table = _Table(path, columns, labelled)
    for block in _blocks(path):
        try:
            record = table.record(block)
        except Unusable as fault:
            bad(*fault.args)
            continue
        yield record


class _Table:
    """The columns of a CoNLL file, whose first line tells how many there are."""

    def __init__(self, path: AnyPath, columns: Columns, labelled: bool):
        self._path = path
        self._names = columns.text, columns.label or "-1"
        self._indices = [_index(column) for column in self._names]
        self._has_tags: bool | None = labelled or None  # None = the first line tells
        self._first: tuple[int, str, int] | None = None  # line, separator and number of columns
        self._tags: set[str] = set()  # those that are checked

    def record(self, block: Sequence[_Line]) -> TaggedWords:
        """Returns the text of some lines."""
        words, tags = [], []
        for line in block:
            cells = self._cells(line)
            words.append(self._cell(cells, 0, line))
            if self._has_tags:
                tags.append(self._cell(cells, 1, line))
                if tags[-1] not in self._tags:
                    self._tags.add(_checked_tag(tags[-1], self._where(line)))
        lines = tuple(line.number for line in block)
        where = location(self._path, lines[0])
        return TaggedWords(tuple(words), tuple(tags) if self._has_tags else None, where, lines)

    def _where(self, line: _Line) -> str:
        return f"{self._path}, line {line.number}"

    def _cells(self, line: _Line) -> list[str]:
        if line.text is None:
            raise Unusable("not UTF-8", f"{self._where(line)}: not UTF-8: convert the file")
        tabs = "\t" in line.text
        cells = [cell.strip(" ") for cell in line.text.split("\t")] if tabs else line.text.split()
        separator = "tabs" if tabs else "blanks" if len(cells) > 1 else ""
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

    def _cell(self, cells: list[str], which: int, line: _Line) -> str:
        index, what = self._indices[which], ("word", "tag")[which]
        if not -len(cells) <= index < len(cells):
            raise UserError(
                f"{self._where(line)}: no column {self._names[which]} for the {what}: the line has "
                f"{_count(len(cells))} (--text_column, --label_column)"
            )
        if not cells[index]:
            raise Unusable(f"empty {what}", f"{self._where(line)}: the {what} is empty")
        return cells[index]


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


def _checked_tag(tag: str, where: str) -> str:
    if not tag:
        raise Unusable("not a tag", f"{where}: the tag is empty")
    return tag


def _objects(
    path: AnyPath, labelled: bool, bad: BadRows, labels: Sequence[str]
) -> Iterator[Record]:
    for _, line, value in text_lines.objects(path, bad):
        where = location(path, line)
        try:
            record = _record(value, labelled, where, line, labels)
        except Unusable as fault:
            bad(*fault.args)
            continue
        yield record


def _record(value: dict, labelled: bool, where: str, line: int, labels: Sequence[str]) -> Record:
    """Returns the text of an object."""
    if _is_text(value):
        return _text_with_spans(value, labelled, where, line)
    return _words_and_tags(value, labelled, where, line, labels)


def _is_text(value: dict) -> bool:
    """Returns whether an object is a text with spans; predictions have its words as well."""
    if "tokens" in value or "text" not in value:
        return False
    return "words" not in value or any(key in value for key in KEYS["spans"])


def _words_and_tags(
    value: dict, labelled: bool, where: str, line: int, labels: Sequence[str]
) -> TaggedWords:
    key = _key(value, "tokens")
    if key is None:
        raise Unusable(
            "missing key",
            f"{where}: neither 'tokens' (with 'tags') nor 'text' (with 'spans'): its keys are "
            f"{', '.join(map(repr, value)) or 'none'}",
        )
    words = _list(value, key, str, where)
    for word in words:
        if not word or _SPACE.search(word):
            raise Unusable(
                "not a word",
                f"{where}: word {word!r:.60} is empty or has a blank, tab or line break inside: "
                "split it into words, or remove it with its tag",
            )
    if not words:
        raise Unusable("no words", f"{where}: the text has no words")
    lines = (line,) * len(words)
    key = _key(value, "tags")
    if key is None and not labelled:
        return TaggedWords(tuple(map(_clean, words)), None, where, lines)
    tags = _list(value, key or "tags", str | int, where)
    if len(tags) != len(words):
        raise Unusable(
            "wrong number of tags",
            f"{where}: {len(words)} tokens and {len(tags)} tags: give each word one tag",
        )
    names = tuple(_checked_tag(_name(tag, labels, where), where) for tag in tags)
    return TaggedWords(tuple(map(_clean, words)), names, where, lines)


def _name(tag: str | int, labels: Sequence[str], where: str) -> str:
    """Returns the name of a tag, which may be a number."""
    if isinstance(tag, str):
        return _clean(tag)
    if not labels:
        raise Unusable(
            "not a tag",
            f"{where}: tag {tag} is a number: name the tags with --labels, in the order of their "
            "numbers from 0",
        )
    if not 0 <= tag < len(labels):
        raise Unusable(
            "not a tag", f"{where}: tag {tag} is not from 0 to {len(labels) - 1}, those of --labels"
        )
    return labels[tag]


def _text_with_spans(value: dict, labelled: bool, where: str, line: int) -> TextWithSpans:
    if not isinstance(value["text"], str):
        raise Unusable("wrong type", f"{where}: 'text' is {value['text']!r:.60}, expected a text")
    text = _clean(value["text"])
    key = _key(value, "spans")
    if key is None and not labelled:
        return TextWithSpans(text, None, where, line)
    spans = tuple(
        _span(span, len(text), where) for span in _list(value, key or "spans", dict | list, where)
    )
    return TextWithSpans(text, spans, where, line)


def _span(value: dict | list, length: int, where: str) -> Span:
    """Checks a span: an object, or a list of the start, the end and the type."""
    start, end, kind = _start_end_type(value)
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (start, end))
    if not whole or not isinstance(kind, str) or not kind or _SPACE.search(kind):
        raise Unusable(
            "not a span",
            f"{where}: span {value!r:.80}: expected the whole numbers 'start' and 'end' and a "
            "'type' without blanks",
        )
    span = Span(start, end, _clean(kind))
    if not 0 <= start < end <= length:
        raise Unusable(
            "span outside its text",
            f"{where}: span {span} is not inside the text of {length} characters",
        )
    return span


def _start_end_type(value: dict | list) -> Sequence[Any]:
    """Returns the values of a span, which are not checked; None = there is none."""
    if isinstance(value, dict):
        return [value.get(key) for key in ("start", "end", _key(value, "type"))]
    return value if len(value) == 3 else [None] * 3


def _key(value: dict, name: str) -> str | None:
    """Returns the first name of a key that an object has, or None."""
    return next((key for key in KEYS[name] if key in value), None)


def _list(value: dict, key: str, kind: Any, where: str) -> list:
    found = value.get(key)
    if not isinstance(found, list) or any(
        not isinstance(item, kind) or isinstance(item, bool) for item in found
    ):
        names = {str: "texts", str | int: "texts or numbers", dict | list: "objects"}
        raise Unusable(
            "wrong type",
            f"{where}: {key!r} is {found!r:.60}, expected a list of {names[kind]}",
        )
    return found


def _clean(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can escape; the length does not change."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
