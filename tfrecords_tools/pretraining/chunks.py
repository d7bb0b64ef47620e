"""Cuts the input into chunks of about a megabyte, which workers process.

A chunk has at least two documents, so that a random second segment can come from another document.
Only a document that is longer than a chunk fills chunks alone. Such a chunk also has some text of
other documents, which is used for random second segments only.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tfrecords_tools.text.documents import Document

CHUNK_CHARACTERS = 1 << 20


class DocumentChunk(NamedTuple):
    """Consecutive documents of the input.

    Attributes:
      number: the number of the chunk, from 0.
      documents: the text of each document in slices, as in `documents.Document`.
      continues: whether the first document began in the chunk before.
      unfinished: whether the last document continues in the next chunk.
      others: some text of other documents, if the chunk is a part of one document.
    """

    number: int
    documents: Sequence[list[str]]
    continues: bool = False
    unfinished: bool = False
    others: Sequence[list[str]] = ()


def cut(
    documents: Iterable[Document],
    size: int = CHUNK_CHARACTERS,
    again: Callable[[], Iterable[Document]] = tuple,
) -> Iterator[DocumentChunk]:
    """Cuts the input into chunks of about `size` characters.

    Args:
      documents: the input. The parts of a document follow one another.
      size: the size of a chunk, in characters as `Document` counts them.
      again: reads the input again from its beginning. It is called if the first document is longer
        than a chunk, to find the documents after it.
    """
    lent = max(1, size // 4)  # The number of characters of `others`.
    waiting: list[_OpenChunk] = []  # The last chunks, which may still be joined.
    number = 0
    ahead: list[list[str]] | None = None

    def finished(chunk: _OpenChunk) -> DocumentChunk:
        nonlocal number, ahead
        others: list[list[str]] = []
        if len(chunk.documents) == 1 and (chunk.continues or chunk.unfinished):
            if not chunk.before and ahead is None:
                ahead = _last(_after_the_first(again(), lent), lent)
            others = chunk.before or ahead or []
        number += 1
        return DocumentChunk(number - 1, chunk.documents, chunk.continues, chunk.unfinished, others)

    for document in documents:
        last = waiting[-1] if waiting else _OpenChunk()
        full = last.characters >= size and (len(last.documents) > 1 or document.continues)
        if not waiting or full:
            last.unfinished = document.continues
            done = last.documents[:-1] if document.continues else last.documents
            waiting.append(_OpenChunk(document.continues, _last(done, lent) or last.before))
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
class _OpenChunk:
    """A chunk that may still grow; `before` has the last text of the documents before it."""

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
    """Returns at least one of the last sentences of documents, about `size` characters of them."""
    taken: list[list[str]] = []
    left = size
    for sentences in reversed(documents):
        if left <= 0:
            break
        first = len(sentences)
        while first and left > 0:
            first -= 1
            left -= len(sentences[first])
        taken.insert(0, sentences[first:])
    return taken


def _after_the_first(documents: Iterable[Document], size: int) -> list[list[str]]:
    """Returns the documents after the first one, at least `size` characters of them."""
    taken: list[list[str]] = []
    begun = characters = 0
    for document in documents:
        begun += not document.continues
        if begun > 1:
            taken.append(document.sentences)
            characters += document.characters
            if characters >= size:
                break
    return taken
