"""Reads documents from text and JSON Lines files, plain or gzipped, as a stream.

A text file (with any name) has one sentence or paragraph on each line, and a blank line between
documents. A JSON Lines file (`.jsonl`) has one document on each line, an object whose `text` field
has one sentence or paragraph on each line. Both may be gzipped (`.gz`).

The text of a document begins and ends with a character that is not white space, and is not changed
here. It is returned in slices, one for each line that is not blank. A slice begins with the white
space before it. A long document is returned in parts, so that only some megabytes are in memory at
a time.
"""

import collections
import dataclasses
import glob
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from official.utils.errors import UserError

MAX_LINE_BYTES = 16 << 20  # Without the line break.
# Longer documents are read in parts: a file without blank lines must not fill the memory.
MAX_PART_CHARACTERS = 1 << 20
# Unicode's property White_Space, which is `\s` in GPT-2's pattern. Python also takes four control
# characters (U+001C to U+001F) for white space.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)

_OTHER_FORMATS = {".bz2", ".json", ".parquet", ".pdf", ".tar", ".tgz", ".xz", ".zip", ".zst"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Control characters that separate words become spaces. The others are removed, as BERT's tokenizer
# does.
_CLEAN = {code: None for code in (*range(0x20), *range(0x7F, 0xA0))} | dict.fromkeys(
    (*b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f", 0x85), " "
)


class Document(NamedTuple):
    """A document, or a part of a long one.

    Attributes:
      sentences: the text in slices, one for each line. A slice begins with the white space before
        it and ends with another character. The first slice of a document has no white space before.
      path: the file.
      line: the number of the first line in the file, from 1.
      characters: the number of characters of the slices after `cleaned`.
      continues: whether this is a further part of the document before.
    """

    sentences: list[str]
    path: Path
    line: int
    characters: int
    continues: bool = False


@dataclasses.dataclass
class Tally:
    """Counts of what is read so far.

    Attributes:
      documents: the number of documents; all parts of a document count as one.
      bytes_read: the number of bytes of the files on disk (of a `.gz`, compressed).
      skipped: the number of lines or documents left out, by reason.
      long: the number of documents that were read in parts.
    """

    documents: int = 0
    bytes_read: int = 0
    long: int = 0
    skipped: collections.Counter = dataclasses.field(default_factory=collections.Counter)


def expand(globs: Sequence[str] | str) -> list[Path]:
    """Returns the files that match, each once, in the order of `globs` and sorted within a glob.

    Args:
      globs: paths or glob patterns (`**` matches folders at any depth), or comma-separated lists.

    Raises:
      UserError: a pattern matches no file, a file is missing, or all files together are empty.
    """
    patterns = [globs] if isinstance(globs, str) else globs
    patterns = [part.strip() for pattern in patterns for part in pattern.split(",")]
    paths: dict[Path, None] = {}
    for pattern in filter(None, patterns):
        names = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
        files = [Path(name) for name in names if not Path(name).is_dir()]
        if not files:
            raise UserError(_no_file(pattern, bool(names)))
        paths.update(dict.fromkeys(files))
    if not paths:
        raise UserError("no input files named: give paths or globs, separated by commas")
    for path in paths:
        if _suffix(path) in _OTHER_FORMATS:
            raise UserError(
                f"{path}: cannot read this format: unpack or convert it to text (one sentence a "
                "line, a blank line between documents) or .jsonl with a `text` field, plain or .gz"
            )
    if not any(path.stat().st_size for path in paths):
        raise UserError(f"the input is empty: {', '.join(map(str, paths))} hold no bytes")
    return list(paths)


def read(
    paths: Iterable[Path],
    on_bad_utf8: str = "error",
    on_long_line: str = "error",
    tally: Tally | None = None,
) -> Iterator[Document]:
    """Yields the documents of files in order; long documents in parts.

    Args:
      paths: files, as `expand` returns them.
      on_bad_utf8: "error" to stop at a line that is not UTF-8, "skip" to leave it out.
      on_long_line: "error" to stop at a line of more than `MAX_LINE_BYTES`, "skip" to leave it out.
      tally: counts that are updated while reading.

    Raises:
      UserError: something cannot be read; the message names the file and the line.
    """
    tally = Tally() if tally is None else tally
    for path in map(Path, paths):
        with _Lines(path, on_bad_utf8, on_long_line, tally) as lines:
            parse = _json_documents if _suffix(path) == ".jsonl" else _text_documents
            for document in parse(lines):
                tally.documents += not document.continues
                yield document


class _Lines:
    """The decoded lines of one file, with their numbers."""

    def __init__(self, path: Path, on_bad_utf8: str, on_long_line: str, tally: Tally):
        self.path = path
        self.tally = tally
        self._on_bad_utf8 = on_bad_utf8
        self._on_long_line = on_long_line

    def __enter__(self) -> "_Lines":
        try:
            self._file = open(self.path, "rb")
        except OSError as error:
            raise UserError(f"{self.path}: cannot be opened: {error.strerror}") from error
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        before = self.tally.bytes_read
        stream = gzip.GzipFile(fileobj=self._file) if self.path.suffix == ".gz" else self._file
        number = 0
        while raw := self._next(stream, number + 1):
            number += 1
            self.tally.bytes_read = before + self._file.tell()
            if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                self._too_long(stream, number)
                continue
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                self.bad_utf8(number, f"byte 0x{raw[error.start]:02x} at column {error.start + 1}")

    def _next(self, stream: IO[bytes], number: int) -> bytes:
        try:
            return stream.readline(MAX_LINE_BYTES + 1)
        except (EOFError, zlib.error, OSError) as error:
            raise UserError(
                f"{self.path}: cannot be read past line {number - 1}: {error}: the file is damaged "
                "or cut short; fetch or make it again"
            ) from error

    def _too_long(self, stream: IO[bytes], number: int) -> None:
        if self._on_long_line == "error":
            raise UserError(
                f"{self.path}:{number}: the line has more than {MAX_LINE_BYTES >> 20} MiB: break "
                "it into lines of a sentence or a paragraph, or pass --on_long_line=skip"
            )
        while (rest := self._next(stream, number)) and not rest.endswith(b"\n"):
            pass
        self.tally.skipped["lines too long"] += 1

    def bad_utf8(self, number: int, what: str) -> None:
        if self._on_bad_utf8 == "error":
            raise UserError(
                f"{self.path}:{number}: not UTF-8 ({what}): convert the file, for example with "
                "`iconv -t UTF-8`, or pass --on_bad_utf8=skip to leave such lines out"
            )
        self.tally.skipped["lines not UTF-8"] += 1


def _text_documents(lines: _Lines) -> Iterator[Document]:
    for blank, group in itertools.groupby(lines, lambda line: not line[1].strip()):
        if not blank:
            yield from _parts(group, lines)


def _json_documents(lines: _Lines) -> Iterator[Document]:
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{lines.path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not a JSON object ({error}): one object a line") from error
        text = row.get("text") if isinstance(row, dict) else None
        if not isinstance(text, str):
            has = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
            raise UserError(f"{where}: no `text` field that is a string; it has: {has[:200]}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            lines.bad_utf8(number, f"lone surrogate \\u{ord(text[error.start]):04x} in `text`")
            continue
        yield from _parts(((number, f"{line}\n") for line in text.split("\n")), lines)


def _parts(numbered: Iterable[tuple[int, str]], lines: _Lines) -> Iterator[Document]:
    """Yields the document that some lines form, in parts if it is long, and nothing if it is empty.

    Args:
      numbered: the number in the file and the text, with its line break, of each line.
      lines: the file.
    """
    slices: list[str] = []
    before = ""  # The white space before the next slice.
    first = size = written = parts = 0
    for number, line in numbered:
        text = line.rstrip(WHITE_SPACE)
        if not text:
            before += line
            continue
        content = len(clean(line))
        if (content and size > MAX_PART_CHARACTERS) or written > MAX_LINE_BYTES:
            yield Document(slices, lines.path, first, size, parts > 0)
            lines.tally.long += not parts
            slices, size, written, parts = [], 0, 0, parts + 1
        if not slices:
            first = number
        # A document begins with its first character that is not white space.
        begins = not slices and not parts
        slices.append(text.lstrip(WHITE_SPACE) if begins else before + text)
        before = line[len(text) :]
        size += content
        written += len(slices[-1])
    if size or parts:
        yield Document(slices, lines.path, first, size, parts > 0)
    else:
        lines.tally.skipped["empty documents"] += 1


def cleaned(slices: Iterable[str]) -> list[str]:
    """Returns the slices of a text for tokenizers that do not keep white space.

    Control characters and the white space around each slice are removed, and so are empty slices.
    """
    return list(filter(None, map(clean, slices)))


def clean(line: str) -> str:
    """Returns a line without control characters and without white space at its ends."""
    line = line.strip()
    # Most lines are printable, and `isprintable` is faster than the search.
    if line.isprintable() or not _CONTROL.search(line):
        return line
    return line.translate(_CLEAN).strip()


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _no_file(pattern: str, matched_folders: bool) -> str:
    if matched_folders:
        return f"{pattern} is a folder: name the files in it, for example {pattern}/*.txt"
    if glob.has_magic(pattern):
        return f"no file matches {pattern!r}: check the pattern and the folder it starts from"
    return f"{pattern}: no such file"
