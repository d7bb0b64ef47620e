"""Byte-level BPE of GPT-2 and RoBERTa: `vocab.json` and `merges.txt`.

Text is split into words by GPT-2's pattern. The pieces of a word are at first its bytes. Then
neighboring pieces are joined: in each step, the pair that comes first in `merges.txt`, wherever it
occurs in the word, until no pair of neighbors is in the file (Radford et al. 2019, section 2.2;
Sennrich et al. 2016). Every text can be spelled, so no token is unknown. A blank belongs to the
word after it.

The ids are those of the `tokenizers` package, in Python and inside a graph. Text that spells a
special token, such as a literal "<mask>", is split as text without `special=True`.

The byte-level BPE of OLMo, which ModernBERT uses, composes characters first: with `nfc`, "e" and a
combining accent become "é" (Unicode's form NFC). Added tokens are found before that.

Ids represent a text exactly: `decode` returns it with its white space and control characters. A
word of the pattern begins with white space or has none, so a text can be split before white space:
the ids of its parts are the ids of the whole. `encode_slices` gives documents the ids of their
whole text, wherever the slices are cut.

In a graph, `words` finds the words, the words of a batch are made unique, and an operation of
SentencePiece joins the pairs of each word: O(n log n) for n bytes. In Python, `WordIds` caches the
ids of the words of earlier texts. New words are found by `find`, with Python's regular expressions
and the same classes of letters and digits, and `PairMerges` joins the pairs of all short words at
once.

Shapes: N texts, W words, S slices; a ragged dimension is written None.
"""

import functools
import itertools
import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2
from typing_extensions import override

from official.tokenizers import added_tokens, composition, offsets, utf8, word_starts
from official.tokenizers.added_tokens import SPACE
from official.tokenizers.base import Splitter, Tokenizer, chunks, strings
from official.tokenizers.byte_vocabulary import (
    ALPHABET,
    MERGES_FILE,
    VERSION,
    check_merges,
    reachable,
    read_merges,
    read_pieces,
    spelling,
)
from official.tokenizers.composition import FORM, NFC
from official.tokenizers.file_formats import find_specials, switch
from official.tokenizers.pair_forms import PairForm
from official.tokenizers.pair_merges import LONGEST, PairMerges
from official.tokenizers.sentencepiece_rules import NO_REPLACEMENTS
from official.tokenizers.word_ids import WordIds, ranges
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# GPT-2's only special token, which also separates documents.
END = "<|endoftext|>"
SPECIALS = {
    "pad_token": ("<pad>", END),
    "unk_token": ("<unk>", END),
    "cls_token": ("<s>", END),
    "sep_token": ("</s>", END),
    "mask_token": ("<mask>",),
}
# GPT-2's character classes. TensorFlow's regular expressions have Unicode 15.0. The letters and
# digits that 15.1 and 16.0 added are listed, so that the classes equal those of the `tokenizers`
# package.
LETTER = (
    r"\p{L}\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65}"
    r"\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}"
    r"\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{13460}-\x{143fa}\x{16100}-\x{1611d}"
    r"\x{16d40}-\x{16d6c}\x{18cff}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2ebf0}-\x{2ee5d}"
)
DIGIT = (
    r"\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{16130}-\x{16139}"
    r"\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e5f1}-\x{1e5fa}"
)
# Marks (vowel signs included), and those that are newer than Unicode 15.0.
MARKS = (
    r"\p{M}\x{897}\x{113b8}-\x{113c0}\x{113c2}\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113d0}"
    r"\x{113d2}\x{113e1}-\x{113e2}\x{10d69}-\x{10d6d}\x{10efc}\x{11f5a}\x{1611e}-\x{1612f}"
    r"\x{1e5ee}-\x{1e5ef}"
)
# The values of `pattern`. GPT-2's words end at each vowel sign of Hindi, Thai, Burmese and others;
# with `marks`, marks count as letters, so that words of these scripts stay whole.
GPT2, WITH_MARKS = "gpt2", "marks"
PATTERNS = {GPT2: LETTER, WITH_MARKS: LETTER + MARKS}
_PATTERN = "pattern"  # the setting
_LAST_BLANK = rf"([{SPACE}]+)([{SPACE}][^{SPACE}])"
# Without a group around it the search is ten times faster.
_WORD = {
    name: rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{DIGIT}]+| ?[^{SPACE}{letter}{DIGIT}]+"
    rf"|[{SPACE}]+"
    for name, letter in PATTERNS.items()
}
_CUT = b"\xff"  # no UTF-8 text has this byte
# Classes of bytes: a run of one of these ASCII classes, after a blank or not, is a word of the
# pattern.
_LETTERS, _DIGITS, _SIGNS = string.ascii_letters, string.digits, string.punctuation.replace("'", "")
_KINDS = bytes(
    sum(1 << i for i, kind in enumerate((_LETTERS, _DIGITS, _SIGNS)) if chr(byte) in kind)
    for byte in range(256)
)
_ANY = 7  # the flags of all classes
_BMP_END, _END = 0xFFFF, 0x10FFFF
_SURROGATES = 0xD800, 0xE000
# Matches characters outside `SPACE`. Python's `\s` also has four control characters.
begins_with_text = re.compile(r"[\S\x1c-\x1f]").match


def words(texts: tf.Tensor, add_prefix_space: bool = False, pattern: str = GPT2) -> tf.RaggedTensor:
    """Splits texts into words.

    Args:
      texts: UTF-8 strings [N]; bytes that are not UTF-8 become U+FFFD.
      add_prefix_space: whether a blank is put before each text that does not begin with one.
      pattern: one of `PATTERNS`.

    Returns:
      Strings [N, None], some of which may be empty. Concatenated, they equal the text.
    """
    texts = utf8.valid(texts)
    if add_prefix_space:
        texts = tf.strings.regex_replace(texts, "^[^ ]", r" \0", replace_global=False)
    texts = tf.strings.regex_replace(texts, _LAST_BLANK, rb"\1" + _CUT + rb"\2")
    return tf.strings.split(tf.strings.regex_replace(texts, _WORD[pattern], rb"\0" + _CUT), _CUT)


def find(text: str, pattern: str = GPT2) -> list[str]:
    """Returns the words of a text by one of `PATTERNS`; concatenated, they equal the text."""
    astral = not text.isascii() and _ASTRAL.search(text)
    return _pattern(_END if astral else _BMP_END, pattern).findall(text)


_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


@functools.cache
def _pattern(last: int, name: str) -> re.Pattern:
    """Returns a pattern for texts of characters up to `last`.

    Python tests a class up to U+FFFF with a bitmap, and a class beyond range by range, which is
    five times slower.
    """
    classes = SPACE, PATTERNS[name], DIGIT
    space, letter, digit = (_ranges(each, last) for each in classes)
    return re.compile(
        rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{digit}]+| ?[^{space}{letter}{digit}]+"
        rf"|[{space}]+(?![^{space}])|[{space}]+"
    )


def _ranges(characters: str, last: int) -> str:
    """Converts a class of TensorFlow's regular expressions, up to `last`, to one of Python's.

    The class lists its characters, because the Unicode version of Python changes with each release.
    """
    codes = np.r_[0 : _SURROGATES[0], _SURROGATES[1] : last + 1].astype("<u4")
    text = codes.tobytes().decode("utf-32-le")
    with tf.device("/CPU:0"):
        kept = tf.strings.regex_replace(text, f"[^{characters}]+", "").numpy().decode()
    codes = np.frombuffer(kept.encode("utf-32-le"), "<u4").astype(np.int64)
    breaks = np.flatnonzero(np.diff(codes) > 1)
    starts, ends = codes[np.r_[0, breaks + 1]], codes[np.r_[breaks, -1]]
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in zip(starts, ends, strict=True))


class ByteBPESplitter(Splitter):
    """Splits text into words, and joins the pairs of each word in the order of the merges."""

    normalizes = False

    def __init__(
        self,
        ids: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        add_prefix_space: bool,
        source: str,
        nfc: bool = False,
        pattern: str = GPT2,
    ):
        super().__init__()
        self._add_prefix_space = add_prefix_space
        self._pattern = pattern
        self.nfc = nfc
        # By id. The length of an added token with characters outside the alphabet is never used.
        self._bytes_of = tf.constant([len(spelling(piece)) for piece in ids], tf.int64)
        self._characters = tf.constant([ALPHABET[byte] for byte in range(256)])
        pieces = [*ALPHABET.values(), *reachable(merges)]
        self._model = tf_text.SentencepieceTokenizer(model_of(pieces), out_type=tf.int32)
        self._ids = tf.constant([ids[piece] for piece in pieces], tf.int32)

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None]."""
        return self.split_words(words(self.composed(texts), self._add_prefix_space, self._pattern))

    def split_words(self, text_words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of the words of texts, string [N, None]: int32 [N, None]."""
        unique, numbers = tf.unique(text_words.values)
        pieces = tf.gather(self.spell(unique), numbers)  # [all words, None]
        ends = tf.gather(pieces.row_splits, text_words.row_splits)
        return tf.RaggedTensor.from_row_splits(pieces.values, ends, validate=False)

    @override
    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """See `Splitter`. The pieces of a text have the same bytes as the composed text."""
        ids = self.split(texts)
        characters = tf.strings.unicode_split(texts, "UTF-8")
        ends = tf.cumsum(tf.gather(self._bytes_of, ids.values))
        lengths = tf.gather(self._bytes_of, ids.values)
        before = tf.gather(tf.concat([[0], ends], 0), ids.row_starts())  # [N]
        if self._add_prefix_space:
            before += tf.cast(tf.strings.regex_full_match(texts, "(?s)[^ ].*"), tf.int64)
        ends -= tf.gather(before, offsets.rows_of(ids))
        starts = ids.with_values(tf.maximum(ends - lengths, 0))
        bounds = starts, ids.with_values(tf.maximum(ends, 0))
        cleaned = characters, None
        if self.nfc:
            cleaned = composition.composed_by_character(characters)
        characters_of = offsets.characters_of(offsets.origins(*cleaned), *bounds)
        return offsets.Tokens(ids, *offsets.trimmed(characters, *characters_of))

    def spell(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of words, string [W]: int32 [W, None]."""
        split = tf.strings.bytes_split(words)
        values = tf.reshape(tf.io.decode_raw(split.values, tf.uint8), [-1])
        characters = tf.gather(self._characters, tf.cast(values, tf.int32))
        return self.join(offsets.joined(split.with_values(characters)))

    def join(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of words in characters of the alphabet, string [W]: int32 [W, None]."""
        pieces = self._model.tokenize(words)
        return pieces.with_values(tf.gather(self._ids, pieces.values))


def model_of(pieces: Sequence[str]) -> bytes:
    """Returns a SentencePiece model that joins characters to `pieces`, earlier pieces first.

    SentencePiece joins any two neighbors whose result is a piece, not only the listed pairs. For
    `reachable` pieces the two rules agree: two neighbors that spell such a piece are its two listed
    parts, because its characters were joined as they are when the piece is split alone.

    The model's ids are the indices of `pieces`.
    """
    model = sentencepiece_model_pb2.ModelProto()
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    for index, piece in enumerate(pieces):
        model.pieces.add(piece=piece, score=-index, type=kinds.NORMAL)
    # A model needs an unknown piece. It never occurs, since every character is a piece.
    model.pieces.add(piece="<unk>", score=-len(pieces), type=kinds.UNKNOWN)
    model.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    model.trainer_spec.unk_id = len(pieces)
    normalizer = model.normalizer_spec
    normalizer.add_dummy_prefix = False
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = False
    normalizer.precompiled_charsmap = NO_REPLACEMENTS
    return model.SerializeToString(deterministic=True)


class ByteBPE(Tokenizer):
    """Byte-level BPE.

    Attributes:
      merges: pairs of pieces, in the order in which they are joined.
      add_prefix_space: whether a blank is put before each text that does not begin with one, so
        that its first word is spelled like any other word. In a document that is given as slices,
        only the first slice gets the blank.
      nfc: whether characters are composed first.
      pattern: how words are found, one of `PATTERNS`.
    """

    FILE = "vocab.json"
    pairs = PairForm(separators=2)  # <s> A </s></s> B </s> (Liu et al. 2019, as released)
    keeps_space = True
    _words: WordIds

    def __init__(
        self,
        pieces: Sequence[str],
        merges: Sequence[tuple[str, str]],
        add_prefix_space: bool = False,
        settings: dict[str, Any] | None = None,
        source: str = "the vocabulary",
        nfc: bool = False,
        pattern: str = GPT2,
    ):
        """Makes a tokenizer from pieces and merges.

        Args:
          pieces: the vocabulary in the order of the ids.
          merges: pairs of pieces, in the order in which they are joined.
          add_prefix_space: see the class.
          settings: names of special tokens other than `<pad> <unk> <s> </s> <mask>`.
          source: the name of the vocabulary in messages.
          nfc: whether characters are composed first (Unicode's form NFC).
          pattern: how words are found, one of `PATTERNS`.

        Raises:
          UserError: `add_prefix_space` is set with another pattern than GPT-2's; or the vocabulary
            lacks bytes, special tokens or results of merges; or a merge is listed twice, or before
            the merges that make its parts.
        """
        settings = settings or {}
        if pattern not in PATTERNS:
            raise UserError(f"{source}: {_PATTERN}: {pattern!r} is none of {', '.join(PATTERNS)}")
        if pattern != GPT2 and add_prefix_space:
            raise UserError(
                f"{source}: {_PATTERN}: {pattern!r} does not allow add_prefix_space: set "
                "add_prefix_space to false"
            )
        ids = {piece: i for i, piece in enumerate(pieces)}
        if lacking := [character for character in ALPHABET.values() if character not in ids]:
            raise UserError(
                f"{source} lacks {len(lacking)} of the 256 characters that stand for bytes "
                f"({' '.join(lacking[:8])}{' …' if len(lacking) > 8 else ''}): is this the "
                "vocabulary of a byte-level BPE?"
            )
        base, pieces = pieces, added_tokens.appended(pieces, settings, source)
        specials = find_specials(pieces, settings, source, SPECIALS)
        check_merges(ids, merges, source)
        self.merges = list(merges)
        self.add_prefix_space = add_prefix_space
        self.nfc, self.pattern = nfc, pattern
        splitter = ByteBPESplitter(ids, self.merges, add_prefix_space, source, nfc, pattern)
        self._words = WordIds(self._spell)
        self._merges = PairMerges(ids, self.merges)
        super().__init__(pieces, specials, splitter, settings, len(base))

    @classmethod
    def read(cls, path: AnyPath, settings: dict[str, Any]) -> "ByteBPE":
        """Reads a tokenizer from a `vocab.json`, the `merges.txt` beside it, and settings.

        Raises:
          UserError: see the constructor; or a file is missing or not valid.
        """
        merges = path.with_name(MERGES_FILE)
        if not merges.is_file():
            raise UserError(f"{merges} is missing: byte-level BPE needs it beside {path.name}")
        return cls(
            read_pieces(path),
            read_merges(merges),
            bool(switch(settings, "add_prefix_space", False)),
            settings,
            str(path),
            nfc=composition.is_named(settings, path),
            pattern=str(settings.get(_PATTERN) or GPT2),
        )

    def _spell(self, words: bytes, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of words, int32, and their row splits, [K + 1]; see `WordIds`."""
        try:
            words.decode()
        except UnicodeDecodeError:
            texts = utf8.valid(_cut(words, lengths)).numpy()
            words, lengths = b"".join(texts), np.array(list(map(len, texts)))
        begins = np.cumsum(lengths) - lengths
        kinds = np.frombuffer(words.translate(_KINDS), np.uint8).copy()
        kinds[begins[np.frombuffer(words, np.uint8)[begins] == ord(" ")]] = _ANY
        odd = np.bitwise_and.reduceat(kinds, begins) == 0
        counts = np.ones(len(lengths), np.int64)
        if odd.any():
            found = [find(text.decode(), self.pattern) for text in _cut(words, lengths, odd)]
            counts[odd] = list(map(len, found))
            odd, lengths = np.repeat(odd, counts), np.repeat(lengths, counts)
            lengths[odd] = [len(word.encode()) for each in found for word in each]
        ids, bounds = self._joined(words, lengths)
        return ids, bounds[np.cumsum(np.append(0, counts))]

    def _joined(self, words: bytes, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of words of the pattern, int32, and their row splits, [W + 1]."""
        long = lengths > LONGEST
        if not long.any():
            return self._merges.join(words, lengths)
        short, bounds = self._merges.join(b"".join(_cut(words, lengths, ~long)), lengths[~long])
        spelled = [
            word.decode("latin-1").translate(ALPHABET) for word in _cut(words, lengths, long)
        ]
        ids = self._splitter.join(tf.constant(spelled))
        splits = ids.row_splits.numpy()
        starts, sizes = np.zeros_like(lengths), np.zeros_like(lengths)
        starts[~long], sizes[~long] = bounds[:-1], np.diff(bounds)
        starts[long], sizes[long] = len(short) + splits[:-1], np.diff(splits)
        values = np.concatenate([short, ids.values.numpy()])
        return values[ranges(starts, sizes)], np.cumsum(np.append(0, sizes))

    def _split(self, words: WordIds, texts: Sequence[bytes]) -> tf.RaggedTensor:
        texts = self._splitter.composed_bytes(texts)
        if self.add_prefix_space:
            texts = [b" " * (text[:1] not in (b"", b" ")) + text for text in texts]
        return words.split(texts)

    def encode_slices(self, texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of documents that are given as slices, such as sentences.

        The ids of the slices, concatenated, are the ids of the whole text. A token belongs to the
        slice in which it begins, so a slice has no tokens if a token of an earlier slice extends to
        its end.

        Args:
          texts: the slices of each document. Concatenated they are its text. A document that begins
            with white space continues another document, so `add_prefix_space` puts no blank before
            it.

        Returns:
          See `Tokenizer.encode_slices`.
        """
        wholes = ["".join(text) for text in texts]
        finder = self._splitter.finder(special=False)
        ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        with tf.device("/CPU:0"):
            for chunk in chunks(wholes):
                if finder is None or not any(map(finder.may_be_in, chunk)):
                    spelled, sizes = self._of_parts(chunk)
                else:
                    spelled, sizes = self._of_texts(finder.cut(strings(chunk)))
                ids.append(spelled.values.numpy())
                lengths.append(sizes)
        token_lengths = np.concatenate(lengths)  # in bytes
        slice_lengths = [size for text in texts for size in self._slice_lengths(text)]
        token_begins = np.cumsum(token_lengths) - token_lengths
        slice_bounds = np.cumsum([0, *slice_lengths])
        return np.concatenate(ids), np.searchsorted(token_begins, slice_bounds)

    def _slice_lengths(self, slices: Sequence[str]) -> list[int]:
        """Returns the number of bytes of each slice of a document, in the form NFC if `nfc`."""
        composed = self._splitter.composed_bytes
        parts = composed([part.encode() for part in slices])
        (whole,) = composed([b"".join(parts)])
        if whole != b"".join(parts):  # A slice begins with a combining accent.
            joined = itertools.accumulate(slices)
            ends = [len(text) for text in composed([text.encode() for text in joined])]
            return np.diff([0, *ends]).tolist()
        return [len(part) for part in parts]

    def _of_parts(
        self, texts: Sequence[str], begin: Sequence[bool] | None = None
    ) -> tuple[tf.RaggedTensor, np.ndarray]:
        """Returns the ids of texts without added tokens, and the number of bytes of each token.

        Args:
          texts: the texts.
          begin: whether each text begins a document, and does not follow an added token; None = all
            do.
        """
        begins = [True] * len(texts) if begin is None else begin
        blanks = [
            self.add_prefix_space
            and bool(begins_with_text(text) if first else text[:1] not in ("", " "))
            for text, first in zip(texts, begins, strict=True)
        ]
        composed = self._splitter.composed_bytes([text.encode() for text in texts])
        spelled = self._words.split(
            [b" " * blank + text for text, blank in zip(composed, blanks, strict=True)]
        )
        sizes = self._sizes[spelled.values.numpy()]
        sizes[spelled.row_starts().numpy()[np.array(blanks, bool)]] -= 1
        return self._splitter.allowed(spelled), sizes

    def _of_texts(self, parts: added_tokens.Parts) -> tuple[tf.RaggedTensor, np.ndarray]:
        """Returns the ids of texts, and the number of bytes of each token."""
        raw, texts = _decoded(parts.raw), _decoded(parts.texts)
        starts = np.zeros(len(raw) + 1, bool)
        starts[parts.splits.numpy()] = True
        spelled, sizes = self._of_parts(texts, starts[:-1].tolist())
        # White space around a token belongs to it.
        of_tokens = [len(part.encode()) for part in raw]
        for i, (whole, text) in enumerate(zip(raw, texts, strict=True)):
            if parts.ids[i] < 0 and whole != text:
                left = whole.find(text)
                of_tokens[max(i - 1, 0)] += len(whole[:left].encode())
                of_tokens[min(i + 1, len(raw) - 1)] += len(whole[left + len(text) :].encode())
        rows = parts.with_tokens(spelled)
        lengths = parts.joined(spelled.with_values(sizes), tf.constant(of_tokens, sizes.dtype))
        return rows, lengths.values.numpy()

    @functools.cached_property
    def _sizes(self) -> np.ndarray:
        """The bytes of each piece, int64 [V]."""
        return np.array([len(spelling) for spelling in self.spellings])

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids; special tokens appear as in the vocabulary."""
        return b"".join(self.spellings[i] for i in ids).decode("utf-8", "replace")

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        joined = offsets.joined(tf.gather(tf.constant(self.spellings), ids))
        return utf8.valid(joined)

    def _spelled(self, piece: str) -> bytes:
        return spelling(piece)

    def _blanks_matter(self) -> bool:
        return True

    def _begins_word(self, piece: str, rule: str) -> bool:
        return word_starts.of_bytes(spelling(piece))

    def _ends_word(self, piece: str) -> bool:
        return word_starts.ends_in_space(spelling(piece))

    def _vocabulary_files(self) -> dict[str, bytes]:
        ids = {piece: i for i, piece in enumerate(self.pieces[: self.num_base_pieces])}
        lines = [VERSION, *(f"{a} {b}" for a, b in self.merges), ""]
        return {
            self.FILE: json.dumps(ids, ensure_ascii=False).encode(),
            MERGES_FILE: "\n".join(lines).encode(),
        }

    def _decides(self) -> dict[str, Any]:
        form = {FORM: NFC} if self.nfc else {}
        form |= {} if self.pattern == GPT2 else {_PATTERN: self.pattern}
        return {"add_prefix_space": self.add_prefix_space, **form}

    def _for_others(self) -> dict[str, Any]:
        if self.nfc or self.pair_separators == 1:  # no class of transformers has either of these
            return {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_input_names": ["input_ids", "attention_mask"],
            }
        gpt2 = self._specials["cls_token"] == END
        return {"tokenizer_class": "GPT2Tokenizer" if gpt2 else "RobertaTokenizer"}


def _cut(words: bytes, lengths: np.ndarray, some: np.ndarray | None = None) -> list[bytes]:
    """Cuts concatenated words at their lengths [K]; returns those with a true flag `some` [K]."""
    ends = np.cumsum(lengths)
    begins = ends - lengths
    if some is not None:
        begins, ends = begins[some], ends[some]
    return [words[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]


def _decoded(texts: tf.Tensor) -> list[str]:
    return [text.decode() for text in texts.numpy().tolist()]
