"""The words and the symbols of documents, for the filters.

The classes of characters are those of `official.utils.unicode_words`, after NFC.

Shapes: D documents, C characters of all of them, K words of all of them.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official.utils import host_seeding
from official.utils.character_sets import CODES
from official.utils.unicode_words import ALONE, IGNORED, SPACE, SYMBOL, WORD, classes

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
    kinds = classes()[codes]
    ignored = kinds == IGNORED
    if ignored.any():
        starts = starts - np.concatenate([[0], np.cumsum(ignored)])[starts]
        codes, kinds = codes[~ignored], kinds[~ignored]
    before = np.full_like(kinds, SPACE)
    before[1:] = kinds[:-1]
    inside = kinds >= WORD
    begins = (kinds == ALONE) | (inside & (before < WORD) | (kinds == WORD) & (before == ALONE))
    words = np.concatenate([[0], np.cumsum(np.add.reduceat(begins, starts, dtype=np.int64))])
    hashes = np.zeros(0, np.uint64)
    if hashed and words[-1]:
        hashes = _hashes(codes[inside], np.flatnonzero(begins[inside]))
    return Measures(
        np.add.reduceat(kinds != SPACE, starts, dtype=np.int64),
        np.add.reduceat(kinds == SYMBOL, starts, dtype=np.int64),
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
def _letters() -> np.ndarray:
    """Returns a hash of each code point, which letters of both cases share; uint64."""
    codes = np.arange(CODES, dtype=np.uint64)
    for code in itertools.chain(range(0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000)):
        lower = chr(code).lower()
        if len(lower) == 1:
            codes[code] = ord(lower)
    return host_seeding.mix(codes + np.uint64(1))
