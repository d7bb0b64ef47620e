"""Makes and saves Matplotlib figures without a display and without the state of `pyplot`."""

import os
import warnings
from contextlib import AbstractContextManager

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from official.utils import atomic, errors

_DPI = 100
# Matplotlib's defaults, whatever the user's `matplotlibrc` says. A dollar sign in a token or a path
# does not start a formula.
_STYLE = ["default", {"text.parse_math": False, "text.usetex": False, "figure.dpi": _DPI}]


def style() -> AbstractContextManager[None]:
    """Returns a context with the settings for making and saving figures."""
    return matplotlib.style.context(_STYLE)


def new(width: float, height: float, layout: str | None = None) -> Figure:
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
    with style(), atomic.file(path, "wb") as stream, warnings.catch_warnings(record=True) as caught:
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
        errors.warn(f"{path}: the font lacks some characters of the text and shows boxes instead")
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
