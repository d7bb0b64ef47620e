"""Makes and saves figures; no display and no state of `pyplot` takes part."""

import os
import warnings
from contextlib import AbstractContextManager

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from official.utils import atomic, errors

_DPI = 100
# Matplotlib's own settings, whatever a `matplotlibrc` on this machine says. Tokens and paths may
# hold dollar signs, which are no formulas.
_STYLE = ["default", {"text.parse_math": False, "text.usetex": False, "figure.dpi": _DPI}]


def style() -> AbstractContextManager[None]:
    """The settings under which every figure is made and saved."""
    return matplotlib.style.context(_STYLE)


def new(width: float, height: float, layout: str | None = None) -> Figure:
    """Makes an empty figure.

    Args:
      width: in inches.
      height: in inches.
      layout: of Matplotlib's layout engines; None = axes stay where they are put.
    """
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a figure as PNG, as large as what is drawn.

    Raises:
      UserError: the file cannot be written.
    """
    with style(), atomic.file(path, "wb") as stream, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # No version of Matplotlib inside: the same figure gives the same bytes.
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
        errors.warn(f"{path}: the font lacks some characters of the text; boxes stand for them")
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
