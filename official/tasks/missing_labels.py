"""Which values in the column of a label or score mean that the row has none.

SNLI writes `-` where its annotators disagree. The package `datasets` writes -1 in its place, and in
each row of a test split whose labels are not public (GLUE). An empty cell is no label either. But
`-` beside `+`, and -1 if the only other value is 1, are classes, and so is every value that the
user names with `--labels`.
"""

from collections.abc import Collection

from official.utils.errors import UserError

NONE = ("", "-", "-1", "-1.0")
WITHOUT, WITHOUT_TAGS = "without a label", "without tags"
_MINUS_ONE = ("-1", "-1.0")


def reason(label: str) -> str:
    """Returns the reason under which a row without a label is counted; "" if it may be a label.

    Args:
      label: the value in the file, which is not a label of the task.
    """
    if label not in NONE:
        return ""
    return f"{WITHOUT} ({label})" if label else WITHOUT


def among(values: Collection[str]) -> set[str]:
    """Returns the values of a column that mean that a row has no label.

    Raises:
      UserError: the values are -1, 0 and 1, which may be three classes, or two and rows without.
    """
    found = {value for value in values if value in NONE}
    if "+" in values:
        found.discard("-")
    others = set(values) - set(NONE)
    numbers = {number for number in map(_whole, others) if number is not None}
    if found & set(_MINUS_ONE) and len(numbers) == len(others):
        if numbers == {0, 1}:
            raise UserError(
                "the labels are -1, 0 and 1: name them. --labels=-1,0,1 makes three classes; with "
                "--labels=0,1 a row with -1 has no label, as `datasets` writes it, and is left out"
            )
        if len(numbers) < 2 or numbers != set(range(len(numbers))):
            found -= set(_MINUS_ONE)
    return found


def _whole(value: str) -> int | None:
    """Returns the whole number that a text is, or None."""
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
