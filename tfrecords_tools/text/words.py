"""The words and the symbols of documents, for the filters.

A character is one of these, by its Unicode category after NFC:

* **White space**: separators (Z) and control characters (Cc), which tokenizers leave out too.
* **Ignored**: format characters (Cf), such as joiners and soft hyphens, which have no width.
* **Word**: letters (L) and numbers (N). A word is a run of these and of marks.
* **Mark**: accents and vowel signs (M), which continue a word.
* **Alone**: the letters of scripts that have no blanks between words. Each is a word, with its
  marks.
* **Symbol**: all others: punctuation, signs, emoji, private and unassigned characters.

Shapes: D documents, C characters of all of them, K words of all of them.
"""

import functools
import itertools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official.utils import host_seeding

SPACE, IGNORED, SYMBOL, WORD, MARK, ALONE = range(6)
_CODES = 0x110000
_CLASSES = {"Z": SPACE, "L": WORD, "N": WORD, "M": MARK}  # by the first letter of a category
# Chinese and Japanese (Han, kana), Thai, Lao, Burmese and Khmer.
_WITHOUT_BLANKS = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3005, 0x3007), (0x3021, 0x30FF),
    (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip
_FACTOR = host_seeding.STEP  # of the hash of a word: odd


class Measures(NamedTuple):
    """What the filters read of documents.

    Attributes:
      characters: the number of characters, white space and ignored ones not counted; int64 [D].
      symbols: the number of symbols; int64 [D].
      words: the row splits of the documents among the words; int64 [D + 1].
      hashes: a hash of each word, whatever the case of its letters; uint64 [K]; empty if they were
        not asked for.
    """

    characters: np.ndarray
    symbols: np.ndarray
    words: np.ndarray
    hashes: np.ndarray


def measure(texts: Sequence[str], hashed: bool = False) -> Measures:
    """Measures documents.

    Args:
      texts: the texts of D documents, in NFC.
      hashed: whether the hashes of the words are computed.
    """
    if not texts:
        nothing = np.zeros(0, np.int64)
        return Measures(nothing, nothing, np.zeros(1, np.int64), np.zeros(0, np.uint64))
    # Each text has a line break at its end, so none is empty and no word spans two of them.
    sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])  # [D]
    codes = np.frombuffer("\n".join([*texts, ""]).encode("utf-32-le"), "<u4")  # [C]
    classes = _classes()[codes]
    ignored = classes == IGNORED
    if ignored.any():
        starts = starts - np.concatenate([[0], np.cumsum(ignored)])[starts]
        codes, classes = codes[~ignored], classes[~ignored]
    before = np.full_like(classes, SPACE)
    before[1:] = classes[:-1]
    inside = classes >= WORD
    begins = (classes == ALONE) | (inside & (before < WORD) | (classes == WORD) & (before == ALONE))
    words = np.concatenate([[0], np.cumsum(np.add.reduceat(begins, starts, dtype=np.int64))])
    hashes = np.zeros(0, np.uint64)
    if hashed and words[-1]:
        hashes = _hashes(codes[inside], np.flatnonzero(begins[inside]))
    return Measures(
        np.add.reduceat(classes != SPACE, starts, dtype=np.int64),
        np.add.reduceat(classes == SYMBOL, starts, dtype=np.int64),
        words,
        hashes,
    )


def _hashes(codes: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Returns the hash of each word, uint64 [K].

    Args:
      codes: the characters of all words.
      begins: the positions at which words begin, [K].
    """
    lengths = np.diff(begins, append=len(codes))
    powers = np.cumprod(np.full(lengths.max(), _FACTOR, np.uint64))
    places = np.arange(len(codes), dtype=np.int32) - np.repeat(begins.astype(np.int32), lengths)
    return host_seeding.mix(np.add.reduceat(_letters()[codes] * powers[places], begins))


@functools.cache
def _classes() -> np.ndarray:
    """Returns the class of each code point, uint8."""
    names = [unicodedata.category(chr(code)) for code in range(_CODES)]
    special = {"Cc": SPACE, "Cf": IGNORED}
    classes = {name: special.get(name, _CLASSES.get(name[0], SYMBOL)) for name in set(names)}
    table = np.fromiter((classes[name] for name in names), np.uint8, _CODES)
    for first, last in _WITHOUT_BLANKS:
        letters = [name[0] == "L" for name in names[first : last + 1]]
        table[first : last + 1][letters] = ALONE
    return table


@functools.cache
def _letters() -> np.ndarray:
    """Returns a hash of each code point, which letters of both cases share; uint64."""
    codes = np.arange(_CODES, dtype=np.uint64)
    for code in itertools.chain(range(0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000)):
        lower = chr(code).lower()
        if len(lower) == 1:
            codes[code] = ord(lower)
    return host_seeding.mix(codes + np.uint64(1))
