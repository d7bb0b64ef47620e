"""Reads text files line by line: texts, and JSON Lines with one object on each line.

Lines and rows that cannot be used go to `BadRows`, the one place where they raise an error or are
counted.
"""

import collections
import contextlib
import io
import json
import os
from collections.abc import Callable, Collection, Iterator

from official.utils import input_files, packed_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

MAX_LINE_BYTES = 64 << 20


class Unusable(Exception):
    """A row that cannot be used; its arguments are those of `BadRows.__call__`."""


class BadRows:
    """Handles rows that cannot be used: raises an error, or counts them as left out.

    Attributes:
      counts: the number of rows left out, by reason.
      unread: the number of rows with each key that nobody reads.
      notes: other remarks about the rows, each once.
    """

    def __init__(self, skip: bool = False, known: Collection[str] = ()):
        """Skips no bad rows, all of them if `skip`, or those whose reason is in `known`."""
        self.skip = skip
        self.known = known
        self.counts: collections.Counter[str] = collections.Counter()
        self.unread: collections.Counter[str] = collections.Counter()
        self.notes: list[str] = []

    def __call__(self, reason: str, message: str) -> None:
        """Counts a bad row.

        Args:
          reason: the reason in a few words, under which the row is counted.
          message: the place of the row, what is wrong, and what to do.

        Raises:
          UserError: with `message`, unless bad rows are skipped.
        """
        if not self.skip and reason not in self.known:
            raise UserError(f"{message}; --skip_bad_rows leaves such rows out")
        self.counts[reason] += 1

    def leave_out(self, reason: str) -> None:
        """Counts a row that is left out although it is not an error of its file."""
        self.counts[reason] += 1

    def note(self, text: str) -> None:
        """Adds a remark about the rows."""
        if text not in self.notes:
            self.notes.append(text)

    def __str__(self) -> str:
        """Returns the counts as text."""
        return ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.counts.items()))


def refuse(reason: str, message: str) -> None:
    """Raises `UserError` with the message; for lines that are not valid."""
    del reason
    raise UserError(message)


def location(path: AnyPath, line: int | str) -> str:
    """Returns the location of a row for a message: a line of a file, or a file of a folder."""
    return f"{path}/{line}" if isinstance(line, str) else f"{path}, line {line}"


def read(path: str | os.PathLike, what: str) -> list[str]:
    """Returns the lines of a file, without line ends.

    Args:
      path: a file of UTF-8 text.
      what: what the lines are, for messages: `prompts`, `texts`.

    Raises:
      UserError: the file is missing, not UTF-8 or empty.
    """
    path = paths.path(path)
    if not path.exists():
        raise UserError(f"{path}: no such file of {what}")
    try:
        lines = input_files.read(path).decode().split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error})") from None
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path} is empty: expected {what}, one on each line")
    return [line.removesuffix("\r") for line in lines]


@contextlib.contextmanager
def opened(path: AnyPath) -> Iterator[io.BufferedIOBase]:
    """Yields the bytes of a file, unpacked as `packed_files` says.

    Raises:
      UserError: there is no such file, it is a folder, it cannot be read or unpacked, or it has
        changed while it was read.
    """
    with input_files.opened(path) as stream:
        if not packed_files.is_packed(path):
            yield stream
            return
        packed_files.check(path)
        try:
            yield packed_files.unpacked(stream, path)
        except packed_files.DAMAGE as error:
            raise UserError(f"{path} is damaged: it cannot be decompressed ({error})") from error


def whole(stream: io.BufferedIOBase, path: AnyPath) -> Iterator[bytes]:
    """Yields the lines of a stream with their ends.

    Args:
      stream: a result of `opened`.
      path: the file, for messages.

    Raises:
      UserError: a line has more than `MAX_LINE_BYTES`: the file is no text, or a few packed bytes
        that would fill the memory.
    """
    number = 1
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise UserError(
                f"{path}:{number}: the line has more than {MAX_LINE_BYTES >> 20} MiB: is this a "
                "file of text?"
            )
        yield line
        number += 1


def lines(path: AnyPath, damaged: list[int]) -> Iterator[str]:
    """Yields lines without their ends and without a byte-order mark.

    Args:
      path: the file; see `packed_files`.
      damaged: a list to which the numbers of lines that are not UTF-8 are appended, from 1.

    Raises:
      UserError: as `opened` and `whole`.
    """
    with opened(path) as stream:
        for number, line in enumerate(whole(stream, path), 1):
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError:
                damaged.append(number)
                yield line.decode("utf-8", "replace")


def objects(
    path: AnyPath, bad: BadRows | Callable[[str, str], None]
) -> Iterator[tuple[int, int, dict]]:
    """Yields the number, the line and the object of each line of a JSON Lines file.

    Args:
      path: the file.
      bad: is called with lines that are not UTF-8 or no JSON object.
    """
    damaged: list[int] = []
    number = -1
    for line, text in enumerate(lines(path, damaged), 1):
        if not text.strip():
            continue
        number += 1
        if damaged:
            damaged.clear()
            bad("not UTF-8", f"{path}, line {line}: not UTF-8: convert the file")
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            bad("not JSON", f"{path}, line {line}: not JSON ({error})")
            continue
        if not isinstance(value, dict):
            bad("not a JSON object", f"{path}, line {line}: every line is to be a JSON object")
            continue
        yield number, line, value
