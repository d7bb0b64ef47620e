"""Texts with tags or spans, as files of any format have them (see `official.tasks.tag_files`)."""

from typing import NamedTuple


class Span(NamedTuple):
    """An entity: its first character, the character after its last one, and its type."""

    start: int
    end: int
    type: str

    def __str__(self) -> str:
        """Returns the span for messages."""
        return f"{self.start}-{self.end} ({self.type})"


class TaggedWords(NamedTuple):
    """A text that is split into words.

    Attributes:
      words: the words.
      tags: their tags; None = the file has none.
      location: the file and the line of the text, for messages.
      lines: the line of each word; empty = the text is not from a file.
      text: the text that was split into the words; None = the file has the words.
      offsets: the first character of each word in `text`, and the character after its last one.
      left_out: the number of spans that were left out because of others inside or around them.
      spans: the entities in characters, if the tags widen some of them to whole words; None = the
        tags give the exact entities.
      widened: the number of entities that are widened.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    location: str
    lines: tuple[int, ...]
    text: str | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    left_out: int = 0
    spans: tuple[Span, ...] | None = None
    widened: int = 0


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
