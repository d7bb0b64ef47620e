"""Reads files of words and tags: CoNLL, and JSON Lines of words or of texts with spans.

CoNLL has a word on each line, with its tag in another column, and a blank line between texts.
Columns are separated by tabs or blanks. A line that begins with `-DOCSTART-` begins a document and
is no word. JSON Lines has one of these objects on each line, where positions count characters:

  {"tokens": ["Ada", "Lovelace", "wrote"], "tags": ["B-PER", "I-PER", "O"]}
  {"text": "Ada Lovelace wrote", "spans": [{"start": 0, "end": 12, "type": "PER"}]}
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from official.tasks import tags as tag_rules
from official.tasks.task import Columns
from official.tokenizers import text_words
from official.utils import json_lines, text_lines
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks.readers import tables

FORMATS = {".jsonl": "jsonl", ".json": "jsonl"}
_BLANKS = re.compile(r"[ \t]+")
_SPACE = re.compile(r"[ \t\r\n]")


class Text(NamedTuple):
    """A text of a file.

    Attributes:
      words: the words.
      tags: their tags; None = the file has none.
      location: the file and the line of the text, for messages.
      lines: the line of each word.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    location: str
    lines: tuple[int, ...]


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
    bad: tables.BadRows | None = None,
    widen: bool = False,
) -> Iterator[Text]:
    """Yields the texts of a file, in order.

    Args:
      path: the file.
      columns: of CoNLL, the indices of the columns of the word and of the tag; "-1" is the last.
      format: "conll" or "jsonl"; None = by the file name.
      labelled: whether the file must have tags.
      bad: is called with texts that cannot be used.
      widen: whether a span that cuts a word is widened to the whole word.

    Raises:
      UserError: the file is missing, has no text, or a text cannot be used.
    """
    bad = bad or tables.BadRows()
    if file_format(path, format) == "jsonl":
        texts = _objects(path, labelled, bad, widen)
    else:
        texts = _conll(path, columns, labelled)
    number = 0
    for number, text in enumerate(texts, 1):  # noqa: B007
        yield text
    if not number and not bad.counts:
        raise UserError(f"{path} is empty: it has no words")


def _conll(path: AnyPath, columns: Columns, labelled: bool) -> Iterator[Text]:
    damaged: list[int] = []
    words: list[str] = []
    tags: list[str] = []
    lines: list[int] = []
    word_column, tag_column = _index(columns.text), _index(columns.label or "-1")
    has_tags = labelled or None  # None = the first word tells

    def text() -> Text:
        where = tables.location(path, lines[0])
        return Text(tuple(words), tuple(tags) if has_tags else None, where, tuple(lines))

    for number, line in enumerate(text_lines.lines(path, damaged), 1):
        if damaged:
            raise UserError(f"{path}, line {damaged[0]}: not UTF-8: convert the file")
        cells = _BLANKS.split(line.strip(" \t"))
        if cells == [""] or cells[0] == "-DOCSTART-":
            if words:
                yield text()
                words, tags, lines = [], [], []
            continue
        if has_tags is None:
            has_tags = len(cells) > 1
        words.append(_cell(cells, word_column, path, number, "word", columns.text))
        lines.append(number)
        if has_tags:
            if len(cells) < 2:
                raise UserError(
                    f"{path}, line {number}: one column ({line!r:.60}) where a word and its tag "
                    "are wanted: separate them by a blank or a tab"
                )
            tags.append(_cell(cells, tag_column, path, number, "tag", columns.label))
            _check_tag(tags[-1], f"{path}, line {number}")
    if words:
        yield text()


def _index(column: str) -> int:
    try:
        return int(column)
    except ValueError:
        raise UserError(
            f"column {column!r}: CoNLL files have no header: give the index of the column, "
            "0 for the first and -1 for the last (--text_column, --label_column)"
        ) from None


def _cell(cells: list[str], index: int, path: AnyPath, line: int, what: str, column: Any) -> str:
    if not -len(cells) <= index < len(cells):
        raise UserError(
            f"{path}, line {line}: no column {column} for the {what}: the line has {len(cells)} "
            "columns (--text_column, --label_column)"
        )
    return cells[index]


def _check_tag(tag: Any, where: str) -> None:
    try:
        tag_rules.split(tag)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _objects(path: AnyPath, labelled: bool, bad: tables.BadRows, widen: bool) -> Iterator[Text]:
    for _, line, value in json_lines.objects(path, bad):
        where = tables.location(path, line)
        if "tokens" in value:
            found = _words_and_tags(value, labelled, where)
        elif "text" in value:
            found = _words_of_spans(value, labelled, where, widen)
        else:
            raise UserError(
                f"{where}: neither 'tokens' (with 'tags') nor 'text' (with 'spans'): its keys are "
                f"{', '.join(map(repr, value)) or 'none'}"
            )
        words, tags = found
        if not words:
            bad("no words", f"{where}: the text has no words")
            continue
        yield Text(words, tags, where, (line,) * len(words))


def _words_and_tags(
    value: dict, labelled: bool, where: str
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    words = _list(value, "tokens", str, where)
    for word in words:
        if not word or _SPACE.search(word):
            raise UserError(
                f"{where}: word {word!r:.60} is empty or has a blank, tab or line break inside: "
                "split it into words, or leave it out with its tag"
            )
    if "tags" not in value and not labelled:
        return tuple(map(_clean, words)), None
    tags = _list(value, "tags", str, where)
    if len(tags) != len(words):
        raise UserError(
            f"{where}: {len(words)} tokens and {len(tags)} tags: give each word one tag"
        )
    for tag in tags:
        _check_tag(tag, where)
    return tuple(map(_clean, words)), tuple(tags)


def _words_of_spans(
    value: dict, labelled: bool, where: str, widen: bool
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Splits a text into words, and makes BIO tags of its spans."""
    if not isinstance(value["text"], str):
        raise UserError(f"{where}: 'text' is {value['text']!r:.60}, but a text is wanted")
    text = _clean(value["text"])
    offsets = text_words.words(text)
    words = tuple(text[start:end] for start, end in offsets)
    if "spans" not in value and not labelled:
        return words, None
    found: list[tag_rules.Entity] = []
    taken: dict[int, str] = {}  # word → its span
    for span in _list(value, "spans", dict, where):
        shown = _checked(span, len(text), where)
        start, end = span["start"], span["end"]
        inside = [i for i, (a, b) in enumerate(offsets) if b > start and a < end]
        if not inside:
            raise UserError(f"{where}: span {shown} has no word: correct its positions")
        for i in (inside[0], inside[-1]):
            a, b = offsets[i]
            if (a < start or b > end) and not widen:
                raise UserError(
                    f"{where}: span {shown} ({text[start:end]!r}) cuts the word {text[a:b]!r}: "
                    "correct its positions, or widen it to whole words with --repair_tags"
                )
        if clash := next((taken[i] for i in inside if i in taken), None):
            raise UserError(f"{where}: the spans {clash} and {shown} share a word: leave one out")
        taken |= dict.fromkeys(inside, shown)
        found.append((span["type"], inside[0], inside[-1] + 1))
    return words, tuple(tag_rules.write(found, len(words), tag_rules.BIO))


def _checked(span: dict, length: int, where: str) -> str:
    """Checks a span and returns it for messages."""
    start, end, kind = (span.get(key) for key in ("start", "end", "type"))
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (start, end))
    if not whole or not isinstance(kind, str) or not kind or _SPACE.search(kind):
        raise UserError(
            f"{where}: span {span!r:.80}: the whole numbers 'start' and 'end' and the text 'type', "
            "without blanks, are wanted"
        )
    if not 0 <= start < end <= length:
        raise UserError(
            f"{where}: span {start}-{end} ({kind}) is not inside the text of {length} characters"
        )
    return f"{start}-{end} ({kind})"


def _list(value: dict, key: str, kind: type, where: str) -> list:
    found = value.get(key)
    if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
        what = "objects" if kind is dict else "texts"
        raise UserError(f"{where}: {key!r} is {found!r:.60}, but a list of {what} is wanted")
    return found


def _clean(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can escape; the length does not change."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
