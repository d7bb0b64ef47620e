"""Documents that repeat an earlier one, exactly or nearly.

Each document is represented by a row of bytes. A document that repeats an earlier one has the same
row, or a similar one. Only the rows are in memory.

Exact duplicates have the same text but for white space. Their row is a hash of the text.

Near-duplicates share most of their runs of three words (shingles). The similarity of two documents
is the Jaccard index of their sets of shingles: the number of those in both over the number of those
in either. A row estimates it (MinHash; Broder, 1997): it has for each of 256 hash functions the
least hash of all shingles, and two rows agree in a place with a probability that is the similarity.
The least hashes are stored with 8 bits each (Li and König, 2010), which by chance agree in one of
256 places. Rows that agree in at least two thirds of the places are alike.

Rows are compared if they agree in a whole band of five places. Of documents with a similarity s,
1 - (1 - s^5)^25 have such a band: 99.9% at 0.75 and 2% at 0.25. Of those that share a band, each is
compared with the 32 before it.

Shapes: D documents, K words, G shingles.
"""

import hashlib

import numpy as np

from official.utils import host_seeding

DIGEST_BYTES = 16  # of a row of exact duplicates
HASHES = 256  # bytes of a row of near-duplicates
SIMILARITY = 2 / 3
_WORDS = 3  # of a shingle
_BANDS, _BAND_PLACES = 25, 5
_BEFORE = 32  # earlier documents of a band that a document is compared with
_COMPARED_AT_ONCE = 1 << 13
_WORD_FACTORS = host_seeding.sort_keys(0, np.arange(_WORDS)) | np.uint64(1)
_FACTORS = host_seeding.sort_keys(1, np.arange(HASHES)) | np.uint64(1)
_SUMMANDS = host_seeding.sort_keys(2, np.arange(HASHES))


class TextHash:
    """The row of a text for exact duplicates, which may be added part by part."""

    def __init__(self) -> None:
        """Starts without text."""
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._begun = False

    def add(self, text: str) -> "TextHash":
        """Adds a part of a text, which begins and ends with whole words, and returns itself."""
        if words := " ".join(text.split()):
            self._hash.update(b" " * self._begun + words.encode())
            self._begun = True
        return self

    def digest(self) -> bytes:
        """Returns the row."""
        return self._hash.digest()


def least_hashes(hashes: np.ndarray, words: np.ndarray, stand_ins: np.ndarray) -> np.ndarray:
    """Returns the least hash of the shingles of each document, for each function.

    A document of fewer than three words is one shingle.

    Args:
      hashes: the hash of each word, uint64 [K].
      words: the row splits of the documents among the words, int64 [D + 1].
      stand_ins: for each document without a word, a hash that stands for one; uint64.

    Returns:
      uint32 [D, HASHES].
    """
    empty = np.diff(words) == 0
    hashes = np.insert(hashes, words[:-1][empty], stand_ins)
    words = words + np.concatenate([[0], np.cumsum(empty)])
    starts = words[:-1]
    ends = np.repeat(words[1:], np.diff(words))  # of the document of each word
    places = np.arange(len(hashes))
    shingles = hashes * _WORD_FACTORS[0]
    for i in range(1, _WORDS):
        following = np.append(hashes[i:], np.zeros(min(i, len(hashes)), np.uint64))
        shingles += np.where(places + i < ends, following, 0) * _WORD_FACTORS[i]
    whole = places + _WORDS <= ends
    whole[starts] = True
    shingles = host_seeding.mix(shingles[whole])  # [G]
    starts = (np.cumsum(whole) - 1)[starts]
    found = np.empty((HASHES, len(starts)), np.uint32)
    for row, factor, summand in zip(found, _FACTORS, _SUMMANDS, strict=True):
        row[:] = np.minimum.reduceat((shingles * factor + summand) >> np.uint64(32), starts)
    return np.ascontiguousarray(found.T)


def shortened(least: np.ndarray) -> np.ndarray:
    """Returns the rows of least hashes, uint8 [D, HASHES]."""
    return (least & 0xFF).astype(np.uint8)


def find_equal(rows: np.ndarray) -> np.ndarray:
    """Returns which rows are those of an earlier one, bool [D].

    Args:
      rows: uint8 [D, DIGEST_BYTES], in the order of the documents.
    """
    high, low = np.ascontiguousarray(rows.view(np.uint64).reshape(len(rows), 2).T)
    order = np.lexsort((low, high))  # which is stable
    found = np.zeros(len(rows), bool)
    same = (high[order[1:]] == high[order[:-1]]) & (low[order[1:]] == low[order[:-1]])
    found[order[1:][same]] = True
    return found


def find_alike(rows: np.ndarray) -> np.ndarray:
    """Returns which rows are alike to an earlier one with which they share a band, bool [D].

    Args:
      rows: uint8 [D, HASHES], in the order of the documents.
    """
    found = np.zeros(len(rows), bool)
    for first in range(0, _BANDS * _BAND_PLACES, _BAND_PLACES):
        keys = np.zeros(len(rows), np.uint64)
        for place in range(first, first + _BAND_PLACES):
            keys = keys << np.uint64(8) | rows[:, place]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        left = np.flatnonzero(keys[1:] == keys[:-1]) + 1  # positions in `order`
        left = left[~found[order[left]]]
        for distance in range(1, _BEFORE + 1):
            left = left[left >= distance]
            left = left[keys[left] == keys[left - distance]]
            if not len(left):
                break
            alike = _alike(rows, order[left], order[left - distance])
            found[order[left[alike]]] = True
            left = left[~alike]
    return found


def _alike(rows: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns which pairs of rows agree in most places, bool."""
    found = np.empty(len(first), bool)
    for start in range(0, len(first), _COMPARED_AT_ONCE):
        part = slice(start, start + _COMPARED_AT_ONCE)
        agree = np.count_nonzero(rows[first[part]] == rows[second[part]], axis=1)
        found[part] = agree >= SIMILARITY * HASHES
    return found
