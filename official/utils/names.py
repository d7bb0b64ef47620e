"""Names that a user may misspell: a field that is one of some, and the one that was meant."""

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(name: Any, known: Iterable[str]) -> str:
    """Words for the end of a message: the known name most like `name`, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def one_of(field: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuses a field that is none of its choices.

    Raises:
      ValueError: with the field, its value and the choices.
    """
    names = [str(choice) for choice in choices]
    if str(value) not in names:
        raise ValueError(
            f"{field}: {value!r} is not one of {', '.join(names)}{nearest(value, names)}"
        )
