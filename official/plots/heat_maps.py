"""Heat maps of attention masks and attention weights.

Shapes: T rows, S columns.
"""

import dataclasses
import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from official.plots import figures

_CELL = 0.22  # inches; smaller where there are many
_LARGEST_PANEL, _LARGEST_GRID = 12.0, 60.0  # inches
_GAP, _BAR = 0.3, 0.18  # inches between panels, and the width of the colour bar
_POINTS = 72  # of an inch
_FONT, _SMALLEST_FONT = 9.0, 4.0  # points


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


def draw(grid: Sequence[Sequence[HeatMap]], label: str, title: str = "") -> Figure:
    """Draws heat maps in a grid with one colour bar for all.

    Row names are at the left edge of the grid and column names at its bottom edge. If a cell is too
    small for a name, only every n-th name is shown.

    Args:
      grid: rows of heat maps, all of the same length. The heat maps of a row have the same row
        names, and those of a column the same column names.
      label: the label of the colour bar, which says what the values are.
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
    with figures.style():
        # Panels fill the figure. Names and the colour bar are outside of it, and `figures.save`
        # adds room for them. (A layout engine would measure each of hundreds of panels repeatedly.)
        figure = figures.new(width, height)
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
            _name(axes.yaxis, row[0].rows, cell)
        for axes, heat_map in zip(panels[-1], grid[-1], strict=True):
            _name(axes.xaxis, heat_map.columns, cell, rotation=90)
        bar_height = min(height, 4.0)
        bar = figure.add_axes(
            (1 + _GAP / width, 1 - bar_height / height, _BAR / width, bar_height / height)
        )
        figure.colorbar(image, cax=bar, label=label)
        if title:
            figure.suptitle(title, x=0, y=1 + 2 * _GAP / height, ha="left", va="bottom")
    return figure


def _images(panels: np.ndarray, grid: Sequence[Sequence[HeatMap]]) -> AxesImage:
    """Draws each heat map on its axes with colours from 0 to the largest value; returns one."""
    heat_maps = [heat_map for row in grid for heat_map in row]
    maximum = max(float(np.max(heat_map.values)) for heat_map in heat_maps)
    colours = matplotlib.colors.Normalize(0, maximum or 1)
    for axes, heat_map in zip(panels.flat, heat_maps, strict=True):
        image = axes.imshow(heat_map.values, cmap="Blues", norm=colours, aspect="auto")
        axes.set_title(heat_map.title, fontsize=_FONT)
        axes.set_xticks([])
        axes.set_yticks([])
    return image


def _name(axis: Axis, names: Sequence[str], cell: float, rotation: int = 0) -> None:
    """Labels the cells of an axis with names; a cell is `cell` inches wide."""
    size = min(_FONT, 0.8 * cell * _POINTS)
    every = max(1, math.ceil(_SMALLEST_FONT / size))
    axis.set_ticks(
        range(0, len(names), every),
        [name if name.isprintable() else ascii(name) for name in names[::every]],
        fontsize=max(size, _SMALLEST_FONT),
        rotation=rotation,
    )
