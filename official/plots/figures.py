"""Matplotlib figures without a display and without the state of `pyplot`, and grids of heat maps.

Shapes: T rows, S columns.
"""

import dataclasses
import io
import math
import os
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from official.utils import atomic, errors

_DPI = 100
# Matplotlib's defaults, whatever the user's `matplotlibrc` says. A dollar sign in a token or a path
# does not start a formula.
_STYLE: Sequence[str | dict[str, Any]] = [
    "default",
    {"text.parse_math": False, "text.usetex": False, "figure.dpi": _DPI},
]
_Layout = Literal["constrained", "compressed", "tight"]
_CELL = 0.22  # inches; smaller where there are many
_LARGEST_PANEL, _LARGEST_GRID = 12.0, 60.0  # inches
_GAP, _BAR = 0.3, 0.18  # inches between panels, and the width of the color bar
_POINTS = 72  # of an inch
_FONT, _SMALLEST_FONT = 9.0, 4.0  # points


def style() -> AbstractContextManager[None]:
    """Returns a context with the settings for making and saving figures."""
    return matplotlib.style.context(_STYLE)


def new(width: float, height: float, layout: _Layout | None = None) -> Figure:
    """Makes an empty figure.

    Args:
      width: the width in inches.
      height: the height in inches.
      layout: the name of a layout engine of Matplotlib; None = axes are not moved.
    """
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a figure as PNG, cropped to what is drawn.

    Raises:
      UserError: the file cannot be written.
    """
    with atomic.file(path, "wb") as stream:
        stream.write(png(figure, str(path)))


def png(figure: Figure, name: str) -> bytes:
    """Returns the file that `save` writes; `name` is what a warning begins with."""
    stream = io.BytesIO()
    with style(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Without the version of Matplotlib the same figure always gives the same bytes.
        figure.savefig(
            stream,
            format="png",
            dpi=_DPI,
            bbox_inches="tight",
            pad_inches=0.2,
            metadata={"Software": None},
        )
    missing = [w for w in caught if "missing from font" in str(w.message)]
    if missing:
        errors.warn(f"{name}: the font lacks some characters of the text and shows boxes instead")
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return stream.getvalue()


@dataclasses.dataclass(frozen=True)
class HeatMap:
    """A matrix with a name for each row and each column.

    Attributes:
      title: the title above the heat map.
      values: not negative, [T, S].
      rows: the T names of the rows.
      columns: the S names of the columns.
    """

    title: str
    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]


def draw_heat_maps(grid: Sequence[Sequence[HeatMap]], label: str, title: str = "") -> Figure:
    """Draws heat maps in a grid with one color bar for all.

    Row names are at the left edge of the grid and column names at its bottom edge. If a cell is too
    small for a name, only every n-th name is shown.

    Args:
      grid: rows of heat maps, all of the same length. The heat maps of a row have the same row
        names, and those of a column the same column names.
      label: the label of the color bar, which says what the values are.
      title: the title of the figure.
    """
    heights = [len(row[0].rows) for row in grid]
    widths = [len(heat_map.columns) for heat_map in grid[0]]
    cell = min(
        _CELL,
        _LARGEST_PANEL / max(*heights, *widths),
        _LARGEST_GRID / sum(heights),
        _LARGEST_GRID / sum(widths),
    )
    width = cell * sum(widths) + _GAP * (len(widths) - 1)
    height = cell * sum(heights) + _GAP * (len(heights) - 1)
    with style():
        # Panels fill the figure. Names and the color bar are outside of it, and `figures.save`
        # adds room for them. (A layout engine would measure each of hundreds of panels repeatedly.)
        figure = new(width, height)
        panels = figure.subplots(
            len(heights),
            len(widths),
            squeeze=False,
            width_ratios=widths,
            height_ratios=heights,
            gridspec_kw={
                "left": 0, "right": 1, "bottom": 0, "top": 1,
                "wspace": _GAP / (cell * np.mean(widths)),
                "hspace": _GAP / (cell * np.mean(heights)),
            },
        )  # fmt: skip
        image = _images(panels, grid)
        for axes, row in zip(panels[:, 0], grid, strict=True):
            _name_cells(axes.yaxis, row[0].rows, cell)
        for axes, heat_map in zip(panels[-1], grid[-1], strict=True):
            _name_cells(axes.xaxis, heat_map.columns, cell, rotation=90)
        bar_height = min(height, 4.0)
        bar = figure.add_axes(
            (1 + _GAP / width, 1 - bar_height / height, _BAR / width, bar_height / height)
        )
        figure.colorbar(image, cax=bar, label=label)
        if title:
            figure.suptitle(title, x=0, y=1 + 2 * _GAP / height, ha="left", va="bottom")
    return figure


def _images(panels: np.ndarray, grid: Sequence[Sequence[HeatMap]]) -> AxesImage:
    """Draws each heat map on its axes with colors from 0 to the largest value; returns one."""
    heat_maps = [heat_map for row in grid for heat_map in row]
    maximum = max(float(np.max(heat_map.values)) for heat_map in heat_maps)
    colors = matplotlib.colors.Normalize(0, maximum or 1)
    for axes, heat_map in zip(panels.flat, heat_maps, strict=True):
        image = axes.imshow(heat_map.values, cmap="Blues", norm=colors, aspect="auto")
        axes.set_title(heat_map.title, fontsize=_FONT)
        axes.set_xticks([])
        axes.set_yticks([])
    return image


def _name_cells(axis: Axis, names: Sequence[str], cell: float, rotation: int = 0) -> None:
    """Labels the cells of an axis with names; a cell is `cell` inches wide."""
    size = min(_FONT, 0.8 * cell * _POINTS)
    every = max(1, math.ceil(_SMALLEST_FONT / size))
    axis.set_ticks(
        range(0, len(names), every),
        [name if name.isprintable() else ascii(name) for name in names[::every]],
        fontsize=max(size, _SMALLEST_FONT),
        rotation=rotation,
    )
