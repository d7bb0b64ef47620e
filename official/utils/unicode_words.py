"""The words of texts of all scripts, for counts and for the search by words.

A character is one of these, by its properties in Unicode:

* **White space**: separators (Z) and control characters (Cc), which tokenizers leave out too.
* **Ignored**: format characters (Cf), such as joiners and soft hyphens, which have no width.
* **Word**: letters (L) and numbers (N). A word is a run of these and of marks.
* **Mark**: accents and vowel signs (M), which continue a word.
* **Alone**: the letters of scripts that have no blanks between words. Each is a word, with its
  marks.
* **Symbol**: all others: punctuation, signs, emoji, private and unassigned characters.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator

import numpy as np

from official.utils import unicode_tables as unicode
from official.utils.character_sets import CODES, fill, inside_python_class, minus

SPACE, IGNORED, SYMBOL, WORD, MARK, ALONE = range(6)
_ASCII_WORD = re.compile(r"\w+", re.ASCII)


@functools.cache
def classes() -> np.ndarray:
    """Returns the class of each code point, uint8."""
    table = np.full(CODES, SYMBOL, np.uint8)
    for codes, kind in (
        (unicode.BLANKS, SPACE), (unicode.FORMATS, IGNORED), (unicode.LETTERS, WORD),
        (unicode.DIGITS, WORD), (unicode.COMBINING, MARK), (unicode.UNSPACED, ALONE),
    ):  # fmt: skip
        fill(table, codes, kind)
    return table


@functools.cache
def spaced() -> str:
    """Returns the set of the letters and numbers of scripts with blanks between words."""
    return minus(f"{unicode.LETTERS} {unicode.DIGITS}", unicode.UNSPACED)


def would_join(before: str, after: str) -> bool:
    """Returns whether two texts have a word in common if no blank is between them.

    Letters of scripts without blanks between words are words of their own.
    """
    kinds = classes()
    ends = (kinds[ord(character)] for character in reversed(before))
    last = next((kind for kind in ends if kind not in (MARK, IGNORED)), SPACE)
    return bool(last == WORD and after and kinds[ord(after[0])] == WORD)


def terms(text: str) -> list[str]:
    """Returns the search terms of a text, in lower case.

    They are runs of letters, numbers, marks and "_". A run of letters of a script without blanks
    gives its letters and the pairs of neighbors: 北京大 → 北 京 大 北京 京大. In Arabic and
    Hebrew, the points that most texts omit are removed.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    word, ignored = _patterns()
    text = ignored.sub("", unicodedata.normalize("NFC", text).lower())
    return list(_with_pairs(word.findall(text)))


def _with_pairs(found: list[tuple[str, str]]) -> Iterator[str]:
    """Yields words, and the letters and pairs of runs; one of each two strings is empty."""
    for word, run in found:
        if word:
            yield word
            continue
        letters = _letters().findall(run)
        yield from letters
        yield from map("".join, itertools.pairwise(letters))


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns what finds words and runs, and what finds characters that are left out."""
    alone, mark = inside_python_class(unicode.UNSPACED), inside_python_class(unicode.COMBINING)
    word = inside_python_class(spaced())
    # A zero-width blank ends a word.
    ignored = inside_python_class(minus(unicode.FORMATS, "200b"), unicode.POINTS)
    return (
        # Possessive quantifiers make the time linear. A mark without a letter is a word of its own.
        re.compile(f"([_{word}{mark}]++)|((?:[{alone}][{mark}]*+)++)"),
        re.compile(f"[{ignored}]"),
    )


@functools.cache
def _letters() -> re.Pattern[str]:
    mark = inside_python_class(unicode.COMBINING)
    return re.compile(f"[^{mark}][{mark}]*")
