"""The tokenizer of ELMo: whole words, each of which is read as 50 ids of characters.

A word becomes a begin marker, its UTF-8 bytes, an end marker, and padding up to 50 ids (Peters et
al., 2018, and its release). At most 48 bytes are kept, so a character may be cut. The marks of a
sentence are words of one special id:

  word       260 ... ids
  cat        259 100  98 117 260 261 ... 261
  <S>        259 257 260 261 ... 261
  </S>       259 258 260 261 ... 261

All ids are one above those in the release's training code, and 0 means that there is no word, as in
the release's inference code.

The tokenizer separates words by white space, as `str.split` does. Each word has two forms: the ids
of its characters, which an encoder reads, and its id in a vocabulary, which a language model
predicts. A word that the vocabulary lacks is `<UNK>` as a target, but has its characters as input.
With `split_punctuation`, punctuation signs and Chinese characters are separate words, as in BERT's
basic tokenizer, for text that is not tokenized.

The vocabulary is a text file of one word per line: `<S>`, `</S>` and `<UNK>`, then words by
descending count, which the sampled softmax assumes. A vocabulary of a release may have the three
marks on any lines, and the line `!!!MAXTERMID`, which is not a word: it is skipped and has no id,
as in the release's reader (bilm-tf, `bilm/data.py`). Text that spells a mark, such as a literal
"</S>", is an unknown word with the characters of the text.

Shapes: N texts, K words, C = `WIDTH` characters of a word, T words of a row; a ragged dimension is
written None.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import override

from official.tokenizers import file_formats, offsets, utf8, wordpiece
from official.tokenizers.base import Splitter, Tokenizer, chunks, strings
from official.tokenizers.file_formats import find_specials, switch
from official.tokenizers.offsets import WHITE_SPACE
from official.utils.errors import UserError
from official.utils.paths import AnyPath

WIDTH = 50
MAX_BYTES = WIDTH - 2
# The ids: bytes are 1 to 256.
SENTENCE_BEGIN, SENTENCE_END, BEGIN, END, PADDING = 257, 258, 259, 260, 261
SPECIALS = ("<S>", "</S>", "<UNK>")
_NO_WORD = "!!!MAXTERMID"
_ROLES = {
    "pad_token": ("</S>",),
    "unk_token": ("<UNK>",),
    "cls_token": ("<S>",),
    "sep_token": ("</S>",),
    "mask_token": (),
}
_SPLITS = "split_punctuation"


def mark(sentence_mark: int) -> np.ndarray:
    """Returns the ids of `<S>` or `</S>`, int32 [C], from `SENTENCE_BEGIN` or `SENTENCE_END`."""
    ids = np.full(WIDTH, PADDING, np.int32)
    ids[:3] = BEGIN, sentence_mark, END
    return ids


def of_words(words: tf.Tensor) -> tf.Tensor:
    """Returns the ids of words.

    Args:
      words: UTF-8 strings [...].

    Returns:
      int32 [..., C]. An empty word is a begin, an end, and padding.
    """
    data = tf.io.decode_raw(words, tf.uint8, fixed_length=MAX_BYTES)  # [..., MAX_BYTES]
    return _framed(data, tf.minimum(tf.strings.length(words), MAX_BYTES))


def of_bytes(data: tf.Tensor, lengths: tf.RaggedTensor) -> tf.Tensor:
    """Returns the ids of words that are given as the bytes of a whole row.

    Args:
      data: strings [N], the bytes of the words of each row, one word after the other.
      lengths: int32 [N, None], the number of bytes of each word, at most `MAX_BYTES`.

    Returns:
      int32 [K, C], the ids of the words of all rows.
    """
    flat = tf.io.decode_raw(tf.strings.reduce_join(data, 0), tf.uint8)
    words = tf.RaggedTensor.from_row_lengths(flat, lengths.flat_values, validate=False)
    return _framed(words.to_tensor(shape=[None, MAX_BYTES]), lengths.flat_values)


def in_sentences(words: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns the ids of sentences with their marks, as the encoder reads them.

    Args:
      words: UTF-8 strings [N, None].

    Returns:
      int32 [N, None, C]: `<S>`, the words, and `</S>` of each sentence.
    """
    counts = words.row_lengths()
    ends = [
        tf.RaggedTensor.from_row_lengths(
            tf.repeat(mark(which)[None], words.nrows(), axis=0), tf.ones_like(counts)
        )
        for which in (SENTENCE_BEGIN, SENTENCE_END)
    ]
    ids = words.with_flat_values(of_words(words.flat_values))
    return tf.concat([ends[0], ids, ends[1]], axis=1)


def _framed(data: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the ids of words from the first `lengths` of their bytes [..., MAX_BYTES]."""
    columns = tf.range(MAX_BYTES)
    lengths = lengths[..., None]
    inside = tf.where(columns < lengths, tf.cast(data, tf.int32) + 1, PADDING)
    inside = tf.where(columns == lengths, END, inside)
    first = tf.fill(tf.shape(lengths), BEGIN)
    last = tf.where(lengths == MAX_BYTES, END, PADDING)
    return tf.concat([first, inside, last], axis=-1)


def read_words(path: AnyPath) -> list[str]:
    """Reads the words of a vocabulary in the order of their ids.

    Raises:
      UserError: a line is not UTF-8.
    """
    return [piece for piece in file_formats.read_pieces(path) if piece != _NO_WORD]


def split_words(texts: tf.Tensor, split_punctuation: bool = False) -> tf.RaggedTensor:
    """Splits strings [N] into words, string [N, None]; bytes that are not UTF-8 become U+FFFD."""
    texts = utf8.valid(texts)
    if split_punctuation:
        texts = wordpiece.space_words(texts)
    return tf.strings.split(tf.strings.regex_replace(texts, f"{WHITE_SPACE}+", " "))


class CharacterSplitter(Splitter):
    """Splits text into words, and looks up their ids."""

    def __init__(self, pieces: Sequence[str], unk_id: int, split_punctuation: bool):
        super().__init__()
        self._split_punctuation = split_punctuation
        self._numbers = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(pieces, tf.string), tf.range(len(pieces), dtype=tf.int32)
            ),
            default_value=unk_id,
        )

    def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of string [N], string [N, None]."""
        return split_words(texts, self._split_punctuation)

    def character_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns sentences as characters: `word_characters.in_sentences` of string [N]."""
        return in_sentences(self.words(texts))

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None]."""
        return self.numbers(self.words(texts))

    def numbers(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of words, string [N, None]: int32 [N, None]."""
        return words.with_values(self._numbers.lookup(words.values))

    @override
    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """See `Splitter`; a word has the offsets of its characters."""
        characters = tf.strings.unicode_split(texts, "UTF-8")
        values, rows = characters.values, offsets.rows_of(characters)
        if self._split_punctuation:
            spaced = wordpiece.space_words(values)
            alone = tf.strings.regex_full_match(spaced, "(?s) . ")
        else:
            alone = tf.zeros_like(rows, tf.bool)
        inside = ~tf.strings.regex_full_match(values, WHITE_SPACE)
        parted = alone[1:] | alone[:-1] | ~inside[:-1] | (rows[1:] != rows[:-1])
        first = inside & tf.concat([[True], parted], 0)[: tf.size(values)]  # [C] of all texts
        words = offsets.words_of(characters, inside, first)
        return offsets.Tokens(self.numbers(words.texts), words.starts, words.ends)


class Characters(Tokenizer):
    """A tokenizer of whole words, with the characters of each word.

    Attributes:
      split_punctuation: whether punctuation signs and Chinese characters are separate words.
    """

    FILE = "words.txt"
    reads_words = True

    def __init__(
        self,
        pieces: Sequence[str],
        split_punctuation: bool = False,
        settings: dict[str, Any] | None = None,
        source: str = "the vocabulary",
    ):
        """Makes a tokenizer from a list of words.

        Args:
          pieces: the words in the order of their ids, with `<S>`, `</S>` and `<UNK>` among them.
          split_punctuation: see the class.
          settings: other settings of the settings file.
          source: the name of the vocabulary in messages.

        Raises:
          UserError: the vocabulary is empty, has an empty or duplicate word, or lacks one of the
            three special tokens.
        """
        file_formats.check_pieces(pieces, source)
        if lacking := [mark for mark in SPECIALS if mark not in pieces]:
            raise UserError(
                f"{source} lacks {' '.join(lacking)}: a vocabulary of words has "
                f"{' '.join(SPECIALS)}, one a line: put them at its beginning"
            )
        self.split_punctuation = split_punctuation
        unknown = pieces.index("<UNK>")
        splitter = CharacterSplitter(pieces, unknown, split_punctuation)
        specials = find_specials(pieces, {}, source, _ROLES)
        super().__init__(pieces, specials, splitter, settings or {})

    @classmethod
    def read(cls, path: AnyPath, settings: dict[str, Any]) -> "Characters":
        """Reads a tokenizer from a `words.txt`, with one word per line, and its settings.

        Raises:
          UserError: see the constructor; or a line is not UTF-8, or a setting names another special
            token.
        """
        for key, (*names,) in _ROLES.items():
            if settings.get(key) not in (None, *names):
                raise UserError(
                    f"{path.with_name(file_formats.SETTINGS_FILE)}: {key} is {settings[key]!r}, "
                    f"but {path.name} has only {' '.join(SPECIALS)}: remove {key}"
                )
        splits = bool(switch(settings, _SPLITS, False))
        return cls(read_words(path), splits, settings, str(path))

    @override
    def encode_words(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        values, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        spelled = [np.zeros(0, object)]
        with tf.device("/CPU:0"):
            for chunk in chunks(texts):
                words = self._splitter.words(strings(chunk))
                ids = self.numbers(words)
                values.append(ids.values.numpy())
                lengths.append(ids.row_lengths().numpy())
                spelled.append(words.values.numpy())
        return np.concatenate(values), np.cumsum(np.concatenate(lengths)), np.concatenate(spelled)

    @override
    def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._splitter.words(texts)

    @override
    def numbers(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        return self._splitter.allowed(self._splitter.numbers(words))

    def character_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns sentences as characters, in a graph or eagerly.

        Args:
          texts: UTF-8 strings [N], a sentence each.

        Returns:
          int32 [N, None, 50], with `<S>` before and `</S>` after its words.
        """
        return self._splitter.character_ids(texts)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the words of ids with blanks between them."""
        return " ".join(self.pieces[i] for i in ids)

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        return offsets.joined(tf.gather(tf.constant(self.pieces), ids), " ")

    def _spelled(self, piece: str) -> bytes:
        return f" {piece}".encode()

    def _begins_word(self, piece: str, rule: str) -> bool:
        return True

    def _vocabulary_files(self) -> dict[str, bytes]:
        return {self.FILE: file_formats.pieces_file(self.pieces)}

    def _decides(self) -> dict[str, Any]:
        return {_SPLITS: self.split_punctuation}

    def _for_others(self) -> dict[str, Any]:
        return {}
