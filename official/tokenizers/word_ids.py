"""The ids of texts, each of whose distinct words is split once.

Most words of a text have occurred before. Some passes over the bytes of many texts cut them into
words, the tokenizer splits those that are new, and the ids of the others are looked up. So the
rules of a tokenizer stay in one place: the function that splits any text.

Here a word is a part of a text that tokenizers split as they do inside the text. A text is cut

* before a blank or a line feed that is the first or the last character of a run of white space;
* between an ASCII letter or digit and an ASCII sign, in either order, but not after an apostrophe,
  because "'s" is one word of GPT-2's pattern. In texts with a capital sigma there is no such cut:
  its lower case is "ς" or "σ" by the letters around it, even across signs.

"Don't stop, Ada!" has the words "Don", "'t", " stop", ",", " Ada", "!". Text without blanks, such
as Chinese, has few cuts. Long words are split wherever they occur.

Shapes: N texts, Y bytes of all texts, W words of all texts, K words; a ragged dimension is written
None.
"""

import string
import threading
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from official.tokenizers.integer_table import IntegerTable

# Words that are kept before all are forgotten. They and their ids take at most 64 MiB.
MAX_WORDS = 1 << 19
_IDS = 16  # of a word, on average, before all are forgotten
_FEW, _BLOCK = 1 << 12, 1 << 17  # words that are looked up at once
# A key has the length of a word and its bytes.
_COLUMNS, _BYTES = 4, 8
_LONGEST = _COLUMNS * _BYTES - 1
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_BYTES + 1)], np.uint64)


def _flags(*members: tuple[int, str]) -> bytes:
    """Returns the flags of each of 256 bytes, from pairs of a flag and the bytes that have it."""
    table = np.zeros(256, np.uint8)
    for flag, characters in members:
        table[list(characters.encode("latin-1"))] |= flag
    return table.tobytes()


_WORD, _SIGN, _TEXT = 1, 2, 4
_ALPHANUMERIC = string.ascii_letters + string.digits
_VISIBLE = "".join(set(map(chr, range(128))) - set(string.whitespace))
# The first bytes of other characters. White space outside ASCII begins with C2, E1, E2 or E3.
_OTHER = "".join(map(chr, {*range(0xC3, 0xF5)} - {0xE1, 0xE2, 0xE3}))
# A text is cut between two bytes that share a flag.
_BEFORE = _flags(
    (_WORD, _ALPHANUMERIC), (_SIGN, string.punctuation.replace("'", "")), (_TEXT, _VISIBLE)
)
_AFTER = _flags((_WORD, string.punctuation), (_SIGN, _ALPHANUMERIC), (_TEXT, " \n"))
# It is also cut before a blank if these come after it.
_NO_SPACE = _flags((_TEXT, _VISIBLE + _OTHER))
_SIGMA = "Σ".encode()


class WordIds:
    """The ids of texts by their words. Threads may share it: one of them splits at a time."""

    def __init__(
        self,
        spell: Callable[[Sequence[bytes]], tuple[np.ndarray, np.ndarray]],
        max_words: int = MAX_WORDS,
    ):
        """Starts without any word.

        Args:
          spell: returns the ids of any texts, int32, and their row splits, [N + 1].
          max_words: the number of words that are kept. When there would be more, or there are more
            than 16 ids for each, all are forgotten.
        """
        self._spell = spell
        self._max_words = max_words
        self._block = min(_BLOCK, max_words)
        self._mutex = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._words = IntegerTable(_COLUMNS, self._max_words)
        # The ids of word i are `ids[bounds[i]:bounds[i + 1]]`. Words of a block that are not kept
        # are after the others.
        self._bounds = np.zeros(self._max_words + self._block + 2, np.int64)
        self._ids = np.zeros(self._max_words, np.int32)

    def split(self, texts: Sequence[bytes]) -> tf.RaggedTensor:
        """Returns the ids of N texts in UTF-8, int32 [N, None]."""
        data = b"".join(texts)
        text_bounds = np.cumsum([0, *map(len, texts)])
        begins, rows = _cut(data, text_bounds)
        lengths = np.diff(begins, append=len(data))
        keys_of = _Keys(data)
        values, sizes = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        with self._mutex:
            first = 0
            while first < len(begins):
                # About as many as are known, so that most of them are.
                count = min(max(self._words.count, _FEW), self._block)
                block = slice(first, first + count)
                ids, counts = self._ids_of(data, keys_of, begins[block], lengths[block])
                values.append(ids)
                sizes.append(counts)
                first += count
        bounds = np.cumsum(np.concatenate(sizes))
        return tf.RaggedTensor.from_row_splits(np.concatenate(values), bounds[rows], validate=False)

    def _ids_of(
        self, data: bytes, keys_of: "_Keys", begins: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of K words, one after the other, and the number of ids of each, [K]."""
        many = self._words.count + len(begins) > self._max_words
        if many or len(self._ids) > _IDS * self._max_words:
            self._forget()
        keys = keys_of(begins, lengths)
        numbers = self._words.find(keys)
        unknown = np.flatnonzero(numbers == 0)
        if len(unknown):
            # Long ones come last.
            unknown = unknown[np.argsort(lengths[unknown] > _LONGEST, kind="stable")]
            firsts, ends = begins[unknown], begins[unknown] + lengths[unknown]
            spans = zip(firsts.tolist(), ends.tolist(), strict=True)
            index: dict[bytes, int] = {}
            new = [index.setdefault(data[first:end], len(index)) for first, end in spans]
            numbers[unknown] = np.array(new) + self._words.count + 1
            example = np.zeros(len(index), np.int64)
            example[new] = unknown
            short = example[lengths[example] <= _LONGEST]
            self._learn(list(index), keys[short])
        starts = np.take(self._bounds, numbers)
        sizes = np.take(self._bounds, numbers + 1) - starts
        ends = np.cumsum(sizes)
        places = np.repeat(starts - ends + sizes, sizes) + np.arange(ends[-1])
        return np.take(self._ids, places), sizes

    def _learn(self, words: list[bytes], keys: np.ndarray) -> None:
        """Splits new words. Those that have keys are kept; the others are after them."""
        values, bounds = self._spell(words)
        number = self._words.count + 1
        start = self._bounds[number]
        end = start + len(values)
        if end > len(self._ids):
            self._ids = np.concatenate([self._ids[:start], np.zeros(2 * end - start, np.int32)])
        self._ids[start:end] = values
        self._bounds[number : number + len(bounds)] = start + bounds
        self._words.add(keys)


def _cut(data: bytes, text_bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cuts texts into words.

    Args:
      data: the Y bytes of all texts.
      text_bounds: where each text begins, and Y, int64 [N + 1].

    Returns:
      Where each word begins, int64 [W]; and the row splits of the texts among the words, [N + 1].
    """
    begins_text = np.unique(text_bounds[text_bounds < len(data)])
    before, after, no_space = (
        np.frombuffer(data.translate(table), np.uint8) for table in (_BEFORE, _AFTER, _NO_SPACE)
    )
    last = after[:-1] & no_space[1:]
    last[begins_text[1:] - 1] = 0
    cuts = np.zeros(len(data), bool)
    cuts[1:] = before[:-1] & after[1:] & (_TEXT if _SIGMA in data else _TEXT | _SIGN | _WORD)
    cuts[:-1] |= last != 0
    cuts[begins_text] = True
    begins = np.flatnonzero(cuts)
    return begins, np.searchsorted(begins, text_bounds)


class _Keys:
    """The keys of words: equal keys of words of up to `_LONGEST` bytes are those of equal words."""

    def __init__(self, data: bytes):
        # The eight bytes from each byte of the data, from one byte before the first.
        self._integers: np.ndarray = np.ndarray(
            (len(data) + _LONGEST - _BYTES + 2,), "<u8", b"\0" + data + bytes(_LONGEST), 0, (1,)
        )

    def __call__(self, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Returns the keys of the words with these places in the data, uint64 [K, 4]."""
        keys = np.zeros((len(begins), _COLUMNS), np.uint64)
        for column in range(_COLUMNS):
            sizes = lengths + 1 - column * _BYTES  # with the byte before the word
            rows = np.flatnonzero(sizes > 0) if column else slice(None)
            masks = _MASKS[np.minimum(sizes[rows], _BYTES)]
            keys[rows, column] = self._integers[begins[rows] + column * _BYTES] & masks
        # The length takes the place of the byte before the word.
        keys[:, 0] = keys[:, 0] & ~_MASKS[1] | np.minimum(lengths, 255).astype(np.uint64)
        return keys
