"""The ids of the words of Python strings, with the ids of earlier words kept.

Most words of a text have occurred before. Their ids are looked up, and only new words are spelled.
The words are found by Python's regular expressions, whose classes of letters and digits are those
of `official.tokenizers.byte_words`: the words are the same.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from official.tokenizers import byte_words
from official.tokenizers.text_tensors import strings

# Of the words that are kept and their ids, before they are forgotten.
MAX_BYTES = 64 << 20
_ENTRY = 100  # bytes of a dictionary for an item
_BMP_END, _END = 0xFFFF, 0x10FFFF
_SURROGATES = 0xD800, 0xE000


class WordIds:
    """The ids of words, of which at most some `max_bytes` are kept."""

    def __init__(self, spell: Callable[[tf.Tensor], tf.RaggedTensor], max_bytes: int = MAX_BYTES):
        """Starts without any word.

        Args:
          spell: returns the ids of words, string [W]: int32 [W, None].
          max_bytes: the memory for words and their ids. When it is full, all are forgotten.
        """
        self._spell, self._max_bytes = spell, max_bytes
        self._known: dict[str, bytes] = {}
        self._size = 0

    def split(self, texts: Sequence[str]) -> tf.RaggedTensor:
        """Returns the ids of N texts, int32 [N, None]."""
        known = self._known
        rows, words_of = [], {}
        for number, words in enumerate(map(find, texts)):
            try:
                rows.append(b"".join(map(known.__getitem__, words)))
            except KeyError:
                rows.append(b"")
                words_of[number] = words
        if words_of:
            known = self._learn(words_of.values())
        for number, words in words_of.items():
            rows[number] = b"".join(map(known.__getitem__, words))
        lengths = np.array([len(row) for row in rows], np.int64) // np.dtype(np.int32).itemsize
        values = np.frombuffer(b"".join(rows), np.int32)
        return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)

    def _learn(self, words_of: Iterable[Sequence[str]]) -> dict[str, bytes]:
        """Spells the words that are new, and returns the ids of all words of `words_of`."""
        words = dict.fromkeys(word for words in words_of for word in words)
        if self._size > self._max_bytes:
            self._known, self._size = {}, 0
        known = self._known
        new = [word for word in words if word not in known]
        spelled = self._spell(tf.strings.unicode_transcode(strings(new), "UTF-8", "UTF-8"))
        values, splits = spelled.values.numpy(), spelled.row_splits.numpy()
        for word, start, end in zip(new, splits[:-1], splits[1:], strict=True):
            known[word] = ids = values[start:end].tobytes()
            self._size += sys.getsizeof(word) + sys.getsizeof(ids) + _ENTRY
        return known


def find(text: str) -> list[str]:
    """Returns the words of a text by GPT-2's pattern; joined they are the text."""
    astral = not text.isascii() and _ASTRAL.search(text)
    return _pattern(_END if astral else _BMP_END).findall(text)


_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


@functools.cache
def _pattern(last: int) -> re.Pattern:
    """Returns the pattern for texts of characters up to `last`.

    Python searches classes up to U+FFFF at once, and the others range by range: five times slower.
    """
    classes = byte_words.SPACE, byte_words.LETTER, byte_words.DIGIT
    space, letter, digit = (_ranges(each, last) for each in classes)
    return re.compile(
        rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{digit}]+| ?[^{space}{letter}{digit}]+"
        rf"|[{space}]+(?![^{space}])|[{space}]+"
    )


def _ranges(characters: str, last: int) -> str:
    """Returns a class of TensorFlow's regular expressions, up to `last`, as one of Python's.

    The Unicode version of Python is another one in each release.
    """
    codes = np.r_[0 : _SURROGATES[0], _SURROGATES[1] : last + 1].astype("<u4")
    text = codes.tobytes().decode("utf-32-le")
    with tf.device("/CPU:0"):
        kept = tf.strings.regex_replace(text, f"[^{characters}]+", "").numpy().decode()
    codes = np.frombuffer(kept.encode("utf-32-le"), "<u4").astype(np.int64)
    breaks = np.flatnonzero(np.diff(codes) > 1)
    starts, ends = codes[np.r_[0, breaks + 1]], codes[np.r_[breaks, -1]]
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in zip(starts, ends, strict=True))
