"""Curves of training runs: loss, learning rate, gradient norm and metrics of evaluations."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from official.plots import figures
from official.saving.metrics_log import Record
from official.utils.errors import UserError

_WIDTH, _HEIGHT = 5.0, 3.4  # inches of a panel
_COLUMNS = 3
Color = tuple[float, float, float, float]  # red, green, blue, opacity
_STYLES: dict[str, Literal["-", "--"]] = {"train": "-", "validation": "--"}


def draw(runs: Mapping[str, Sequence[Record]]) -> Figure:
    """Draws a panel for each metric, with the step as x and a color for each run.

    The panels are the loss, the learning rate, the gradient norm and each metric of an evaluation,
    if at least one run has it. Lines are solid for training and dashed for validation.

    Args:
      runs: the name of each run and its records in the order of their steps.

    Raises:
      UserError: no run has a metric to draw.
    """
    names = _panels(runs)
    if not names:
        raise UserError(f"{', '.join(runs)}: there is no loss and no metric to draw")
    columns = min(len(names), _COLUMNS)
    rows = math.ceil(len(names) / columns)
    colors = _colors(len(runs))
    with figures.style():
        figure = figures.new(_WIDTH * columns, _HEIGHT * rows, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, name in zip(panels, names, strict=False):
            axes.set_title(name.replace("_", " "))
            axes.set_xlabel("step")
            axes.grid(alpha=0.3)
            for (run, records), color in zip(runs.items(), colors, strict=True):
                for split in _STYLES:
                    points = [
                        (record.step, record.metrics[name])
                        for record in records
                        if record.split == split and name in record.metrics
                    ]
                    _line(axes, points, split, color=color, label=f"{run} ({split})")
        for axes in panels[len(names) :]:
            axes.remove()
        _legend(figure, runs, colors)
    return figure


def _panels(runs: Mapping[str, Sequence[Record]]) -> list[str]:
    """Returns the names of the metrics that have a panel, in the order of the panels."""
    records = [record for each in runs.values() for record in each]
    known = {name for record in records for name in record.metrics}
    names = [name for name in ("loss", "learning_rate", "gradient_norm") if name in known]
    evaluated = (name for r in records if r.split == "validation" for name in r.metrics)
    return list(dict.fromkeys([*names, *evaluated]))


def _colors(count: int) -> list[Color]:
    if count <= 10:
        colors = matplotlib.colormaps["tab10"](range(count))
    else:
        colors = matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, count))
    return [to_rgba(color) for color in colors]


def _line(
    axes: Axes, points: Sequence[tuple[int, float]], split: str, color: Color, label: str
) -> None:
    if not points:
        return
    # A line through a single point would be invisible, and evaluations are few.
    marker = "o" if split == "validation" or len(points) == 1 else None
    axes.plot(
        *zip(*points, strict=True),
        linestyle=_STYLES[split],
        marker=marker,
        markersize=4,
        color=color,
        label=label,
    )


def _legend(figure: Figure, runs: Mapping[str, Sequence[Record]], colors: Sequence[Color]) -> None:
    """Adds a legend with the color of each run and the line style of each split."""
    lines = {run: Line2D([], [], color=c) for run, c in zip(runs, colors, strict=True)}
    splits = {record.split for records in runs.values() for record in records}
    for split, line in _STYLES.items():
        if split in splits:
            lines[split] = Line2D([], [], color="black", linestyle=line)
    figure.legend(lines.values(), lines.keys(), loc="outside lower left", ncols=1)
