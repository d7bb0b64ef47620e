"""Curves of training runs: loss, learning rate, gradient norm, metrics of the evaluations."""

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from official.plots import figures
from official.saving.metrics_log import Record

_WIDTH, _HEIGHT = 5.0, 3.4  # inches of a panel
_COLUMNS = 3
_STYLES = {"train": "-", "validation": "--"}


def draw(runs: Mapping[str, Sequence[Record]]) -> Figure:
    """Draws a panel for each figure, with the step as x and a colour for each run.

    The panels are those of the loss, the learning rate, the gradient norm and each metric of an
    evaluation, as far as a run has them. Lines are solid for training and dashed for validation.

    Args:
      runs: name of a run → its records, in the order of their steps.
    """
    names = _panels(runs)
    columns = min(len(names), _COLUMNS)
    rows = math.ceil(len(names) / columns)
    colours = _colours(len(runs))
    with figures.style():
        figure = figures.new(_WIDTH * columns, _HEIGHT * rows, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, name in zip(panels, names, strict=False):
            axes.set_title(name.replace("_", " "))
            axes.set_xlabel("step")
            axes.grid(alpha=0.3)
            for (run, records), colour in zip(runs.items(), colours, strict=True):
                for split in _STYLES:
                    _line(axes, name, split, run, records, colour)
        for axes in panels[len(names) :]:
            axes.remove()
        _legend(figure, runs, colours)
    return figure


def _panels(runs: Mapping[str, Sequence[Record]]) -> list[str]:
    """The names of the figures that have a panel, in its order."""
    records = [record for each in runs.values() for record in each]
    known = {name for record in records for name in record.figures}
    names = [name for name in ("loss", "learning_rate", "gradient_norm") if name in known]
    metrics = (name for r in records if r.split == "validation" for name in r.figures)
    return list(dict.fromkeys([*names, *metrics]))


def _colours(count: int) -> list:
    if count <= 10:
        return list(matplotlib.colormaps["tab10"].colors[:count])
    return list(matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, count)))


def _line(
    axes: Axes, name: str, split: str, run: str, records: Sequence[Record], colour: tuple
) -> None:
    points = [(r.step, r.figures[name]) for r in records if r.split == split and name in r.figures]
    if not points:
        return
    # One point is no line; evaluations are few.
    marker = "o" if split == "validation" or len(points) == 1 else None
    axes.plot(
        *zip(*points, strict=True),
        linestyle=_STYLES[split],
        marker=marker,
        markersize=4,
        color=colour,
        label=f"{run} ({split})",
    )


def _legend(figure: Figure, runs: Mapping[str, Sequence[Record]], colours: Sequence) -> None:
    """Says which colour is which run, and which line which split."""
    lines = {run: Line2D([], [], color=c) for run, c in zip(runs, colours, strict=True)}
    found = {record.split for records in runs.values() for record in records}
    for split, line in _STYLES.items():
        if split in found:
            lines[split] = Line2D([], [], color="black", linestyle=line)
    figure.legend(lines.values(), lines.keys(), loc="outside lower left", ncols=1)
