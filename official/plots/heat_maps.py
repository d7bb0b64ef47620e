"""Heat maps: what may be attended to, and how much it is.

Shapes: T rows, S columns.
"""

import dataclasses
import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure

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
      title: above it.
      values: from 0 on; [T, S].
      rows: T names.
      columns: S names.
    """

    title: str
    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]


def draw(grid: Sequence[Sequence[HeatMap]], label: str, title: str = "") -> Figure:
    """Draws heat maps in a grid, with one colour bar for all.

    Names of rows stand at the left edge of the grid, names of columns at its bottom edge. Where a
    cell is too small for a name, only every n-th has one.

    Args:
      grid: rows of heat maps, as many in each row. Those of one row have the same row names, and
        those of one column the same column names.
      label: of the colour bar: what the values are.
      title: above all.
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
    most = max(float(np.max(heat_map.values)) for row in grid for heat_map in row)
    colours = matplotlib.colors.Normalize(0, most or 1)
    with figures.style():
        # Panels fill the figure. Names and the colour bar stand outside; `figures.save` adds their
        # room. (A layout engine measures each of a model's hundreds of panels several times.)
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
        for axes, heat_map in zip(panels.flat, (each for row in grid for each in row), strict=True):
            image = axes.imshow(heat_map.values, cmap="Blues", norm=colours, aspect="auto")
            axes.set_title(heat_map.title, fontsize=_FONT)
            axes.set_xticks([])
            axes.set_yticks([])
        for axes, row in zip(panels[:, 0], grid, strict=True):
            _name(axes.yaxis, row[0].rows, cell)
        for axes, heat_map in zip(panels[-1], grid[-1], strict=True):
            _name(axes.xaxis, heat_map.columns, cell, rotation=90)
        tall = min(height, 4.0)
        bar = figure.add_axes((1 + _GAP / width, 1 - tall / height, _BAR / width, tall / height))
        figure.colorbar(image, cax=bar, label=label)
        if title:
            figure.suptitle(title, x=0, y=1 + 2 * _GAP / height, ha="left", va="bottom")
    return figure


def _name(axis: Axis, names: Sequence[str], cell: float, rotation: int = 0) -> None:
    """Writes names at the cells of an axis, of which each takes `cell` inches."""
    size = min(_FONT, 0.8 * cell * _POINTS)
    every = max(1, math.ceil(_SMALLEST_FONT / size))
    axis.set_ticks(
        range(0, len(names), every),
        [name if name.isprintable() else ascii(name) for name in names[::every]],
        fontsize=max(size, _SMALLEST_FONT),
        rotation=rotation,
    )
