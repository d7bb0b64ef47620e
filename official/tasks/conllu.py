"""Reads words and tags from CoNLL-U, the format of Universal Dependencies.

A word is a line whose id is a whole number. Lines with a range as their id (`2-3`) have the form of
several words together, as in the text (`al` = `a` + `il`). Lines with a decimal as their id (`5.1`)
are empty nodes, which are not in the text. Lines with `#` before the first word of a text are
comments. A first line `# global.columns = ID FORM ...` names the columns (CoNLL-U Plus). A tag `_`
is missing, except in the column of features, where it means that there are none.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from official.tasks import missing_labels, tags
from official.tasks.conll import Line, blocks
from official.tasks.tagged_texts import TaggedWords
from official.tasks.task import Columns
from official.utils import text_lines
from official.utils.errors import UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, Unusable, location

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
WORDS, SURFACE = "words", "surface"
MULTIWORD = (WORDS, SURFACE)  # how ranges are read: as their words, or as one word, as in the text
# The columns in the place of the first and the last one, which are those of plain CoNLL.
_DEFAULTS = {"0": "form", "-1": "upos"}
_NOT_GIVEN = "_"
_NAMES = "# global.columns ="
_ID = re.compile(r"(\d+)(?:-(\d+)|(\.\d+))?")
_LINES_OF_COMMENTS = 1000


class _Word(NamedTuple):
    """A word, its tag, its id and its line."""

    form: str
    tag: str
    id: int
    line: int


def is_conllu(path: AnyPath) -> bool:
    """Returns whether the first lines of a file are those of CoNLL-U.

    The first line that is no comment has ten columns, separated by tabs, and begins with an id; or
    a comment names the columns.
    """
    for number, line in enumerate(text_lines.lines(path, [])):
        if line.startswith(_NAMES):
            return True
        if line.strip() and not line.startswith("#"):
            cells = line.split("\t")
            return len(cells) == len(COLUMNS) and bool(_ID.fullmatch(cells[0]))
        if number > _LINES_OF_COMMENTS:
            break
    return False


def read(
    path: AnyPath, columns: Columns, labeled: bool, bad: BadRows, multiword: str = WORDS
) -> Iterator[TaggedWords]:
    """Yields the texts of a file.

    Args:
      path: the file.
      columns: the columns of the word and of the tag: names, or indices. "0" is the form and "-1"
        the universal part of speech, because these are the columns of plain CoNLL.
      labeled: whether the file must have tags.
      bad: is called with texts that cannot be used.
      multiword: `WORDS`: the words of a range are read; `SURFACE`: a range is one word.
    """
    names: Sequence[str] = COLUMNS
    indices: list[int] | None = None
    for block in blocks(path):
        start = next((i for i, line in enumerate(block) if not _is_comment(line)), len(block))
        for line in block[:start]:
            if line.text and line.text.startswith(_NAMES) and indices is None:
                names = [name.lower() for name in line.text.removeprefix(_NAMES).split()]
        if start == len(block):
            continue
        if indices is None:
            given = columns.text, columns.label or "-1"
            indices = [_index(path, _DEFAULTS.get(column, column), names) for column in given]
        try:
            record = _record(path, block[start:], names, indices, labeled, multiword)
        except Unusable as fault:
            bad(*fault.args)
            continue
        if record.tags is None and labeled:
            bad.leave_out(missing_labels.WITHOUT_TAGS)
            continue
        yield record


def _is_comment(line: Line) -> bool:
    return line.text is not None and line.text.startswith("#")


def _index(path: AnyPath, column: str, names: Sequence[str]) -> int:
    if column.lower() in names:
        return names.index(column.lower())
    if re.fullmatch(r"-?\d+", column) and -len(names) <= int(column) < len(names):
        return int(column)
    raise UserError(
        f"{path} has no column {column!r}{nearest(column, names)}: those of CoNLL-U are "
        f"{', '.join(names)}, or 0 to {len(names) - 1} (--text_column, --label_column)"
    )


def _record(
    path: AnyPath,
    block: Sequence[Line],
    names: Sequence[str],
    indices: Sequence[int],
    labeled: bool,
    multiword: str,
) -> TaggedWords:
    """Returns the text of some lines; its tags are None if no word has one."""
    words: list[_Word] = []
    ranges: dict[int, tuple[_Word, int]] = {}  # by the id of its first word; and that of its last
    for line in block:
        where = location(path, line.number)
        if line.text is None:
            raise Unusable("not UTF-8", f"{where}: not UTF-8: convert the file")
        cells = line.text.split("\t")
        match = _ID.fullmatch(cells[0])
        if len(cells) != len(names) or match is None:
            raise Unusable(
                "not a line of CoNLL-U",
                f"{where}: {line.text!r:.60}: expected {len(names)} columns separated by tabs, of "
                f"which the first one is an id such as 3, 2-3 or 5.1; --format=conll reads other "
                "columns",
            )
        first, last, empty = match.groups()
        if empty:
            continue
        word = _Word(cells[indices[0]].strip(" "), cells[indices[1]], int(first), line.number)
        if not word.form:
            raise Unusable("empty word", f"{where}: the word is empty")
        if last:
            ranges[word.id] = word, int(last)
            continue
        if word.id != len(words) + 1:
            raise Unusable(
                "ids out of order",
                f"{where}: id {word.id} where {len(words) + 1} is expected: is a blank line or a "
                "word missing?",
            )
        words.append(word)
    if not words:
        raise Unusable("no words", f"{location(path, block[0].number)}: the text has no words")
    if multiword == SURFACE:
        words = _on_surface(words, ranges, path)
    given = names[indices[1]] == "feats"
    without = [word for word in words if not word.tag or word.tag == _NOT_GIVEN and not given]
    if 0 < len(without) < len(words):
        raise Unusable(
            "a word without a tag",
            f"{location(path, without[0].line)}: the word {without[0].form!r:.60} has no tag "
            f"(its column {names[indices[1]]} is {without[0].tag!r}), unlike others of the text",
        )
    return TaggedWords(
        tuple(word.form for word in words),
        None if without else tuple(word.tag for word in words),
        location(path, words[0].line),
        tuple(word.line for word in words),
    )


def _on_surface(
    words: Sequence[_Word], ranges: dict[int, tuple[_Word, int]], path: AnyPath
) -> list[_Word]:
    """Returns the words as in the text, where the words of a range are one word."""
    found: list[_Word] = []
    end = 0
    for word in words:
        if word.id <= end:
            continue
        if word.id in ranges:
            whole, end = ranges[word.id]
            if end > len(words):
                raise Unusable(
                    "a range beyond the text",
                    f"{location(path, whole.line)}: {whole.id}-{end} ends behind the last word, "
                    f"{len(words)}",
                )
            inside = [part.tag for part in words[word.id - 1 : end]]
            found.append(whole._replace(tag=_tag_of_range(whole.tag, inside)))
        else:
            found.append(word)
    return found


def _tag_of_range(own: str, inside: Sequence[str]) -> str:
    """Returns the tag of a range: its own, the first tag of an entity, or all joined by +."""
    if own not in ("", _NOT_GIVEN):
        return own
    if _NOT_GIVEN in inside:
        return _NOT_GIVEN
    if all(tag == tags.OUTSIDE or tags.marks(tag) for tag in inside):
        return next((tag for tag in inside if tag != tags.OUTSIDE), tags.OUTSIDE)
    return "+".join(inside)
