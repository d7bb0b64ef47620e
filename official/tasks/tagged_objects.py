"""Reads words and tags, or texts with spans, from JSON Lines or a list of JSON.

A row is one of these objects, where positions count characters (code points):

  {"tokens": ["Ada", "Lovelace", "wrote"], "tags": ["B-PER", "I-PER", "O"]}
  {"text": "Ada Lovelace wrote", "spans": [{"start": 0, "end": 12, "type": "PER"}]}

Other names of these keys are read as well (`KEYS`), and these forms of spans: lists `[start, end,
type]`; `span`, a list of both places; `start_offset` and `end_offset` (doccano); `token_start` and
`token_end`, the numbers of the first and the last one of `tokens`, which are objects (Prodigy);
`labels`, a list of one type (Label Studio). If a span has its own text, this is compared with the
text at its positions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from official.tasks import annotations, missing_labels
from official.tasks.conll import checked_tag
from official.tasks.tagged_texts import Record, Span, TaggedWords, TextWithSpans
from official.tasks.task import Columns
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, Unusable, location

# The names that a key may have; names in predictions and in other tools come last.
KEYS = {
    "text": ("text", "data"),
    "tokens": ("tokens", "words"),
    "tags": ("tags", "ner_tags"),
    "spans": ("spans", "entities", "label", "labels", "annotations"),
    "start": ("start", "start_offset"),
    "end": ("end", "end_offset"),
    "type": ("type", "label", "labels"),
    "own text": ("text", "name"),
}
_SPACE = re.compile(r"[ \t\r\n]")
_BLANKS = re.compile(r"\s|\\n")


class _Row(NamedTuple):
    """An object with what messages and readers need to know of it.

    Attributes:
      value: the object.
      names: the keys of the text or the words, and of the spans or the tags, that the user names.
      labels: the names of the tags that are numbers.
      labeled: whether there must be tags or spans.
      where: the file and the line.
      line: the line.
      read: the keys that are read.
    """

    value: dict
    names: tuple[str, str]
    labels: Sequence[str]
    labeled: bool
    where: str
    line: int
    read: set[str]

    def key(self, *names: str) -> str | None:
        """Returns the row's key for one of these names in `KEYS`, or None, and marks it as read."""
        own = self.names[names[0] in ("tags", "spans")]
        known = [own, *(key for name in names for key in KEYS[name])]
        found = next((key for key in known if key in self.value), None)
        if found is not None:
            self.read.add(found)
        return found


def read(
    path: AnyPath, columns: Columns, labeled: bool, bad: BadRows, labels: Sequence[str]
) -> Iterator[Record]:
    """Yields the texts of a file: see `tag_files.read`."""
    # The indices of CoNLL's columns are keys of no object.
    names = columns.text, columns.label or ""
    for _, line, value in annotations.objects(path, bad, labeled):
        row = _Row(value, names, labels, labeled, location(path, line), line, set())
        try:
            record = _record(row)
        except Unusable as fault:
            bad(*fault.args)
            continue
        if labeled and (record.tags if isinstance(record, TaggedWords) else record.spans) is None:
            bad.leave_out(missing_labels.WITHOUT_TAGS)
            continue
        bad.unread.update(annotations.unread(value, row.read))
        yield record


def _record(row: _Row) -> Record:
    """Returns the text of an object."""
    return _text_with_spans(row) if _is_text(row) else _words_and_tags(row)


def _is_text(row: _Row) -> bool:
    """Returns whether an object is a text with spans; predictions have its words as well."""
    value = row.value
    if row.names[0] in value:
        return isinstance(value[row.names[0]], str)
    if _token_objects(value):
        return True
    if "tokens" in value or not any(isinstance(value.get(key), str) for key in KEYS["text"]):
        return "tokens" not in value and "text" in value
    return "words" not in value or any(key in value for key in KEYS["spans"])


def _token_objects(value: Mapping) -> list[dict]:
    """Returns the tokens that are objects, as Prodigy writes them; empty = there are none."""
    tokens = value.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, dict) for token in tokens):
        return []
    return tokens


def _words_and_tags(row: _Row) -> TaggedWords:
    key, where = row.key("tokens"), row.where
    if key is None:
        raise Unusable(
            "missing key",
            f"{where}: neither 'tokens' (with 'tags') nor 'text' (with 'spans'): its keys are "
            f"{', '.join(map(repr, row.value)) or 'none'}; --text_column and --label_column name "
            "others",
        )
    words = _list(row.value, key, str, where)
    check_words(words, where)
    lines = (row.line,) * len(words)
    key = row.key("tags")
    if row.value[key] is None if key else not row.labeled:
        return TaggedWords(tuple(map(_clean, words)), None, where, lines)
    tags = _list(row.value, key or "tags", str | int, where)
    if len(tags) != len(words):
        raise Unusable(
            "wrong number of tags",
            f"{where}: {len(words)} tokens and {len(tags)} tags: give each word one tag",
        )
    names = tuple(checked_tag(_name(tag, row.labels, where), where) for tag in tags)
    return TaggedWords(tuple(map(_clean, words)), names, where, lines)


def check_words(words: Sequence[str], where: str) -> None:
    """Raises Unusable if there are no words, or one is empty or has a blank."""
    for word in words:
        if not word or _SPACE.search(word):
            raise Unusable(
                "not a word",
                f"{where}: word {word!r:.60} is empty or has a blank, tab or line break inside: "
                "split it into words, or remove it with its tag",
            )
    if not words:
        raise Unusable("no words", f"{where}: the text has no words")


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


def _text_with_spans(row: _Row) -> TextWithSpans:
    where, value = row.where, row.value
    key = row.key("text")
    given = None if key is None else value[key]
    if not isinstance(given, str):
        raise Unusable(
            "wrong type", f"{where}: {key or 'text'!r} is {given!r:.60}, expected a text"
        )
    text = _clean(given)
    tokens = _token_objects(value)
    row.read.update(("tokens", "words", "tags", "options") if tokens or "words" in value else ())
    key = row.key("spans") or _regions(row)
    if value[key] is None if key else not row.labeled:
        return TextWithSpans(text, None, where, row.line)
    if key is None and (value.get("answer") == "accept" or annotations.ANNOTATION in value):
        return TextWithSpans(text, (), where, row.line)  # An annotator found no span.
    items = _list(value, key or "spans", dict | list, where)
    users = {item["user"] for item in items if isinstance(item, dict) and "user" in item}
    if len(users) > 1:
        raise Unusable(
            "several annotators",
            f"{where}: the spans are of {len(users)} annotators (user): export one of each text",
        )
    spans = tuple(_span(item, text, tokens, where) for item in items)
    return TextWithSpans(text, spans, where, row.line)


def _regions(row: _Row) -> str | None:
    """Returns the only key with regions of Label Studio, which has the name of their control."""
    found = [
        key
        for key, value in row.value.items()
        if isinstance(value, list)
        and value
        and all(
            isinstance(item, dict) and {"start", "end", "labels"} <= item.keys() for item in value
        )
    ]
    if len(found) != 1:
        return None
    row.read.update(found)
    return found[0]


def _span(value: dict | list, text: str, tokens: Sequence[dict], where: str) -> Span:
    """Checks a span: an object, or a list of the start, the end and the type."""
    start, end, kind = _start_end_type(value, tokens)
    if isinstance(kind, list) and len(kind) == 1:
        (kind,) = kind
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (start, end))
    if not whole or not isinstance(kind, str) or not kind or _SPACE.search(kind):
        raise Unusable(
            "not a span",
            f"{where}: span {value!r:.80}: expected the whole numbers 'start' and 'end' and a "
            "'type' without blanks",
        )
    span = Span(start, end, _clean(kind))
    own = None
    if isinstance(value, dict):
        own = next((value[key] for key in KEYS["own text"] if key in value), None)
    if isinstance(own, str) and not _is_same(text[max(start, 0) : max(end, 0)], own):
        raise Unusable("span of another text", f"{where}: {_difference(span, text, _clean(own))}")
    if not 0 <= start < end <= len(text):
        raise Unusable(
            "span outside its text",
            f"{where}: span {span} is not inside the text of {len(text)} characters",
        )
    if tokens and isinstance(value, dict):
        _check_tokens(span, value, tokens, where)
    return span


def _is_same(part: str, own: str) -> bool:
    r"""Returns whether a part of a text equals a span's own text, but for white space.

    A text that was selected in a browser may have other blanks, and Label Studio writes a line
    break as the two characters \n.
    """
    return _BLANKS.sub("", part) == _BLANKS.sub("", _clean(own))


def _difference(span: Span, text: str, own: str) -> str:
    """Returns the message about a span whose own text differs, with the unit that would fit."""
    start, end = span.start, span.end
    pairs, octets = text.encode("utf-16-le"), text.encode()
    fitting = {
        "UTF-16 units (JavaScript, Java)": pairs[2 * start : 2 * end].decode(
            "utf-16-le", "replace"
        ),
        "bytes of UTF-8": octets[start:end].decode(errors="replace"),
    }
    unit = next((name for name, part in fitting.items() if start >= 0 and _is_same(part, own)), "")
    if unit:
        advice = f"the positions fit in {unit}: convert them to characters (code points)"
    elif start >= 0 and _is_same(text[start : end + 1], own):
        advice = "the end is that of the last character: give the place behind it"
    elif start >= 1 and _is_same(text[start - 1 : end], own):
        advice = "the start counts from 1: give positions from 0"
    else:
        advice = (
            "it fits neither in characters nor in UTF-16 units nor in bytes: was the text changed "
            "after its annotation?"
        )
    return (
        f"span {span} is {text[max(start, 0) : max(end, 0)]!r:.60}, and says {own!r:.60}: {advice}"
    )


def _check_tokens(span: Span, value: dict, tokens: Sequence[dict], where: str) -> None:
    """Checks that the positions of a span in characters and in tokens agree.

    Raises:
      Unusable: they do not agree.
    """
    places = _places(value, tokens)
    if places is not None and places != (span.start, span.end):
        raise Unusable(
            "span of other tokens",
            f"{where}: span {span} is not that of its tokens {value['token_start']} to "
            f"{value['token_end']}, which are {places[0]}-{places[1]}: correct its positions",
        )


def _places(value: dict, tokens: Sequence[dict]) -> tuple[Any, Any] | None:
    """Returns the characters of the tokens that a span names; None if it names none of them."""
    first, last = value.get("token_start"), value.get("token_end")
    if not isinstance(first, int) or not isinstance(last, int):
        return None
    if not 0 <= first <= last < len(tokens):
        return None
    return tokens[first].get("start"), tokens[last].get("end")


def _start_end_type(value: dict | list, tokens: Sequence[dict]) -> Sequence[Any]:
    """Returns the start, end and type of a span, unchecked; None for a missing value."""
    if isinstance(value, list):
        return value if len(value) == 3 else [None] * 3
    found = [
        next((value[key] for key in KEYS[name] if key in value), None)
        for name in ("start", "end", "type")
    ]
    if found[0] is None and found[1] is None:
        pair = value.get("span")
        if isinstance(pair, list) and len(pair) == 2:
            found[:2] = pair
        elif places := _places(value, tokens):
            found[:2] = places
    return found


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
