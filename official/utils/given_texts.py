"""Checks of the texts that a user of Python gives to a model."""

from collections.abc import Sequence

from official.utils.errors import UserError


def pairs(texts: Sequence, second: Sequence[str] | None) -> list[list[str]]:
    """Returns one or two lists of texts of the same length.

    Args:
      texts: N texts; or N pairs, tuples or lists of two texts, if `second` is None.
      second: the second texts of N pairs.

    Raises:
      UserError: a text is not a string, or the lists have different lengths.
    """
    if second is not None:
        return same_length(texts=texts, second=second)
    check_list(texts, "texts")
    texts = list(texts)
    if not texts or not isinstance(texts[0], tuple | list):
        return [plain(texts, "texts")]
    for number, pair in enumerate(texts):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UserError(
                f"texts: text {number} is no pair, as the first one is: {pair!r:.60}: give tuples "
                "of two texts, or all second texts as the second argument"
            )
    return [plain([pair[i] for pair in texts], "texts") for i in range(2)]


def same_length(**given: Sequence) -> list[list[str]]:
    """Returns lists of texts after a check that they have the same length.

    Raises:
      UserError: the lengths differ, or a text is not a string.
    """
    check_lengths(**given)
    return [plain(values, name) for name, values in given.items()]


def check_lengths(**given: Sequence) -> None:
    """Raises UserError if lists have different lengths."""
    for name, values in given.items():
        check_list(values, name)
    if len({len(values) for values in given.values()}) > 1:
        counts = ", ".join(f"{len(values)} {name}" for name, values in given.items())
        raise UserError(f"the lists must have the same length, got {counts}")


def plain(values: Sequence, name: str) -> list[str]:
    """Returns texts in which U+FFFD stands for each lone half of a surrogate pair.

    Such halves are not characters; they come from cut UTF-16 and from JSON. The length does not
    change.

    Args:
      values: the texts.
      name: what messages call them.

    Raises:
      UserError: a value is not a string, such as None or NaN.
    """
    texts = list(values)
    check_each(texts, name)
    return [text if text.isascii() else _without_halves(text) for text in texts]


def _without_halves(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def check_each(texts: Sequence, name: str) -> None:
    """Raises UserError for the first value that is not a string, with its index."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"{name}: text {number} is not a string: {text!r:.60}")


def check_list(values: Sequence, name: str) -> None:
    """Raises UserError if `values` is one text, or is not a list."""
    if isinstance(values, str | bytes):
        raise UserError(f"{name}: give a list, such as [text], not one text")
    if not hasattr(values, "__len__"):
        raise UserError(f"{name}: give a list, such as [text], not {values!r:.60}")


def check_texts(texts: Sequence[str], batch_size: int, method: str = "") -> None:
    """Raises UserError for one text in the place of a list, or a batch size below 1.

    Args:
      texts: the texts, each of which is checked too.
      batch_size: the number of texts in a batch.
      method: what the message begins with; "" = nothing.
    """
    begin = f"{method}: " if method else ""
    if isinstance(texts, str | bytes):
        raise UserError(f"{begin}give a list of texts, such as [text]")
    check_each(texts, f"{begin}texts")
    _check_batch_size(batch_size, begin)


def slices(count: int, size: int) -> list[slice]:
    """Returns the batches of `count` rows; raises UserError for a size below 1."""
    _check_batch_size(size)
    return [slice(start, start + size) for start in range(0, count, size)]


def _check_batch_size(size: int, begin: str = "") -> None:
    if size < 1:
        raise UserError(f"{begin}batch_size: {size} is less than 1")
