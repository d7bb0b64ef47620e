"""The sets of characters of `official.utils.unicode_tables`, in the forms that code needs.

A set is given as the string of that module: code points and ranges, in hexadecimal digits.
"""

from collections.abc import Iterator

import numpy as np

CODES = 0x110000  # of Unicode
# The parts of Korean syllables: leading consonants, vowels, trailing consonants.
HANGUL_LEADING = "1100-115f a960-a97c"
HANGUL_VOWELS = "1160-11a7 d7b0-d7c6"
HANGUL_TRAILING = "11a8-11ff d7cb-d7fb"


def spans(codes: str) -> Iterator[tuple[int, int]]:
    """Yields the first and the last code point of each range of a set."""
    for part in codes.split():
        first, _, last = part.partition("-")
        yield int(first, 16), int(last or first, 16)


def inside_class(*sets: str) -> str:
    """Returns the inside of a class of TensorFlow's regular expressions, `[...]`, with sets."""
    return "".join(
        rf"\x{{{low:x}}}-\x{{{high:x}}}" if low < high else rf"\x{{{low:x}}}"
        for codes in sets
        for low, high in spans(codes)
    )


def inside_python_class(*sets: str) -> str:
    """Returns the inside of a class of Python's regular expressions, `[...]`, with sets."""
    return "".join(rf"\U{low:08x}-\U{high:08x}" for codes in sets for low, high in spans(codes))


def fill(table: np.ndarray, codes: str, value: int) -> None:
    """Sets the values of a set in a table of all code points."""
    for low, high in spans(codes):
        table[low : high + 1] = value


def minus(codes: str, *others: str) -> str:
    """Returns a set without the characters of others."""
    left = np.zeros(CODES + 1, bool)
    fill(left, codes, True)
    for other in others:
        fill(left, other, False)
    edges = np.flatnonzero(np.diff(left, prepend=False))
    return " ".join(f"{low:x}-{end - 1:x}" for low, end in edges.reshape(-1, 2).tolist())
