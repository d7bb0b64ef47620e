"""WordPiece as in the BERT release, cased and uncased.

The ids are those of the release's Python tokenizer, also inside a graph. String operations clean
the text, and tensorflow-text's FastWordpieceTokenizer splits it into
words and pieces. (FastBertTokenizer cleans it too, but not as BERT does: it also turns "…" into
three full stops, "½" into three pieces and "ß" into "ss", and splits words at soft hyphens and
zero-width spaces.) One difference to the release remains: the Unicode version is newer, so
characters that were not assigned then are kept and not dropped.

A word with more than `max_input_chars_per_word` characters after cleaning is unknown. The limit is
200 in the release and in new tokenizers of this project. transformers has a limit of 100, which its
files do not contain. So a folder without the setting has the limit 100, and a limit of 100 is not
saved.

Two settings of transformers are for text whose words another program (MeCab, Juman++, jieba) has
separated by blanks. With `tokenize_chinese_chars` false, Chinese characters are parts of words, not
words. With `do_basic_tokenize` false, text is split only at white space, and is not cleaned or
lower-cased, as in `BertTokenizer` of transformers 4; its fast tokenizer ignores the setting.

With `nfc`, characters are composed first: "e" and a combining accent become "é" (Unicode's form
NFC). No class of transformers has this step, but a `tokenizer.json` may.

Text that spells a special token, such as a literal "[MASK]", is split as text ("[", "mask", "]")
without `special=True`. The tokenizers of transformers return the special id. They differ in two
other details, where this tokenizer follows the release: both the slow and the fast tokenizer
lower-case each character alone, so that a Greek word in capitals ends in "σ" and not "ς", and the
slow one composes cased text first (NFC).

Shapes: N texts.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from typing_extensions import override

from official.tokenizers import added_tokens, composition, file_formats, offsets
from official.tokenizers.base import Splitter, Tokenizer
from official.tokenizers.composition import FORM, NFC
from official.tokenizers.file_formats import capitals, find_specials, switch
from official.tokenizers.word_ids import LONGEST, WordIds
from official.utils.errors import UserError
from official.utils.paths import AnyPath

CONTINUES = "##"
MAX_CHARACTERS = "max_input_chars_per_word"  # the setting, as transformers names it
RELEASE_LIMIT, DEFAULT_LIMIT = 200, 100  # for new tokenizers, and for folders without the setting
MOST_CHARACTERS = 1_000_000  # the largest allowed value of the setting
_BYTES = 4  # the largest number of bytes of a character
# Control, format, private-use and unassigned characters are dropped, except three blanks. U+FFFD is
# dropped as well.
_DROPPED = r"[^\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}\t\n\r]+|\x{fffd}+"
_ACCENTS = r"\p{Mn}+"
# A private-use character, which cleaning removes from text, so that no piece matches it.
UNKNOWN_WORD = "\ue000"
BLANK = r"\p{Z}\t\n\r"
# The blocks of Chinese characters that BERT names.
IDEOGRAPHS = (
    r"\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{2a6df}"
    r"\x{2a700}-\x{2b73f}\x{2b740}-\x{2b81f}\x{2b820}-\x{2ceaf}\x{2f800}-\x{2fa1f}"
)
# ASCII signs and all other punctuation: each is a word.
SIGNS = r"!-/:-@\[-`{-~\p{P}"
ALONE = rf"{SIGNS}{IDEOGRAPHS}"  # signs and Chinese characters
# The settings for text that is already split into words, and their default values.
IDEOGRAPHS_ALONE, BASIC = "tokenize_chinese_chars", "do_basic_tokenize"


def clean(
    texts: tf.Tensor, lower_case: bool, strip_accents: bool, max_characters: int = RELEASE_LIMIT
) -> tf.Tensor:
    """Cleans strings [N] as BERT does before it splits words.

    Words of more than `max_characters` become `UNKNOWN_WORD`.
    """
    cleaned = _clean(texts, lower_case, strip_accents)
    # Few texts have such a word, and a check of each character is slow. A long word is a long run
    # without white space and without common Chinese characters. Texts with such a run are checked
    # again without signs, and only those that still have one are split into characters. (With more
    # repetitions, or with all signs, the program of RE2 needs too much memory.)
    repeated = min(max_characters, RELEASE_LIMIT) + 1
    run = rf"(?s).*[^{BLANK}\x{{4e00}}-\x{{9fff}}]{{{repeated},}}.*"
    long = tf.strings.regex_full_match(cleaned, run)

    def shortened() -> tf.Tensor:
        rows = tf.where(long)  # [M, 1]
        words = tf.strings.regex_replace(tf.gather_nd(cleaned, rows), f"[{ALONE}]+", " ")
        rows = tf.boolean_mask(rows, tf.strings.regex_full_match(words, run))
        characters = tf.strings.unicode_split(tf.gather_nd(cleaned, rows), "UTF-8")
        short = characters.with_values(_shortened(characters, max_characters)[0])
        return tf.tensor_scatter_nd_update(cleaned, rows, offsets.joined(short))

    return tf.cond(tf.reduce_any(long), shortened, lambda: cleaned)


def _clean(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Cleans strings [N], character by character, without a check for long words.

    Only the form of a sigma and the order of some marks depend on neighboring characters. Neither
    changes the character that a byte comes from.
    """
    texts = tf.strings.regex_replace(texts, _DROPPED, "")
    if lower_case:
        texts = tf.strings.lower(texts, encoding="utf-8")
    if strip_accents:
        texts = tf_text.normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, _ACCENTS, "")
    return texts


def _accents(characters: tf.Tensor, cleaned: tf.Tensor) -> tf.Tensor:
    """Returns whether each character is an accent that is removed, bool [C]."""
    return tf.equal(cleaned, "") & tf.strings.regex_full_match(characters, r"\pM")


def space_words(cleaned: tf.Tensor, ideographs_alone: bool = True) -> tf.Tensor:
    """Puts a blank between the words of strings [N]; signs and Chinese characters are words."""
    alone = ALONE if ideographs_alone else SIGNS
    parted = tf.strings.regex_replace(cleaned, f"([{alone}])", r" \1 ")
    return tf.strings.regex_replace(parted, f"[{BLANK}]+", " ")


def _shortened(
    characters: tf.RaggedTensor, max_characters: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Replaces words that are too long by `UNKNOWN_WORD`.

    Args:
      characters: the C characters of cleaned texts, string [N, None].
      max_characters: maximum length of a word.

    Returns:
      The new form of each character, string [C]: `UNKNOWN_WORD` for the first character of a long
      word, empty for its other characters. Whether each character is in a long word, bool [C]. The
      index of its run, int32 [C]: words and the text between words are runs.
    """
    rows = offsets.rows_of(characters)
    values = characters.values
    inside = ~tf.strings.regex_full_match(values, f"[{BLANK}{ALONE}]")
    new = (inside[1:] != inside[:-1]) | (rows[1:] != rows[:-1])
    new = tf.concat([[True], new], 0)[: tf.size(values)]
    runs = tf.cumsum(tf.cast(new, tf.int32)) - 1
    sizes = tf.math.bincount(runs, minlength=tf.reduce_sum(tf.cast(new, tf.int32)))
    long = inside & (tf.gather(sizes, runs) > max_characters)
    return tf.where(long, tf.where(new, UNKNOWN_WORD, ""), values), long, runs


def _splitter(
    pieces: Sequence[str], unk: str, most_bytes: int, continues: str, words: bool
) -> tf_text.FastWordpieceTokenizer:
    """Makes a splitter, whose limit of a word is in bytes; `words`: it takes single words only."""
    compiled = _compiled(tuple(pieces), unk, most_bytes, continues, words)
    return tf_text.FastWordpieceTokenizer(
        token_out_type=tf.int32, model_buffer=tf.constant(compiled)
    )


# A command reads the tokenizers of its shards and of its model, which are the same.
@functools.lru_cache(maxsize=4)
def _compiled(
    pieces: tuple[str, ...], unk: str, most_bytes: int, continues: str, words: bool
) -> np.ndarray:
    """Returns the automaton of a vocabulary, uint8; the one of any takes 0.1 s to make."""
    model = tf_text.build_fast_wordpiece_model(pieces, most_bytes, continues, unk, words, False)
    return np.frombuffer(model, np.uint8)


class PartedWords(tf.Module):
    """Splits texts into words at white space and at some signs, and words into pieces.

    It has those methods of tensorflow-text's FastWordpieceTokenizer that this package uses.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        unk: str,
        max_characters: int,
        alone: str,
        space: str,
        continues: str = CONTINUES,
    ):
        """Makes a splitter.

        Args:
          pieces: the vocabulary.
          unk: the piece of words that the vocabulary cannot spell.
          max_characters: longer words are unknown.
          alone: the characters that are separate words, as the content of a character class; empty
            = none.
          space: the white space, as the content of a character class.
          continues: the prefix of pieces that continue a word.
        """
        super().__init__()
        self._max_characters = max_characters
        self._alone, self._space = alone, space
        known = set("".join(pieces))
        self._unknown = next(c for c in map(chr, range(0xE000, 0xF8FF)) if c not in known)
        # Longer words are unknown without a lookup, so the limit covers the longest piece too.
        most_bytes = max(_BYTES * max_characters, *(len(p.encode()) for p in pieces))
        self._pieces = _splitter(pieces, unk, most_bytes, continues, words=True)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None]."""
        if self._alone:
            texts = tf.strings.regex_replace(texts, f"([{self._alone}])", r" \1 ")
        texts = tf.strings.regex_replace(texts, f"[{self._space}]+", " ")
        words = tf.strings.split(texts, " ")
        words = tf.ragged.boolean_mask(words, words.with_values(words.values != ""))
        ids = self.of_words(words.values)
        return tf.RaggedTensor.from_row_splits(
            ids.values, tf.gather(ids.row_splits, words.row_splits), validate=False
        )

    def of_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of words, string [W]: int32 [W, None]."""
        return self._pieces.tokenize(self._short(words))

    def of_words_with_offsets(
        self, words: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the ids, and their first bytes and ends in the words: [W, None] each."""
        short = self._short(words)
        ids, starts, ends = self._pieces.tokenize_with_offsets(short)
        whole = tf.gather(tf.strings.length(words), offsets.rows_of(ids))
        long = tf.gather(tf.not_equal(short, words), offsets.rows_of(ids))
        starts = tf.cast(starts.values, tf.int32)
        ends = tf.where(long, whole, tf.cast(ends.values, tf.int32))
        return ids, ids.with_values(starts), ids.with_values(ends)

    def _short(self, words: tf.Tensor) -> tf.Tensor:
        """Replaces words that are too long, of string [W], by a word that no piece matches."""
        long = tf.strings.length(words, unit="UTF8_CHAR") > self._max_characters
        return tf.where(long, self._unknown, words)

    def tokenize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns ids, first bytes and ends of string [N], int32 [N, None] each."""
        characters = tf.strings.unicode_split(texts, "UTF-8")
        values, rows = characters.values, offsets.rows_of(characters)
        inside = ~tf.strings.regex_full_match(values, f"[{self._space}]")
        alone = tf.zeros_like(inside)
        if self._alone:
            alone = tf.strings.regex_full_match(values, f"[{self._alone}]")
        parted = alone[1:] | alone[:-1] | ~inside[:-1] | (rows[1:] != rows[:-1])
        first = inside & tf.concat([[True], parted], 0)[: tf.size(values)]
        words = offsets.words_of(characters, inside, first)
        ids, starts, ends = self.of_words_with_offsets(words.texts.values)
        # The number of bytes before each character of its text.
        sizes = tf.strings.length(values)
        before = tf.concat([[0], tf.cumsum(sizes)], 0)
        before -= tf.concat([tf.gather(before, tf.gather(characters.row_starts(), rows)), [0]], 0)
        begins = tf.gather(tf.boolean_mask(before[:-1], first), offsets.rows_of(ids))
        splits = tf.gather(ids.row_splits, words.texts.row_splits)

        def of_texts(rows: tf.Tensor) -> tf.RaggedTensor:
            return tf.RaggedTensor.from_row_splits(rows, splits, validate=False)

        return (
            of_texts(ids.values),
            of_texts(starts.values + begins),
            of_texts(ends.values + begins),
        )


class WordPieceSplitter(Splitter):
    """Cleans text, and splits words into the longest pieces from the left."""

    def __init__(
        self,
        pieces: Sequence[str],
        unk: str,
        lower_case: bool,
        strip_accents: bool,
        max_characters: int,
        ideographs_alone: bool = True,
        basic: bool = True,
        nfc: bool = False,
    ):
        super().__init__()
        self._lower_case = lower_case
        self._strip_accents = strip_accents
        self._max_characters = max_characters
        self._ideographs_alone, self._basic = ideographs_alone, basic
        self.nfc = nfc
        self.normalizes = basic or nfc
        if not (ideographs_alone and basic):
            alone, space = (SIGNS, BLANK) if basic else ("", offsets.WHITE_SPACE[1:-1])
            self._words_to_ids = PartedWords(pieces, unk, max_characters, alone, space)
            return
        # This op first splits text at white space, punctuation and Chinese characters, as BERT
        # does.
        self._words_to_ids = _splitter(pieces, unk, _BYTES * max_characters, CONTINUES, words=False)

    def _composed_characters(
        self, characters: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Like `composed`, for C characters; returns also which belong to the one before, [C]."""
        if self.nfc:
            return composition.composed_by_character(characters)
        return characters, tf.zeros_like(characters.values, tf.bool)

    def _cleaned(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns composed strings [N] in the form that is split into words."""
        if not self._basic:
            return texts
        if not self._ideographs_alone:  # words are split, and long ones found, later
            return _clean(texts, self._lower_case, self._strip_accents)
        return clean(texts, self._lower_case, self._strip_accents, self._max_characters)

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None]."""
        return self._words_to_ids.tokenize(self._cleaned(self.composed(texts)))

    def split_lines(self, texts: Sequence[bytes]) -> tf.RaggedTensor:
        """Returns the ids of all L lines of texts, int32 [L, None].

        Cleaning a text of one word per line is faster than cleaning the words. The lines must be
        composed (`nfc`).
        """
        cleaned = self._cleaned(tf.constant(texts))
        lines = [line for text in cleaned.numpy() for line in text.split(b"\n")]
        return self._words_to_ids.tokenize(tf.constant(lines))

    @override
    def normalized(self, texts: tf.Tensor) -> tf.Tensor:
        """See `Splitter`. Chinese characters get blanks around them, as in `tokenizers`."""
        return self._normalized(self.composed(texts))

    def _normalized(self, texts: tf.Tensor) -> tf.Tensor:
        if not self._basic:
            return texts
        cleaned = _clean(texts, self._lower_case, self._strip_accents)
        cleaned = tf.strings.regex_replace(cleaned, f"[{BLANK}]", " ")
        if not self._ideographs_alone:
            return cleaned
        return tf.strings.regex_replace(cleaned, f"[{IDEOGRAPHS}]", r" \0 ")

    @override
    def normalized_characters(
        self, characters: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        composed, parts = self._composed_characters(characters)
        cleaned = characters.with_values(self._normalized(composed.values))
        return cleaned, parts | _accents(characters.values, cleaned.values)

    @override
    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """See `Splitter`; a removed accent belongs to its letter."""
        characters = tf.strings.unicode_split(texts, "UTF-8")
        composed, parts = self._composed_characters(characters)
        texts = self.composed(texts)
        if not self._basic:
            ids, starts, ends = self._words_to_ids.tokenize_with_offsets(texts)
            origins = offsets.origins(composed, parts)
            return offsets.Tokens(ids, *offsets.characters_of(origins, starts, ends))
        cleaned = _clean(composed.values, self._lower_case, self._strip_accents)  # [C]
        accents = parts | _accents(characters.values, cleaned)
        origins = offsets.origins(characters.with_values(cleaned), accents)
        whole = _clean(texts, self._lower_case, self._strip_accents)
        if not self._ideographs_alone:
            ids, starts, ends = self._words_to_ids.tokenize_with_offsets(whole)
            return offsets.Tokens(ids, *offsets.characters_of(origins, starts, ends))
        left = tf.strings.unicode_split(whole, "UTF-8")
        short, long, runs = _shortened(left, self._max_characters)
        sizes = tf.strings.length(left.values)
        origins = _shortened_origins(origins, tf.repeat(long, sizes), tf.repeat(runs, sizes))
        texts = offsets.joined(left.with_values(short))
        ids, starts, ends = self._words_to_ids.tokenize_with_offsets(texts)
        return offsets.Tokens(ids, *offsets.characters_of(origins, starts, ends))


def _shortened_origins(
    origins: offsets.Origins, long: tf.Tensor, runs: tf.Tensor
) -> offsets.Origins:
    """Returns the origins after each long word of cleaned texts has become `UNKNOWN_WORD`.

    Args:
      origins: the origins of the Y bytes of the cleaned texts.
      long: whether a byte is in a long word, bool [Y].
      runs: the index of the run of each byte, int32 [Y]; see `_shortened`.
    """
    count = tf.reduce_max(tf.concat([runs, [-1]], 0)) + 1
    first = tf.concat([[True], runs[1:] != runs[:-1]], 0)[: tf.size(runs)]
    last_of_run = tf.math.unsorted_segment_max(origins.lasts.values, runs, count)
    lasts = tf.where(long, tf.gather(last_of_run, runs), origins.lasts.values)
    times = tf.where(long, tf.where(first, len(UNKNOWN_WORD.encode()), 0), 1)
    rows = tf.repeat(offsets.rows_of(origins.firsts), times)

    def of_rows(values: tf.Tensor) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_value_rowids(
            tf.repeat(values, times), rows, nrows=origins.firsts.nrows(), validate=False
        )

    return offsets.Origins(of_rows(origins.firsts.values), of_rows(lasts))


class WordPiece(Tokenizer):
    """WordPiece.

    Attributes:
      lower_case: whether text is lower-cased.
      strip_accents: whether accents are removed, by default if text is lower-cased.
      max_input_chars_per_word: longer words are unknown.
      tokenize_chinese_chars: whether each Chinese character is a word.
      do_basic_tokenize: whether text is cleaned and split at signs, and not only at white space.
      nfc: whether characters are composed first.
    """

    FILE = "vocab.txt"
    _mask_strips = False

    def __init__(
        self,
        pieces: Sequence[str],
        lower_case: bool | None = None,
        strip_accents: bool | None = None,
        settings: dict[str, Any] | None = None,
        source: str = "the vocabulary",
        max_input_chars_per_word: int = RELEASE_LIMIT,
        tokenize_chinese_chars: bool = True,
        do_basic_tokenize: bool = True,
        nfc: bool = False,
    ):
        """Makes a tokenizer from a list of pieces.

        Args:
          pieces: the vocabulary in the order of the ids; `##` marks pieces that continue a word.
          lower_case: None = lower-case unless a piece of the vocabulary has a capital letter; marks
            in brackets, such as `[unused1]`, are not letters.
          strip_accents: None = as `lower_case`.
          settings: names of special tokens other than `[PAD] [UNK] [CLS] [SEP] [MASK]`.
          source: the name of the vocabulary in messages.
          max_input_chars_per_word: longer words are unknown.
          tokenize_chinese_chars: see the class.
          do_basic_tokenize: see the class; False = nothing is lower-cased.
          nfc: whether characters are composed first (Unicode's form NFC).

        Raises:
          UserError: the vocabulary is empty, has an empty or duplicate piece, or lacks special
            tokens.
        """
        settings = settings or {}
        file_formats.check_pieces(pieces, source)
        base, pieces = pieces, added_tokens.appended(pieces, settings, source)
        specials = find_specials(pieces, settings, source)
        if lower_case is None:
            lower_case = not capitals(base, specials)
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.do_basic_tokenize, self.nfc = do_basic_tokenize, nfc
        if not do_basic_tokenize:
            lower_case = strip_accents = False
        self.lower_case = lower_case
        self.strip_accents = lower_case if strip_accents is None else strip_accents
        self.max_input_chars_per_word = max_input_chars_per_word
        try:
            splitter = WordPieceSplitter(
                base,
                specials["unk_token"],
                self.lower_case,
                self.strip_accents,
                max_input_chars_per_word,
                tokenize_chinese_chars,
                do_basic_tokenize,
                nfc,
            )
        except RuntimeError:  # all pieces are special tokens
            raise UserError(f"{source} has only special tokens: is it complete?") from None
        if do_basic_tokenize:  # otherwise signs do not end words
            self._words = WordIds(self._spell, self.lower_case)
        super().__init__(pieces, specials, splitter, settings, len(base))

    def _split(self, words: WordIds, texts: Sequence[bytes]) -> tf.RaggedTensor:
        # Composition comes before the lower-casing of ASCII letters: "ǰ" is one character, "J̌"
        # two.
        return words.split(self._splitter.composed_bytes(texts))

    def _spell(self, words: bytes, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of words, int32, and their row splits, [K + 1]; see `WordIds`."""
        ends = np.cumsum(lengths)
        values = np.frombuffer(words.replace(b"\n", b" "), np.uint8)
        lines = np.insert(values, ends, ord("\n")).tobytes()
        short = np.count_nonzero(lengths <= LONGEST)
        end = ends[short - 1] + short if short else 0
        # Long words are in a separate text, because `clean` is slow for texts with long words.
        texts = [text[:-1] for text in (lines[:end], lines[end:]) if text]
        ids = self._splitter.split_lines(texts)
        return ids.values.numpy(), ids.row_splits.numpy()

    @classmethod
    def read(cls, path: AnyPath, settings: dict[str, Any]) -> "WordPiece":
        """Reads a tokenizer from a `vocab.txt`, with one piece per line, and its settings.

        Raises:
          UserError: see the constructor; or a line is not UTF-8, or a setting is not supported.
        """
        config = path.with_name(file_formats.SETTINGS_FILE)
        limit = settings.get(MAX_CHARACTERS)
        limit = DEFAULT_LIMIT if limit is None else limit
        if type(limit) is not int or not 1 <= limit <= MOST_CHARACTERS:
            raise UserError(
                f"{config}: {MAX_CHARACTERS} is {limit!r}, expected a whole number from 1 to "
                f"{MOST_CHARACTERS:,}: {RELEASE_LIMIT} as in BERT's release, "
                f"{DEFAULT_LIMIT} as in transformers"
            )
        pieces, notes = file_formats.with_one_id(file_formats.read_pieces(path), str(path))
        tokenizer = cls(
            pieces,
            switch(settings, "do_lower_case", None),
            switch(settings, "strip_accents", None),
            settings,
            str(path),
            limit,
            switch(settings, IDEOGRAPHS_ALONE, True),
            switch(settings, BASIC, True),
            composition.is_named(settings, path),
        )
        tokenizer.notes = tuple(notes)
        return tokenizer

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids; special tokens appear as in the vocabulary."""
        return " ".join(self.pieces[i] for i in ids).replace(f" {CONTINUES}", "")

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        pieces = tf.gather(tf.constant(self.pieces), ids)
        joined = offsets.joined(pieces, " ")
        return tf.strings.regex_replace(joined, f" {CONTINUES}", "")

    def _spelled_added(self, content: str) -> bytes:
        return f" {content}".encode()

    def _spelled(self, piece: str) -> bytes:
        continues = piece.startswith(CONTINUES)
        return (piece.removeprefix(CONTINUES) if continues else f" {piece}").encode()

    def _begins_word(self, piece: str, rule: str) -> bool:
        return not piece.startswith(CONTINUES)

    def _vocabulary_files(self) -> dict[str, bytes]:
        return {self.FILE: file_formats.pieces_file(self.pieces[: self.num_base_pieces])}

    def _decides(self) -> dict[str, Any]:
        decides: dict[str, Any] = {
            "do_lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
        }
        if self.max_input_chars_per_word != DEFAULT_LIMIT:
            decides[MAX_CHARACTERS] = self.max_input_chars_per_word
        if not self.tokenize_chinese_chars:
            decides[IDEOGRAPHS_ALONE] = False
        if not self.do_basic_tokenize:
            decides[BASIC] = False
        if self.nfc:
            decides[FORM] = NFC
        return decides

    def _for_others(self) -> dict[str, Any]:
        # No class of transformers composes characters, but a `tokenizer.json` may.
        name = "PreTrainedTokenizerFast" if self.nfc else "BertTokenizer"
        return {"tokenizer_class": name, IDEOGRAPHS_ALONE: True}
