"""Drawings of grids: what may be attended to, and how much it is.

Shapes: T rows, S columns.
"""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from official.utils import atomic

_INK, _LINE, _FORBIDDEN = (20, 20, 30), (205, 205, 212), (255, 255, 255)
_STRONG = np.array([23, 70, 135])  # the colour of 1
_SIZE, _GAP = 13, 24  # of the text, and between panels


@dataclasses.dataclass(frozen=True)
class Panel:
    """A grid with a name for each row and each column.

    Attributes:
      title: above it.
      values: from 0 (white) to 1 (dark); [T, S].
      rows: names of the rows; empty = none are written.
      columns: names of the columns, written from bottom to top; empty = none.
      cell: pixels of a square.
    """

    title: str
    values: np.ndarray
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    cell: int = 22


def draw(panels: Sequence[Sequence[Panel]]) -> Image.Image:
    """Draws rows of panels."""
    font = ImageFont.load_default(_SIZE)
    drawn = [[_panel(panel, font) for panel in row] for row in panels]
    # Panels stand in columns and rows, each as wide and as high as its largest.
    width = [max(p.width for p in column) for column in _transposed(drawn)]
    height = [max(p.height for p in row) for row in drawn]
    size = (sum(width) + _GAP * (len(width) + 1), sum(height) + _GAP * (len(height) + 1))
    image = Image.new("RGB", size, "white")
    y = _GAP
    for row, high in zip(drawn, height, strict=True):
        x = _GAP
        for panel, wide in zip(row, width, strict=False):
            image.paste(panel, (x + wide - panel.width, y + high - panel.height))
            x += wide + _GAP
        y += high + _GAP
    return image


def save(image: Image.Image, path: str | os.PathLike) -> None:
    """Writes a PNG."""
    with atomic.file(path, "wb") as stream:
        image.save(stream, "PNG")


def _transposed(rows):
    return [[row[i] for row in rows if i < len(row)] for i in range(max(map(len, rows)))]


def _panel(panel: Panel, font) -> Image.Image:
    texts = [_written(name, font) for name in panel.rows]
    heads = [_written(name, font).rotate(90, expand=True) for name in panel.columns]
    title = _written(panel.title, font)
    left = max([text.width + 6 for text in texts], default=0)
    top = max([head.height + 6 for head in heads], default=0) + title.height + 6
    count, columns = panel.values.shape
    cell = panel.cell
    width = max(left + columns * cell + 1, title.width)
    image = Image.new("RGB", (width, top + count * cell + 1), "white")
    image.paste(title, (min(left, width - title.width), 0))
    for i, text in enumerate(texts):
        image.paste(text, (left - text.width - 6, top + i * cell + (cell - text.height) // 2))
    for j, head in enumerate(heads):
        image.paste(head, (left + j * cell + (cell - head.width) // 2, top - head.height - 4))
    pen = ImageDraw.Draw(image)
    white = np.array(_FORBIDDEN)
    for i, row in enumerate(panel.values):
        for j, value in enumerate(row):
            colour = tuple((white + (_STRONG - white) * float(value)).astype(int).tolist())
            x, y = left + j * cell, top + i * cell
            pen.rectangle((x, y, x + cell, y + cell), fill=colour, outline=_LINE)
    return image


def _written(text: str, font) -> Image.Image:
    """The text on a piece of its own size."""
    # The font that comes with Pillow has no mark for the beginning of a word.
    text = text.replace("▁", "_").replace("Ġ", "_") or " "
    box = font.getbbox(text)
    image = Image.new("RGB", (box[2] + 1, box[3] + 2), "white")
    ImageDraw.Draw(image).text((0, 0), text, font=font, fill=_INK)
    return image
