"""What the page shows of a result. All texts are plain texts: the template escapes them."""

import base64
import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

SHADES = 10  # of cells; static/style.css has the color of each one, from w0
COLORS = 6  # of marks; static/style.css has each one, from c0
Cell = str | int | float


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
      columns: the names of the columns.
      rows: the cells of each row.
      title: what stands above the table; "" = nothing.
      share: the number of a column of values that are drawn as bars too, from 0 to 1, or to the
        largest value if that is more; None = none.
    """

    kind: ClassVar[str] = "table"

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    share: int | None = None

    @property
    def longest(self) -> float:
        """The value of the longest bar that there can be."""
        share = self.share
        return max([1.0, *(float(row[share]) for row in self.rows if share is not None)])


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Numbers in cells that are darker or brighter by their size.

    Attributes:
      title: what stands above it.
      rows: the names of the rows.
      columns: the names of the columns.
      values: the numbers of each row.
    """

    kind: ClassVar[str] = "matrix"

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]

    @property
    def shaded(self) -> list[tuple[str, list[tuple[float, int]]]]:
        """The name of each row, and its numbers with their shades.

        A shade is from 0, for 0 or less and what is not finite, to `SHADES`, for the largest.
        """
        largest = max((x for row in self.values for x in row if 0 < x < math.inf), default=1.0)
        return [
            (name, [(x, round(SHADES * x / largest) if 0 < x < math.inf else 0) for x in row])
            for name, row in zip(self.rows, self.values, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class MarkedText:
    """A text with marked parts.

    Attributes:
      parts: the parts of the text, one after another, each with the label of its mark; None = it is
        not marked.
      labels: all labels there may be; the number of one chooses its color.
    """

    kind: ClassVar[str] = "marked"

    parts: Sequence[tuple[str, str | None]]
    labels: Sequence[str] = ()

    def color(self, label: str) -> int:
        """Returns the number of the color of a label."""
        return self.labels.index(label) % COLORS if label in self.labels else 0


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


Result = Table | Matrix | MarkedText | Picture


def marked(
    text: str, spans: Iterable[tuple[int, int, str]], labels: Sequence[str] = ()
) -> MarkedText:
    """Marks spans of a text.

    Args:
      text: the text.
      spans: the first character, the one after the last, and the label of each span. They do not
        overlap. A span without characters is left out.
      labels: see `MarkedText`.
    """
    parts: list[tuple[str, str | None]] = []
    end = 0
    for start, stop, label in sorted(spans):
        if start < stop:
            parts += [(text[end:start], None), (text[start:stop], label)]
            end = stop
    parts.append((text[end:], None))
    return MarkedText([part for part in parts if part[0]], labels)
