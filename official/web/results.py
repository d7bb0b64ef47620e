"""What the page shows of a result. All texts are plain texts: the template escapes them."""

import base64
import dataclasses
from collections.abc import Iterable, Sequence
from typing import ClassVar

Cell = str | int | float


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
      columns: the names of the columns.
      rows: the cells of each row.
      title: what stands above the table; "" = nothing.
      share: the number of a column of values from 0 to 1, which are drawn as bars too; None = none.
    """

    kind: ClassVar[str] = "table"

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    share: int | None = None


@dataclasses.dataclass(frozen=True)
class MarkedText:
    """A text with marked parts.

    Attributes:
      parts: the parts of the text, one after another, each with the label of its mark; None = it is
        not marked.
    """

    kind: ClassVar[str] = "marked"

    parts: Sequence[tuple[str, str | None]]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A PNG.

    Attributes:
      png: the bytes of the file.
      description: what it shows, in words.
    """

    kind: ClassVar[str] = "picture"

    png: bytes
    description: str

    @property
    def source(self) -> str:
        """The picture as the address of an `img`."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


Result = Table | MarkedText | Picture


def marked(text: str, spans: Iterable[tuple[int, int, str]]) -> MarkedText:
    """Marks spans of a text.

    Args:
      text: the text.
      spans: the first character, the one after the last, and the label of each span. They do not
        overlap. A span without characters is left out.
    """
    parts: list[tuple[str, str | None]] = []
    end = 0
    for start, stop, label in sorted(spans):
        if start < stop:
            parts += [(text[end:start], None), (text[start:stop], label)]
            end = stop
    parts.append((text[end:], None))
    return MarkedText([part for part in parts if part[0]])
