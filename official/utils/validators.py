"""Checks of the fields of a config, with messages for the user."""

import difflib
import re
from collections.abc import Iterable
from typing import Any


def nearest(name: Any, known: Iterable[str]) -> str:
    """Returns the end of a message that suggests the known name nearest to `name`, or ""."""
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def one_of(field: str, value: Any, choices: Iterable[Any]) -> None:
    """Checks that a value is one of its choices.

    Raises:
      ValueError: with the field, its value and the choices.
    """
    names = [str(choice) for choice in choices]
    if str(value) not in names:
        raise ValueError(
            f"{field}: {value!r} is not one of {', '.join(names)}{nearest(value, names)}"
        )


def at_least(config: Any, minimum: float, *fields: str) -> None:
    """Checks that fields are not below a minimum; None is allowed.

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        value = getattr(config, field)
        if value is not None and not value >= minimum:
            what = "negative" if minimum == 0 else f"less than {minimum}"
            raise ValueError(f"{field}: {value} is {what}")


def at_most(config: Any, maximum: float, *fields: str) -> None:
    """Checks that fields are not above a maximum.

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if getattr(config, field) > maximum:
            raise ValueError(f"{field}: {getattr(config, field)} is more than {maximum}")


def above(config: Any, bound: float, *fields: str) -> None:
    """Checks that fields are above a bound.

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if not getattr(config, field) > bound:
            raise ValueError(f"{field}: {getattr(config, field)} is not above {bound}")


def fraction(config: Any, *fields: str) -> None:
    """Checks that fields are in [0, 1].

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if not 0 <= getattr(config, field) <= 1:
            raise ValueError(f"{field}: {getattr(config, field)} is not between 0 and 1")


def positive_fraction(config: Any, *fields: str) -> None:
    """Checks that fields are in (0, 1].

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if not 0 < getattr(config, field) <= 1:
            raise ValueError(f"{field}: {getattr(config, field)} is not above 0 and at most 1")


def dropout_rate(config: Any, *fields: str) -> None:
    """Checks that fields are in [0, 1).

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        if not 0 <= getattr(config, field) < 1:
            raise ValueError(f"{field}: {getattr(config, field)} is not in [0, 1)")


def regular_expression(config: Any, *fields: str) -> None:
    """Checks that the patterns in fields are regular expressions; None is allowed.

    Raises:
      ValueError: with the field and its value.
    """
    for field in fields:
        for pattern in getattr(config, field) or ():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"{field}: {pattern!r} is not a regular expression: {error}"
                ) from None


def labels_agree(config: Any) -> None:
    """Checks that `num_labels` and `labels`, where both are given, are of one number.

    Raises:
      ValueError: with both numbers.
    """
    if config.num_labels and config.labels and config.num_labels != len(config.labels):
        raise ValueError(
            f"num_labels: {config.num_labels}, but there are {len(config.labels)} labels"
        )
