"""A cache of the ids of words: each distinct word of texts is split once.

Most words of a text have occurred before. Vectorized passes over the bytes of many texts cut them
into words, the tokenizer splits new words, and the ids of known words are looked up. The rules of a
tokenizer are not repeated here: new words are split by the same function as any text.

A word here is a part of a text that has the same ids alone as inside the text. Where a text is cut
depends on the tokenizer: `cut_at_signs` cuts at blanks and signs, and `cut_at_blanks` at blanks
alone. Text without blanks, such as Chinese, has few cuts. Long words are not cached.

All other words are in three tables, by length: the keys are their bytes, in one, two or four
integers. So the words of many texts are looked up by a few calls of NumPy.

Shapes: N texts, Y bytes of all texts, W words of all texts, K words; a ragged dimension is written
None.
"""

import functools
import string
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.tokenizers.integer_table import IntegerTable, zeros

# The largest number of cached words; then the cache is emptied. It takes at most 64 MiB.
MAX_WORDS = 1 << 19
_IDS = 12  # the largest mean number of ids of a word, before the cache is emptied
_BLOCK = 1 << 18  # words that are looked up in one call
# A key is the bytes of a word, padded with bytes that never occur in UTF-8.
_BYTES = 8  # in a column of a key
_COLUMNS = 4, 2, 1
LONGEST = _COLUMNS[0] * _BYTES  # the largest number of bytes of a cached word
_NO_BYTE = b"\xff"
_ENDS = np.array([(1 << 64) - (1 << 8 * size) for size in range(_BYTES + 1)], np.uint64)
# a span is the position of the first id of a word, `span >> 32`, and the number of ids in these
# bits
_SIZE_BITS = 32


def _flags(*members: tuple[int, str]) -> bytes:
    """Returns the flags of each of 256 bytes, from pairs of a flag and the bytes that have it."""
    table = np.zeros(256, np.uint8)
    for flag, characters in members:
        table[list(characters.encode("latin-1"))] |= flag
    return table.tobytes()


_WORD, _SIGN, _TEXT, _SPACE = 1, 2, 4, 8
_NEXT = 4  # the flags of the byte after a cut are shifted by this number of bits
_ALPHANUMERIC = string.ascii_letters + string.digits
_VISIBLE = "".join(set(map(chr, range(128))) - set(string.whitespace))
# The first bytes of characters outside ASCII that cannot be white space, which begins with C2, E1,
# E2 or E3.
_OTHER = "".join(map(chr, {*range(0xC3, 0xF5)} - {0xE1, 0xE2, 0xE3}))
# A text is cut between two bytes if the first has a flag and the second has the same flag, shifted.
# For the flag `_SPACE`, the cut is before the first byte.
_FLAGS = _flags(
    (_WORD, _ALPHANUMERIC),
    (_SIGN, string.punctuation.replace("'", "")),
    (_TEXT, _VISIBLE),
    (_SPACE, " \n"),
    (_WORD << _NEXT, string.punctuation),
    (_SIGN << _NEXT, _ALPHANUMERIC),
    (_TEXT << _NEXT, " \n"),
    (_SPACE << _NEXT, _VISIBLE + _OTHER),
)
_SIGMA = "Σ".encode()


# Returns whether texts are cut before each byte, bool [Y]: it takes the Y bytes of all texts, and
# the position of each text, and Y, int64 [N + 1].
Cut = Callable[[bytes, np.ndarray], np.ndarray]


class _Group:
    """The words whose keys have the same number of columns.

    Attributes:
      table: gives each key a number.
      spans: the position and number of the ids of each word, by the number of its key, int64.
    """

    def __init__(self, columns: int, capacity: int):
        self._columns = columns
        self.table = IntegerTable(columns, capacity)
        self.spans = zeros((capacity + 1,), np.int64)

    def find(self, integers: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> "_Found":
        """Looks up the words of this group among K words.

        Args:
          integers: the eight bytes that begin at each byte of the data, as an integer.
          begins: the position of each word in the data, [K].
          lengths: the number of bytes of each word, [K].
        """
        shorter = self._columns // 2 * _BYTES
        places = np.flatnonzero((lengths > shorter) & (lengths <= self._columns * _BYTES))
        begins, lengths = np.take(begins, places), np.take(lengths, places)
        keys = np.empty((len(places), self._columns), np.uint64)
        for column in range(self._columns):
            before = column * _BYTES
            sizes = np.minimum(np.maximum(lengths - before, 0), _BYTES)  # faster than `np.clip`
            keys[:, column] = integers[begins + before] | np.take(_ENDS, sizes)
        return _Found(self, places, keys, self.table.find(keys))


class _Found(NamedTuple):
    """The words of a group in a block.

    Attributes:
      group: the group.
      places: their indices among the words of the block, int64.
      keys: their keys, uint64.
      numbers: the numbers of the keys, int64; 0 = the word is unknown.
    """

    group: _Group
    places: np.ndarray
    keys: np.ndarray
    numbers: np.ndarray


class WordIds:
    """A cache of the ids of words. Threads may share it; a lock lets one split at a time."""

    def __init__(
        self,
        spell: Callable[[bytes, np.ndarray], tuple[np.ndarray, np.ndarray]],
        lower_case: bool = False,
        max_words: int = MAX_WORDS,
        cut: Cut | None = None,
    ):
        """Starts with an empty cache.

        Args:
          spell: returns the ids of words, int32, and their row splits, [K + 1]. It takes the
            concatenated bytes of K words, and the number of bytes of each; words of more than
            `LONGEST` bytes come last.
          lower_case: whether `spell` lower-cases words. ASCII letters are lower-cased before the
            lookup, so that fewer words are distinct.
          max_words: the capacity of the cache. When more words, or more than 12 ids a word on
            average, would be cached, the cache is emptied.
          cut: where texts are cut; None = `cut_at_signs`.
        """
        self._spell = spell
        self._cut = cut or functools.partial(cut_at_signs, lower_case=lower_case)
        self._lower_case = lower_case
        self._max_words = max_words
        self._mutex = threading.Lock()
        self._forget()

    @property
    def count(self) -> int:
        """The number of cached words."""
        return sum(group.table.count for group in self._groups)

    def _forget(self) -> None:
        self._groups = [_Group(columns, self._max_words) for columns in _COLUMNS]
        # The ids of cached words, followed by the ids of the long words of a block.
        self._ids = zeros((self._max_words,), np.int32)
        self._num_ids = 0

    def split(self, texts: Sequence[bytes]) -> tf.RaggedTensor:
        """Returns the ids of N texts in UTF-8, int32 [N, None]."""
        data = b"".join(texts)
        text_bounds = np.cumsum([0, *map(len, texts)])
        if self._lower_case:
            data = data.lower()
        cuts = self._cut(data, text_bounds)
        cuts[text_bounds[text_bounds < len(data)]] = True
        begins = np.flatnonzero(cuts)
        rows = np.searchsorted(begins, text_bounds)
        lengths = np.diff(begins, append=len(data))
        integers = _integers(data)
        values, sizes = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        block = min(_BLOCK, self._max_words)
        with self._mutex:
            for first in range(0, len(begins), block):
                some = slice(first, first + block)
                ids, counts = self._ids_of(data, integers, begins[some], lengths[some])
                values.append(ids)
                sizes.append(counts)
        bounds = np.cumsum(np.concatenate(sizes))
        return tf.RaggedTensor.from_row_splits(np.concatenate(values), bounds[rows], validate=False)

    def _ids_of(
        self, data: bytes, integers: np.ndarray, begins: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the concatenated ids of K words, and the number of ids of each, [K]."""
        found = [group.find(integers, begins, lengths) for group in self._groups]
        unknown = sum(len(each.numbers) - np.count_nonzero(each.numbers) for each in found)
        if self.count + unknown > self._max_words or self._num_ids > _IDS * self._max_words:
            self._forget()
            found = [group.find(integers, begins, lengths) for group in self._groups]
        long = np.flatnonzero(lengths > LONGEST)
        ends = begins[long] + lengths[long]
        spans = np.zeros(len(begins), np.int64)
        try:
            spans[long] = self._learn(
                found, [data[a:b] for a, b in zip(begins[long], ends, strict=True)]
            )
        except BaseException:
            self._forget()  # the error may leave words without ids
            raise
        for each in found:
            spans[each.places] = np.take(each.group.spans, each.numbers)
        starts, sizes = spans >> _SIZE_BITS, spans & (1 << _SIZE_BITS) - 1
        return np.take(self._ids, ranges(starts, sizes)), sizes

    def _learn(self, found: Sequence[_Found], long: Sequence[bytes]) -> np.ndarray:
        """Splits unknown words, caches all but long ones, and returns the spans of long words."""
        new = []
        for group, _, keys, numbers in found:
            unknown = np.flatnonzero(numbers == 0)
            before = group.table.count
            numbers[unknown] = group.table.add(keys[unknown])
            new.append(group.table.last(group.table.count - before).astype("<u8"))
        lengths = [(keys.view(np.uint8) != _NO_BYTE[0]).sum(axis=1) for keys in new]
        lengths.append(np.fromiter(map(len, long), np.int64, len(long)))
        counts = np.cumsum(list(map(len, lengths)))
        if not counts[-1]:
            return lengths[-1]
        words = b"".join(keys.tobytes() for keys in new).translate(None, _NO_BYTE)
        values, bounds = self._spell(words + b"".join(long), np.concatenate(lengths))
        start, end = self._num_ids, self._num_ids + len(values)
        if end > len(self._ids):
            self._ids = np.concatenate([self._ids[:start], np.zeros(2 * end - start, np.int32)])
        self._ids[start:end] = values
        self._num_ids += int(bounds[counts[-2]])
        spans = np.split(start + bounds[:-1] << _SIZE_BITS | np.diff(bounds), counts[:-1])
        for (group, *_), each in zip(found, spans, strict=False):
            group.spans[group.table.count + 1 - len(each) : group.table.count + 1] = each
        return spans[-1]


def cut_at_signs(data: bytes, text_bounds: np.ndarray, lower_case: bool) -> np.ndarray:
    """Returns where texts are cut at white space and signs; see `Cut`.

    A text is cut

    * before a blank or a line feed that is the first or the last character of a run of white space;
    * between an ASCII letter or digit and an ASCII sign, in either order, but not after an
      apostrophe, because "'s" is one word of GPT-2's pattern. If words are lower-cased, there is no
      such cut in texts with a capital sigma: its lower case is "ς" or "σ" by the letters around it,
      even across signs.

    "Don't stop, Ada!" has the words "Don", "'t", " stop", ",", " Ada", "!".
    """
    flags = np.frombuffer(data.translate(_FLAGS), np.uint8)
    shared = flags[:-1] & flags[1:] >> _NEXT
    if lower_case:
        for text in _texts_with(_SIGMA, data, text_bounds):
            shared[text_bounds[text] : text_bounds[text + 1]] &= _TEXT | _SPACE
    before = shared >= _SPACE
    begins = text_bounds[(text_bounds > 0) & (text_bounds < len(data))]
    before[begins - 1] = False
    cuts = np.zeros(len(data), bool)
    cuts[1:] = shared & _SPACE - 1 != 0
    cuts[:-1] |= before
    return cuts


def cut_at_blanks(data: bytes, text_bounds: np.ndarray, uncut: bytes) -> np.ndarray:
    """Returns where texts are cut before each blank; see `Cut`.

    Args:
      data: see `Cut`.
      text_bounds: see `Cut`.
      uncut: texts with this character, which has several bytes, are not cut.
    """
    cuts = np.frombuffer(data, np.uint8) == ord(" ")
    for text in _texts_with(uncut, data, text_bounds):
        cuts[text_bounds[text] : text_bounds[text + 1]] = False
    return cuts


def _texts_with(character: bytes, data: bytes, text_bounds: np.ndarray) -> np.ndarray:
    """Returns the indices of the texts with a character of several bytes."""
    values = np.frombuffer(data, np.uint8)
    (places,) = np.nonzero(values[: len(data) - len(character) + 1] == character[0])
    for i, byte in enumerate(character):  # faster than a search for all bytes
        places = places[values[places + i] == byte]
    return np.unique(np.searchsorted(text_bounds, places, side="right") - 1)


def _integers(data: bytes) -> np.ndarray:
    """Returns the eight bytes from each position of the padded data, as integers."""
    padded = data + _NO_BYTE * LONGEST
    integers: np.ndarray = np.ndarray((len(padded) - _BYTES,), "<u8", padded, 0, (1,))
    return integers


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the concatenated ranges `start` to `start + size`."""
    if not sizes.all():
        (some,) = np.nonzero(sizes)
        starts, sizes = starts[some], sizes[some]
    ends = np.cumsum(sizes)
    # A cumulative sum of steps is several times faster than `np.repeat`.
    steps = np.ones(ends[-1] if len(ends) else 0, np.int64)
    steps[:1] = starts[:1]
    steps[ends[:-1]] = starts[1:] - (starts + sizes)[:-1] + 1
    return np.cumsum(steps)
