"""The steps before and after SentencePiece: normalization of text, and split numbers with commas.

`TextRules` normalizes blanks, quotes, accents and case before SentencePiece reads a text.
`DigitCommas` splits pieces such as "▁1990," into the number, which is encoded again, and the comma.
These are the steps of the releases of ALBERT (`tokenization.preprocess_text`, `encode_pieces`) and
XLNet (`prepro_utils`), and of the tokenizers of transformers for both. Each rule has a setting. The
rules of `TextRules` are applied in the order of its attributes.

Shapes: N texts, C characters of all texts, V pieces of the vocabulary, S pieces that are split, K
tokens of all texts before and P after the split; a ragged dimension is written None.
"""

import dataclasses
import string
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from official.tokenizers import offsets
from official.tokenizers.composition import composed, composed_by_character
from official.tokenizers.offsets import WHITE_SPACE
from official.tokenizers.word_starts import BLANK

# An empty table of replacements: the size of its trie, the trie and the texts. SentencePiece logs a
# line whenever it loads a model without a table.
NO_REPLACEMENTS = struct.pack("<I", 1024) + bytes(1024) + b"\0"
# The combining marks of Unicode 14.0.0: characters whose canonical combining class is not 0.
# TensorFlow's regular expressions do not have this class, and the tables of Python's `unicodedata`
# depend on the version of Python, while a tokenizer must give the same ids in all versions.
_RANGES = """
300-34e 350-36f 483-487 591-5bd 5bf 5c1-5c2 5c4-5c5 5c7 610-61a 64b-65f 670 6d6-6dc 6df-6e4
6e7-6e8 6ea-6ed 711 730-74a 7eb-7f3 7fd 816-819 81b-823 825-827 829-82d 859-85b 898-89f 8ca-8e1
8e3-8ff 93c 94d 951-954 9bc 9cd 9fe a3c a4d abc acd b3c b4d bcd c3c c4d c55-c56 cbc ccd d3b-d3c
d4d dca e38-e3a e48-e4b eb8-eba ec8-ecb f18-f19 f35 f37 f39 f71-f72 f74 f7a-f7d f80 f82-f84
f86-f87 fc6 1037 1039-103a 108d 135d-135f 1714-1715 1734 17d2 17dd 18a9 1939-193b 1a17-1a18 1a60
1a75-1a7c 1a7f 1ab0-1abd 1abf-1ace 1b34 1b44 1b6b-1b73 1baa-1bab 1be6 1bf2-1bf3 1c37 1cd0-1cd2
1cd4-1ce0 1ce2-1ce8 1ced 1cf4 1cf8-1cf9 1dc0-1dff 20d0-20dc 20e1 20e5-20f0 2cef-2cf1 2d7f
2de0-2dff 302a-302f 3099-309a a66f a674-a67d a69e-a69f a6f0-a6f1 a806 a82c a8c4 a8e0-a8f1
a92b-a92d a953 a9b3 a9c0 aab0 aab2-aab4 aab7-aab8 aabe-aabf aac1 aaf6 abed fb1e fe20-fe2f 101fd
102e0 10376-1037a 10a0d 10a0f 10a38-10a3a 10a3f 10ae5-10ae6 10d24-10d27 10eab-10eac 10f46-10f50
10f82-10f85 11046 11070 1107f 110b9-110ba 11100-11102 11133-11134 11173 111c0 111ca 11235-11236
112e9-112ea 1133b-1133c 1134d 11366-1136c 11370-11374 11442 11446 1145e 114c2-114c3 115bf-115c0
1163f 116b6-116b7 1172b 11839-1183a 1193d-1193e 11943 119e0 11a34 11a47 11a99 11c3f 11d42
11d44-11d45 11d97 16af0-16af4 16b30-16b36 16ff0-16ff1 1bc9e 1d165-1d169 1d16d-1d172 1d17b-1d182
1d185-1d18b 1d1aa-1d1ad 1d242-1d244 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a
1e130-1e136 1e2ae 1e2ec-1e2ef 1e8d0-1e8d6 1e944-1e94a
"""
_CLASS = ("-".join(rf"\x{{{code}}}" for code in part.split("-")) for part in _RANGES.split())
COMBINING = f"[{''.join(_CLASS)}]"
_NONCHARACTER = "\uffff"
_SPACE = r"[\t-\r\x{85}\pZ]"  # the white space of Unicode


@dataclasses.dataclass(frozen=True)
class TextRules:
    """The rules for one tokenizer.

    Attributes:
      remove_space: whether each run of blanks becomes one space, and blanks at the ends of a text
        are removed.
      replace_quotes: whether two grave accents or two apostrophes become a straight double quote.
      keep_accents: False = the text is decomposed (NFKD), and combining marks are removed.
      lower_case: whether letters become lower case.
      remove_marks: whether all marks are removed with the accents, vowel signs too, as by the
        `tokenizers` package, and not only the combining ones.
      blanks: characters that become a blank.
      compose: whether characters are composed (NFC) and white space is replaced as in the files of
        `DebertaV2Tokenizer` of transformers 5: a run of it, a tab or a line break becomes a blank,
        and those at the end of a text are removed.
    """

    remove_space: bool = False
    replace_quotes: bool = False
    keep_accents: bool = True
    lower_case: bool = False
    remove_marks: bool = False
    blanks: str = ""
    compose: bool = False

    @property
    def strips(self) -> bool:
        """Whether blanks at an end of a text are removed."""
        return self.remove_space or self.compose

    @property
    def plain(self) -> bytes:
        """The visible ASCII characters, and the blank, that no rule replaces in a word.

        Capital letters are none of them if they are lower-cased.
        """
        changed = {*self.blanks, *("`'" if self.replace_quotes else "")}
        changed |= {*(string.ascii_uppercase if self.lower_case else "")}
        return "".join(c for c in map(chr, range(0x20, 0x7F)) if c not in changed).encode()

    @property
    def _marks(self) -> str:
        return r"\pM" if self.remove_marks else COMBINING

    def _with_blanks(self, texts: tf.Tensor) -> tf.Tensor:
        if not self.blanks:
            return texts
        codes = "".join(rf"\x{{{ord(character):x}}}" for character in self.blanks)
        return tf.strings.regex_replace(texts, f"[{codes}]", " ")

    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes strings [N]."""
        texts = self._with_blanks(texts)
        if self.remove_space:
            texts = tf.strings.regex_replace(texts, f"{WHITE_SPACE}+", " ")
            texts = tf.strings.regex_replace(texts, "^ | $", "")
        if self.replace_quotes:
            texts = tf.strings.regex_replace(texts, "``|''", '"')
        if self.compose:
            texts = tf.strings.regex_replace(texts, rf"{_SPACE}{{2,}}|[\t\n\r]", " ")
            texts = tf.strings.regex_replace(texts, f"{_SPACE}+$", "")
        texts = self._apply_to_letters(texts)
        return composed(texts) if self.compose else texts

    def apply_by_character(self, characters: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Normalizes texts that are split into characters, as `apply` does.

        A text is normalized character by character, except for the form of a Greek sigma, which
        does not change the number of bytes.

        Args:
          characters: string [N, None].

        Returns:
          The normalized form of each character, string [N, None], which may be empty; and bool [C],
          whether a character belongs to the one before it (a combining mark that is removed, or the
          second of two quotes).
        """
        given = characters.values  # [C]
        runs = _Runs(characters)
        second = tf.zeros_like(given, tf.bool)
        values = self._with_blanks(given)
        if self.remove_space:
            blank = tf.strings.regex_full_match(given, WHITE_SPACE)
            space = blank & (runs.offset == 0) & ~runs.at_edge
            values = tf.where(blank, tf.where(space, " ", ""), values)
        if self.replace_quotes:
            quote = tf.equal(given, "`") | tf.equal(given, "'")
            first = quote & (runs.offset % 2 == 0) & (runs.offset + 1 < runs.length)
            second = quote & (runs.offset % 2 == 1)
            values = tf.where(first, '"', tf.where(second, "", values))
        if self.compose:
            runs = _Runs(characters, _SPACE)
            blank = tf.strings.regex_full_match(given, _SPACE)
            alone = tf.equal(runs.length, 1) & ~tf.strings.regex_full_match(given, r"[\t\n\r]")
            gone = blank & (runs.at_end | (runs.offset > 0))
            values = tf.where(gone, "", tf.where(blank & ~alone, " ", values))
        values = self._apply_to_letters(values)
        if not self.keep_accents:
            second |= tf.strings.regex_full_match(given, self._marks)
        if self.compose:
            cleaned, joined = composed_by_character(characters.with_values(values))
            return cleaned, second | joined
        return characters.with_values(values), second

    def _apply_to_letters(self, texts: tf.Tensor) -> tf.Tensor:
        if not self.keep_accents:
            texts = tf_text.normalize_utf8(texts, "NFKD")
            texts = tf.strings.regex_replace(texts, f"{self._marks}+", "")
        if self.lower_case:
            # TensorFlow cuts text at NUL, so NUL is temporarily replaced by a noncharacter.
            texts = tf.strings.regex_replace(texts, r"\x{0}", _NONCHARACTER)
            texts = tf.strings.lower(texts, encoding="utf-8")
            texts = tf.strings.regex_replace(texts, _NONCHARACTER, "\0")
        return texts


class _Runs:
    """The runs of equal characters in texts; all blanks are equal.

    Attributes:
      offset: int32 [C], the position of a character in its run, from 0.
      length: int32 [C], the length of its run.
      at_end: bool [C], whether the run ends its text.
      at_edge: bool [C], whether the run begins or ends its text.
    """

    def __init__(self, characters: tf.RaggedTensor, blanks: str = WHITE_SPACE):
        values = tf.strings.regex_replace(characters.values, blanks, " ")
        rows = offsets.rows_of(characters)
        changes = (values[1:] != values[:-1]) | (rows[1:] != rows[:-1])
        begins = tf.concat([tf.ones_like(values[:1], tf.bool), changes], 0)  # [C]
        run = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        start = tf.cast(tf.reshape(tf.where(begins), [-1]), tf.int32)  # of each run
        count = tf.size(values)
        sizes = tf.concat([start[1:], tf.reshape(count, [1])[: tf.size(start)]], 0) - start
        self.length = tf.gather(sizes, run)
        first = tf.gather(start, run)
        self.offset = tf.range(count) - first
        row_starts = tf.cast(tf.gather(characters.row_starts(), rows), tf.int32)
        row_ends = tf.cast(tf.gather(characters.row_limits(), rows), tf.int32)
        self.at_end = first + self.length == row_ends
        self.at_edge = (first == row_starts) | self.at_end


class _Parts(NamedTuple):
    """The parts of a piece.

    Attributes:
      ids: the ids of the parts.
      rest: the number of bytes from the end of each part to the end of the piece.
      text: the text of the piece in bytes; empty if the parts do not spell the same text.
    """

    ids: list[int]
    rest: list[int]
    text: bytes


class DigitCommas:
    """The pieces of a vocabulary that end in a digit and a comma, and their parts.

    The parts of a piece depend only on the piece, so they are computed once, as a table.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        encode: Callable[[list[str]], list[list[int]]],
        ids_of: Callable[[list[str]], list[int]],
        unk_id: int,
    ):
        """Makes the table.

        Args:
          pieces: the vocabulary.
          encode: returns the ids of texts.
          ids_of: returns the ids of pieces, `unk_id` for strings that are not pieces.
          unk_id: id of the unknown token.
        """
        split = [i for i, p in enumerate(pieces) if p[-1:] == "," and p[-2:-1].isdigit()]
        numbers = encode([pieces[i][:-1].replace(BLANK, "") for i in split])
        table = [_Parts([0], [0], b"")]  # the row of all pieces that are not split
        for i, ids in zip(split, numbers, strict=True):
            names = [pieces[j] for j in ids]
            if not pieces[i].startswith(BLANK):
                names[0] = names[0].removeprefix(BLANK)
            names = [name for name in names if name] + [","]
            sizes = [len(name.removeprefix(BLANK).encode()) for name in names]
            rest = [sum(sizes[j + 1 :]) for j in range(len(sizes))]
            parts = ids_of(names)
            text = b"" if unk_id in parts else pieces[i].removeprefix(BLANK).encode()
            table.append(_Parts(parts, rest, text))
        self._row_of = np.zeros(len(pieces), np.int32)  # [V]
        self._row_of[split] = np.arange(1, len(table))
        self._counts = np.array([len(row.ids) for row in table], np.int32)  # [S + 1]
        self._firsts = np.cumsum(self._counts, dtype=np.int32) - self._counts
        self._ids = np.concatenate([row.ids for row in table]).astype(np.int32)
        self._rest = np.concatenate([row.rest for row in table]).astype(np.int32)
        self._sizes = np.array([len(row.text) for row in table], np.int32)  # [S + 1]
        self._begins = np.cumsum(self._sizes, dtype=np.int32) - self._sizes
        self._bytes = np.frombuffer(b"".join(row.text for row in table) + b"\0", np.uint8)

    def split(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Splits pieces: int32 [N, None]."""
        return self._split(ids)[0]

    def split_some_of(self, ids: tf.RaggedTensor) -> bool:
        """Returns whether a piece of int32 [N, None] is split, eagerly."""
        return bool(np.take(self._row_of, ids.values.numpy()).any())

    def split_with_offsets(
        self, texts: tf.Tensor, ids: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Splits pieces and their offsets in the texts.

        If the model has normalized the text of a piece, each part has the offsets of the piece.

        Args:
          texts: string [N], the input of the model.
          ids: int32 [N, None].
          starts: the first byte of each token, integers [N, None].
          ends: the byte after its last one.

        Returns:
          ids, starts and ends, int32 [N, None].
        """
        starts, ends = (
            values.with_values(tf.cast(values.values, tf.int32)) for values in (starts, ends)
        )
        split, token, number, index = self._split(ids)
        apart = tf.gather(self._spelled(texts, ids, ends), token)  # [P]
        start, end = (tf.gather(values.values, token) for values in (starts, ends))
        left = tf.where(
            apart & (number > 0), end - tf.gather(self._rest, tf.maximum(index - 1, 0)), start
        )
        right = tf.where(apart, end - tf.gather(self._rest, index), end)
        return split, split.with_values(left), split.with_values(right)

    def _split(
        self, ids: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the new ids [N, None], and three properties of each part, [P] each.

        They are the index of its old token, its position among the parts of the token, and its
        index into the table.
        """
        row = tf.gather(self._row_of, ids.values)  # [K]
        counts, firsts = tf.gather(self._counts, row), tf.gather(self._firsts, row)
        indices = tf.ragged.range(firsts, firsts + counts)  # [K, None]
        token, index = offsets.rows_of(indices), indices.values  # [P]
        whole = tf.equal(tf.gather(row, token), 0)
        new = tf.where(whole, tf.gather(ids.values, token), tf.gather(self._ids, index))
        splits = tf.gather(indices.row_splits, ids.row_splits)
        number = index - tf.gather(firsts, token)
        return tf.RaggedTensor.from_row_splits(new, splits, validate=False), token, number, index

    def _spelled(self, texts: tf.Tensor, ids: tf.RaggedTensor, ends: tf.RaggedTensor) -> tf.Tensor:
        """Returns whether a token is split and its text equals its piece, bool [K]."""
        row = tf.gather(self._row_of, ids.values)  # [K]
        token = tf.reshape(tf.where(row > 0), [-1])
        row = tf.gather(row, token)
        sizes, begins = tf.gather(self._sizes, row), tf.gather(self._begins, row)
        lengths = tf.strings.length(texts)
        before = tf.gather(tf.cumsum(lengths, exclusive=True), offsets.rows_of(ids))  # [K]
        end = tf.gather(before + ends.values, token)
        ours = tf.ragged.range(begins, begins + sizes)
        theirs = tf.ragged.range(end - sizes, end)
        raw = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
        equal = tf.equal(
            tf.gather(self._bytes, ours.values), tf.gather(raw, tf.maximum(theirs.values, 0))
        )
        same = tf.reduce_all(ours.with_values(equal), axis=1) & (sizes > 0)
        return tf.scatter_nd(token[:, None], same, tf.shape(ids.values, tf.int64))
