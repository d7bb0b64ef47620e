"""Joins the pieces of a group to chunks of text, which are turned into examples one by one.

A chunk has about a megabyte. A piece with a part of a long document is a chunk alone, so that it
can begin and end as the document goes on. Where second segments come from other documents, all
pieces of a group are one chunk. They are a random sample of the corpus, and every text is as likely
as any other to be such a segment. A large gzipped file becomes several of these chunks.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from tfrecords_tools.text import corpus, documents
from tfrecords_tools.text.corpus import Corpus, Group
from tfrecords_tools.text.documents import Document, Tally

CHUNK_BYTES = 1 << 20
SHARED_CHUNK_BYTES = corpus.PIECES_IN_GROUP * corpus.MAX_PIECE_BYTES


class DocumentChunk(NamedTuple):
    """Documents that are turned into examples together.

    Attributes:
      group: the number of the group of pieces.
      number: the number of the chunk in the group.
      documents: the documents.
      tally: the counts of what was read for them.
    """

    group: int
    number: int
    documents: list[Document]
    tally: Tally


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the text of groups is read.

    Attributes:
      piece_bytes: see `corpus.Corpus`.
      skip_bad_utf8: whether lines that are not UTF-8 are left out; if not, they are an error.
      skip_long_lines: the same for lines that are too long.
    """

    piece_bytes: int
    skip_bad_utf8: bool = False
    skip_long_lines: bool = False

    @classmethod
    def of(cls, files: Corpus, on_bad_utf8: str, on_long_line: str) -> "Reading":
        """Returns how a corpus is read: each option is 'error' or 'skip'."""
        return cls(files.piece_bytes, on_bad_utf8 == "skip", on_long_line == "skip")


def read(group: Group, reading: Reading, shared: bool) -> Iterator[DocumentChunk]:
    """Reads the chunks of a group.

    Args:
      group: the group.
      reading: how its text is read.
      shared: whether second segments come from other documents.

    Raises:
      UserError: something cannot be read; the message names the file and the line.
    """
    parsed = _parsed(group, reading)
    for number, parts in enumerate(_shared(parsed) if shared else _separate(parsed)):
        found, tally = [], Tally()
        for part in parts:
            found += part.documents
            tally.add(part.tally)
        yield DocumentChunk(group.number, number, found, tally)


class _Parsed(NamedTuple):
    size: int  # in bytes
    whole: bool  # whether it has no part of a long document
    documents: list[Document]
    tally: Tally


def _parsed(group: Group, reading: Reading) -> Iterator[_Parsed]:
    """Yields the parsed pieces of a group."""
    for file, piece in corpus.read(group, reading.piece_bytes, reading.skip_long_lines):
        whole = piece.origin == piece.number and not piece.unfinished
        yield _Parsed(len(piece.data), whole, *documents.parse(piece, file, reading.skip_bad_utf8))


def _separate(parsed: Iterator[_Parsed]) -> Iterator[list[_Parsed]]:
    """Yields the pieces of each chunk, if documents have nothing to do with one another."""
    chunk: list[_Parsed] = []
    for part in parsed:
        if not part.whole:
            yield from filter(None, (chunk, [part]))
            chunk = []
            continue
        chunk.append(part)
        if sum(each.size for each in chunk) >= CHUNK_BYTES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _shared(parsed: Iterator[_Parsed]) -> Iterator[list[_Parsed]]:
    """Yields the pieces of each chunk, if every document lends text to the others of the chunk."""
    ready: list[_Parsed] = []
    chunk: list[_Parsed] = []
    for part in parsed:
        chunk.append(part)
        if sum(each.size for each in chunk) >= SHARED_CHUNK_BYTES:
            if ready:
                yield ready
            ready, chunk = chunk, []
    if sum(each.size for each in chunk) < SHARED_CHUNK_BYTES // 2:
        ready, chunk = ready + chunk, []  # A small rest would lend little.
    yield from filter(None, (ready, chunk))
