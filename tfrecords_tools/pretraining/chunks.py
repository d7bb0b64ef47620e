"""The input in pieces of about a megabyte: what a worker makes examples of at a time.

A piece has two documents or more, so that a random second segment can come from another one. Only a
document that is longer than a piece fills pieces alone. Such a piece also brings some text of other
documents, for random second segments and nothing else.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tfrecords_tools.text.documents import Document

PIECE_CHARACTERS = 1 << 20


class DocumentChunk(NamedTuple):
    """Consecutive documents of the input.

    Attributes:
      number: its place among the pieces, from 0.
      documents: each document's text in slices, as `documents.Document` has it.
      continues: whether the first document began in the piece before.
      unfinished: whether the last document goes on in the next piece.
      others: where the piece is a part of one document, some text of other documents.
    """

    number: int
    documents: Sequence[list[str]]
    continues: bool = False
    unfinished: bool = False
    others: Sequence[list[str]] = ()


def cut(
    documents: Iterable[Document],
    size: int = PIECE_CHARACTERS,
    again: Callable[[], Iterable[Document]] = tuple,
) -> Iterator[DocumentChunk]:
    """Cuts the input into pieces of about `size` characters.

    Args:
      documents: the input. The parts of a document follow one another.
      size: of a piece, in characters as `Document` counts them.
      again: reads the input from its beginning once more. It is called where the first document is
        longer than a piece, to find the documents after it.
    """
    lent = max(1, size // 4)  # characters of `others`
    waiting: list[_Making] = []  # the last pieces, which may still be joined
    number = 0
    ahead: list[list[str]] | None = None

    def finished(piece: _Making) -> DocumentChunk:
        nonlocal number, ahead
        others: list[list[str]] = []
        if len(piece.documents) == 1 and (piece.continues or piece.unfinished):
            if not piece.before and ahead is None:
                ahead = _last(_after_the_first(again(), lent), lent)
            others = piece.before or ahead or []
        number += 1
        return DocumentChunk(number - 1, piece.documents, piece.continues, piece.unfinished, others)

    for document in documents:
        last = waiting[-1] if waiting else _Making()
        full = last.characters >= size and (len(last.documents) > 1 or document.continues)
        if not waiting or full:
            last.unfinished = document.continues
            done = last.documents[:-1] if document.continues else last.documents
            waiting.append(_Making(document.continues, _last(done, lent) or last.before))
        waiting[-1].add(document.sentences, document.continues)
        waiting[-1].characters += document.characters
        if len(waiting) > 2:
            yield finished(waiting.pop(0))
    if len(waiting) == 2:
        first, last = waiting
        alone = len(last.documents) == 1 and not last.continues
        if alone or last.characters < size // 2:
            for i, sentences in enumerate(last.documents):
                first.add(sentences, last.continues and i == 0)
            first.unfinished = False
            waiting.pop()
    yield from map(finished, waiting)


@dataclasses.dataclass
class _Making:
    """A piece that is not finished; `before` has the last text of other documents before it."""

    continues: bool = False
    before: list[list[str]] = dataclasses.field(default_factory=list)
    documents: list[list[str]] = dataclasses.field(default_factory=list)
    characters: int = 0
    unfinished: bool = False

    def add(self, sentences: Sequence[str], continues: bool) -> None:
        """Adds a document, or a part of the last one."""
        if continues and self.documents:
            self.documents[-1] += sentences
        else:
            self.documents.append(list(sentences))


def _last(documents: Sequence[list[str]], size: int) -> list[list[str]]:
    """Returns the last sentences of documents: about `size` characters of them, one at least."""
    found: list[list[str]] = []
    left = size
    for sentences in reversed(documents):
        if left <= 0:
            break
        first = len(sentences)
        while first and left > 0:
            first -= 1
            left -= len(sentences[first])
        found.insert(0, sentences[first:])
    return found


def _after_the_first(documents: Iterable[Document], size: int) -> list[list[str]]:
    """Returns the documents after the first one: parts of them of `size` characters or more."""
    found: list[list[str]] = []
    begun = characters = 0
    for document in documents:
        begun += not document.continues
        if begun > 1:
            found.append(document.sentences)
            characters += document.characters
            if characters >= size:
                break
    return found
