"""Checks of lists of texts, and their batches."""

from collections.abc import Sequence

from official.utils.errors import UserError


def pairs(texts: Sequence[str], second: Sequence[str] | None) -> list[Sequence[str]]:
    """Returns one or two lists of texts of the same length."""
    if second is None:
        check_list(texts, "texts")
        return [texts]
    return same_length(texts=texts, second=second)


def same_length(**given: Sequence) -> list[Sequence]:
    """Returns the lists after a check that they have the same length."""
    for name, values in given.items():
        check_list(values, name)
    if len({len(values) for values in given.values()}) > 1:
        counts = ", ".join(f"{len(values)} {name}" for name, values in given.items())
        raise UserError(f"the lists must have the same length, and there are {counts}")
    return list(given.values())


def check_list(values: Sequence, name: str) -> None:
    """Raises UserError for one text in the place of a list."""
    if isinstance(values, str | bytes):
        raise UserError(f"{name}: give a list, such as [text], not one text")


def check_texts(texts: Sequence[str], batch_size: int, method: str = "") -> None:
    """Raises UserError for one text in the place of a list, or a batch size below 1.

    Args:
      texts: the texts.
      batch_size: the number of texts in a batch.
      method: what the message begins with; "" = nothing.
    """
    begin = f"{method}: " if method else ""
    if isinstance(texts, str | bytes):
        raise UserError(f"{begin}give a list of texts, such as [text]")
    if batch_size < 1:
        raise UserError(f"{begin}batch_size: {batch_size} is less than 1")


def slices(count: int, size: int) -> list[slice]:
    """Returns the batches of `count` rows; raises UserError for a size below 1."""
    if size < 1:
        raise UserError(f"batch_size: {size} is less than 1")
    return [slice(start, start + size) for start in range(0, count, size)]
