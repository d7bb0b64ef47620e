"""Files of texts with ids: queries, documents, and texts whose vectors are computed.

A name in `.jsonl` has an object on each line, with `_id` or `id`, `text`, and perhaps `title`,
which is put before the text with a blank (the files of BEIR). One in `.tsv` has the columns id and
text, and a first line with these names may be there. One in `.parquet` has a column `text`. Any
other has a text on each line. Where a file has no ids, they are the numbers of the rows, from 1.
`.gz` or `.zst` may follow.
"""

import os
import zlib
from collections.abc import Iterable, Iterator

from official.tasks import trec
from official.utils import input_files, packed_files, paths, text_lines
from official.utils.errors import UserError
from official.utils.input_files import Inputs
from official.utils.paths import AnyPath


def texts_of(path: str | os.PathLike) -> Iterator[tuple[str, str]]:
    """Yields the ids and texts of a file (see the module).

    Raises:
      UserError: the file cannot be read or has no texts, or a line is not valid.
    """
    path = paths.path(path)
    if path.name.endswith(packed_files.PARQUET):
        rows = _table(path)
    elif packed_files.is_json(path):
        rows = _objects(path)
    else:
        is_table = packed_files.content_name(path).endswith(".tsv")
        rows = (_columns if is_table else _plain)(path)
    empty = True
    noted = Inputs([path] if path.is_file() else [])
    with input_files.explained(noted.check):
        for where, identity, text in rows:
            try:
                yield trec.check_id(identity), text
            except ValueError as error:
                raise UserError(f"{where}: {error}") from None
            empty = False
    if empty:
        raise UserError(f"{path} has no texts")


class Counted:
    """The ids and texts of a file that is read once to count them, and then to use them.

    Iterating reads the file, and checks at the end that no text is missing or new.

    Attributes:
      path: the file.
      count: the number of texts.
      checksum: a checksum of the ids and texts.
    """

    def __init__(self, path: str | os.PathLike):
        """Counts the texts.

        Raises:
          UserError: as `texts_of`.
        """
        self.path = paths.path(path)
        self._inputs = Inputs([self.path])
        self.count = self.checksum = 0
        for identity, text in texts_of(self.path):
            self.count += 1
            self.checksum = zlib.crc32(f"{identity}\t{text}\n".encode(), self.checksum)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yields the ids and texts.

        Raises:
          UserError: as `texts_of`, or the file is not the one that was counted.
        """
        count = 0
        for count, row in enumerate(texts_of(self.path), 1):  # noqa: B007
            yield row
        self.check()
        if count != self.count:
            raise UserError(
                f"{self.path}: {count:,} texts are read, where {self.count:,} were counted: check "
                "the disk or the network, and give the command again"
            )

    def check(self) -> None:
        """Raises UserError if the file has changed since its texts were counted."""
        self._inputs.check()


def _plain(path: AnyPath) -> Iterator[tuple[str, str, str]]:
    """Yields the place of each line, its number and the line."""
    damaged: list[int] = []
    for number, line in enumerate(text_lines.lines(path, damaged), 1):
        where = f"{path}, line {number}"
        if damaged:
            raise UserError(f"{where}: not UTF-8: convert the file")
        yield where, str(number), line


def _columns(path: AnyPath) -> Iterator[tuple[str, str, str]]:
    for where, number, line in _plain(path):
        if not line.strip() or (number == "1" and line.split("\t") == ["id", "text"]):
            continue
        identity, tab, text = line.partition("\t")
        if not tab:
            raise UserError(f"{where}: no tab: expected an id and a text")
        yield where, identity, text


def _objects(path: AnyPath) -> Iterator[tuple[str, str, str]]:
    for _, number, value in text_lines.objects(path, text_lines.refuse):
        where = f"{path}, line {number}"
        yield where, *_of_object(value, where)


def _table(path: AnyPath) -> Iterator[tuple[str, str, str]]:
    for number, row, value in text_lines.objects(path, text_lines.refuse):
        where = f"{path}, row {row}"
        if not isinstance(value["text"], str):
            raise UserError(f"{where}: `text` is null")
        yield where, str(number + 1), value["text"]


def _of_object(value: dict, where: str) -> tuple[str, str]:
    identity, text, title = (value.get(name) for name in ("_id", "text", "title"))
    identity = value.get("id") if identity is None else identity
    if isinstance(identity, int):
        identity = str(identity)
    if not isinstance(identity, str) or not isinstance(text, str):
        raise UserError(f"{where}: expected the texts `_id` and `text`")
    return identity, f"{title} {text}" if isinstance(title, str) and title else text


def unique(path: str | os.PathLike) -> Iterator[tuple[str, str]]:
    """Yields the ids and texts of a file like `texts_of`, and checks that each id is unique.

    Raises:
      UserError: as `texts_of`, or an id occurs twice.
    """
    return once(texts_of(path), path)


def once(texts: Iterable[tuple[str, str]], path: str | os.PathLike) -> Iterator[tuple[str, str]]:
    """Yields ids and texts, and checks that each id is unique.

    Args:
      texts: the ids and texts.
      path: their file, for messages.

    Raises:
      UserError: an id occurs twice.
    """
    seen: set[str] = set()
    for identity, text in texts:
        if identity in seen:
            raise UserError(f"{path}: the id {identity!r} occurs twice")
        seen.add(identity)
        yield identity, text
