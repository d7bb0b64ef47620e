"""WordPiece as in the BERT release, cased and uncased.

The ids are those of the release's Python tokenizer, at tens of megabytes a second and inside a
graph: the text is cleaned by string operations, and only the split into pieces is left to
tensorflow-text's FastBertTokenizer. (Its own lower-casing is not BERT's: it also turns "…" into
three full stops, "½" into three pieces and "ß" into "ss", and parts words at soft hyphens and
zero-width spaces.) What still differs from the release:

  - characters are told apart by a newer Unicode version, so that what was not assigned then is a
    character of its kind instead of being dropped;
  - a word of other than ASCII letters and digits is unknown from 400 bytes on, not from 100
    characters on.

Text that spells a special token, such as a literal "[MASK]", is split as text ("[", "mask", "]")
and never gives the special id. transformers' tokenizers differ in this (they give the id) and in
two details where this one follows the release: both lower-case character by character, so that a
Greek word in capitals ends in "σ", not "ς"; and the slow one composes cased text first (NFC).

Shapes: N texts.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from official.errors import UserError
from official.tokenizers import offsets
from official.tokenizers.base import (
    SETTINGS_FILE,
    Splitter,
    Tokenizer,
    find_specials,
    has_capitals,
    switch,
)

CONTINUES = "##"
MAX_WORD_BYTES = 400
# Dropped: control, format, private-use and unassigned characters, but for three that are blanks,
# and U+FFFD.
_DROPPED = r"[^\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}\t\n\r]+|\x{fffd}+"
_ACCENTS = r"\p{Mn}+"
_LONG_WORD = r"[0-9A-Za-z]{101,}"
# A private-use character, so no text has it after cleaning, and no vocabulary.
UNKNOWN_WORD = "\ue000"
_BLANK = r"[\p{Z}\t\n\r]+"
# ASCII signs, all other punctuation, and the blocks of Chinese characters that BERT names.
_ALONE = (
    r"([!-/:-@\[-`{-~\p{P}\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{2a6df}"
    r"\x{2a700}-\x{2b73f}\x{2b740}-\x{2b81f}\x{2b820}-\x{2ceaf}\x{2f800}-\x{2fa1f}])"
)


def clean(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Cleans strings [N] as BERT does before it looks for words."""
    cleaned = _clean(texts, lower_case, strip_accents)
    return tf.strings.regex_replace(cleaned, _LONG_WORD, UNKNOWN_WORD)


def _clean(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """The same but for long words: what becomes of a text is what becomes of its characters.

    But for the form of a sigma, and the order of some marks: neither changes what a byte is of.
    """
    texts = tf.strings.regex_replace(texts, _DROPPED, "")
    if lower_case:
        texts = tf.strings.lower(texts, encoding="utf-8")
    if strip_accents:
        texts = tf_text.normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, _ACCENTS, "")
    return texts


def space_words(cleaned: tf.Tensor) -> tf.Tensor:
    """Puts a blank between any two words of strings [N]; each sign and Chinese character is one."""
    return tf.strings.regex_replace(tf.strings.regex_replace(cleaned, _ALONE, r" \1 "), _BLANK, " ")


class WordPieceSplitter(Splitter):
    """Cleaning, then the longest pieces from the left."""

    def __init__(self, pieces: Sequence[str], unk: str, lower_case: bool, strip_accents: bool):
        super().__init__()
        self._lower_case = lower_case
        self._strip_accents = strip_accents
        self._words_to_ids = tf_text.FastBertTokenizer(
            pieces,
            suffix_indicator=CONTINUES,
            max_bytes_per_word=MAX_WORD_BYTES,
            token_out_type=tf.int32,
            unknown_token=unk,
        )

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids of string [N], int32 [N, None]."""
        return self._words_to_ids.tokenize(clean(texts, self._lower_case, self._strip_accents))

    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """See `Splitter`; an accent that is removed belongs to its letter."""
        characters = tf.strings.unicode_split(texts, "UTF-8")
        cleaned = _clean(characters.values, self._lower_case, self._strip_accents)  # [C]
        accents = tf.equal(cleaned, "") & tf.strings.regex_full_match(characters.values, r"\pM")
        found = offsets.origins(characters.with_values(cleaned), accents)
        whole = _clean(texts, self._lower_case, self._strip_accents)
        found = _of_long_words(whole, found)
        short = tf.strings.regex_replace(whole, _LONG_WORD, UNKNOWN_WORD)
        ids, starts, ends = self._words_to_ids.tokenize_with_offsets(short)
        return offsets.Tokens(ids, *offsets.characters_of(found, starts, ends))


def _of_long_words(cleaned: tf.Tensor, found: offsets.Origins) -> offsets.Origins:
    """The origins after each long word of cleaned texts [N] has become `UNKNOWN_WORD`."""
    values = tf.io.decode_raw(tf.strings.reduce_join(cleaned), tf.uint8)  # [Y]
    values = tf.cast(values, tf.int32)
    letter = (values | 32 >= ord("a")) & (values | 32 <= ord("z"))
    plain = letter | ((values >= ord("0")) & (values <= ord("9")))
    rows = offsets.rows_of(found.firsts)
    # Runs of plain bytes within a text, and of all others, are numbered.
    new = (plain[1:] != plain[:-1]) | (rows[1:] != rows[:-1])
    runs = tf.concat([[0], tf.cumsum(tf.cast(new, tf.int32))], 0)[: tf.size(values)]
    count = tf.reduce_max(tf.concat([runs, [-1]], 0)) + 1
    sizes = tf.math.bincount(runs, minlength=count)
    long = plain & (tf.gather(sizes, runs) > 100)
    first = tf.concat([[True], new], 0)[: tf.size(values)]
    last_of_run = tf.math.unsorted_segment_max(found.lasts.values, runs, count)
    lasts = tf.where(long, tf.gather(last_of_run, runs), found.lasts.values)
    times = tf.where(long, tf.where(first, len(UNKNOWN_WORD.encode()), 0), 1)
    rows = tf.repeat(rows, times)

    def of_rows(values: tf.Tensor) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_value_rowids(
            tf.repeat(values, times), rows, nrows=found.firsts.nrows(), validate=False
        )

    return offsets.Origins(of_rows(found.firsts.values), of_rows(lasts))


class WordPiece(Tokenizer):
    """WordPiece.

    Attributes:
      lower_case: whether text is lower-cased.
      strip_accents: whether accents are removed; when lower-casing they are unless told otherwise.
    """

    FILE = "vocab.txt"

    def __init__(
        self,
        pieces: Sequence[str],
        lower_case: bool | None = None,
        strip_accents: bool | None = None,
        settings: dict[str, Any] | None = None,
        source: str = "the vocabulary",
    ):
        """Makes a tokenizer from a list of pieces.

        Args:
          pieces: the vocabulary in the order of the ids; `##` marks what does not begin a word.
          lower_case: None for what the vocabulary tells: no, if any of its pieces has a capital.
          strip_accents: None for the same as `lower_case`.
          settings: names of special tokens where they are not `[PAD] [UNK] [CLS] [SEP] [MASK]`.
          source: the name of the vocabulary in messages.

        Raises:
          UserError: an empty vocabulary, an empty or duplicate piece, missing special tokens.
        """
        settings = settings or {}
        _check(pieces, source)
        specials = find_specials(pieces, settings, source)
        if lower_case is None:
            lower_case = not has_capitals(pieces, specials)
        self.lower_case = lower_case
        self.strip_accents = lower_case if strip_accents is None else strip_accents
        splitter = WordPieceSplitter(
            pieces, specials["unk_token"], self.lower_case, self.strip_accents
        )
        super().__init__(pieces, specials, splitter, settings)

    @classmethod
    def read(cls, path: Path, settings: dict[str, Any]) -> "WordPiece":
        """Makes a tokenizer from a `vocab.txt`, one piece a line, and its settings.

        Raises:
          UserError: see the constructor; or a line is not UTF-8, or a setting asks for what this
            tokenizer does not do.
        """
        config = path.with_name(SETTINGS_FILE)
        for key, wanted in {"do_basic_tokenize": True, "tokenize_chinese_chars": True}.items():
            if switch(settings, key, wanted) != wanted:
                raise UserError(f"{config}: {key}={settings[key]} is not supported: only {wanted}")
        return cls(
            _read_pieces(path),
            switch(settings, "do_lower_case", None),
            switch(settings, "strip_accents", None),
            settings,
            str(path),
        )

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns readable text of ids; special tokens show as they are written."""
        return " ".join(self.pieces[i] for i in ids).replace(f" {CONTINUES}", "")

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        pieces = tf.gather(tf.constant(self.pieces), ids)
        joined = tf.strings.reduce_join(pieces, axis=1, separator=" ")
        return tf.strings.regex_replace(joined, f" {CONTINUES}", "")

    def _begins_word(self, piece: str, rule: str) -> bool:
        return not piece.startswith(CONTINUES)

    def _vocabulary_files(self) -> dict[str, bytes]:
        return {self.FILE: "".join(f"{piece}\n" for piece in self.pieces).encode()}

    def _decides(self) -> dict[str, Any]:
        return {"do_lower_case": self.lower_case, "strip_accents": self.strip_accents}

    def _for_others(self) -> dict[str, Any]:
        return {"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": True}


def _read_pieces(path: Path) -> list[str]:
    lines = path.read_bytes().split(b"\n")
    if not lines[-1]:
        lines.pop()
    pieces = []
    for number, line in enumerate(lines, 1):
        try:
            pieces.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{number}: not UTF-8: is this a vocabulary, one piece a line?"
            ) from error
    return pieces


def _check(pieces: Sequence[str], source: str) -> None:
    if not any(pieces):
        raise UserError(f"{source} is empty: a vocabulary has one piece a line")
    lines: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if not piece:
            raise UserError(f"{source}, line {number}: empty, where a piece is wanted")
        if piece in lines:
            raise UserError(
                f"{source}: {piece!r} stands in line {lines[piece]} and again in line {number}: "
                "a piece may have one id only; rename the one that is not used"
            )
        lines[piece] = number
