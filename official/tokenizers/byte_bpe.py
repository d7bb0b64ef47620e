"""Byte-level BPE, as GPT-2 and RoBERTa have it: `vocab.json` and `merges.txt`.

Text is cut into words by GPT-2's pattern, the bytes of a word are its first pieces, and neighbours
are joined pair by pair: always the pair of the word that stands first in `merges.txt`, wherever it
occurs, until no pair of the word stands there (Radford et al. 2019, section 2.2; Sennrich et al.
2016). Every text can be spelled, so nothing is unknown. A blank belongs to the word after it; in
the files a byte stands as a printable character (the blank as "Ġ").

The ids are those of the `tokenizers` package, and the same inside a graph. The words of a batch are
made unique, and an operation of SentencePiece joins the pairs of each: n bytes cost n log n.
A graph has no regular expressions with look-ahead, so the last blank of several before a word is
split off first, by a pattern of its own.

Text that spells a special token, such as a literal "<mask>", is split as text and never gives the
special id.

Ids tell a text whole: `decode` gives it back with its white space and control characters. A word of
the pattern has white space at its beginning or is white space, so a text may be parted where white
space begins: its parts have the ids of the whole. `encode_slices` gives documents the ids of their
whole text, wherever the slices are cut.

Shapes: N texts, W words, S slices.
"""

import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2

from official.tokenizers import offsets, word_starts
from official.tokenizers.base import Splitter, Tokenizer, chunks, find_specials, strings, switch
from official.utils.errors import UserError

MERGES_FILE = "merges.txt"
# GPT-2 has one token, between documents, for all that it needs.
END = "<|endoftext|>"
SPECIALS = {
    "pad_token": ("<pad>", END),
    "unk_token": ("<unk>", END),
    "cls_token": ("<s>", END),
    "sep_token": ("</s>", END),
    "mask_token": ("<mask>",),
}
_VERSION = "#version: 0.2"

# GPT-2's classes. TensorFlow's regular expressions know Unicode 15.0; the letters and digits that
# 15.1 and 16.0 added are named, so that all agree with the `tokenizers` package.
_SPACE = r"\t\n\v\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_LETTER = (
    r"\p{L}\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65}"
    r"\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}"
    r"\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{13460}-\x{143fa}\x{16100}-\x{1611d}"
    r"\x{16d40}-\x{16d6c}\x{18cff}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2ebf0}-\x{2ee5d}"
)
_DIGIT = (
    r"\p{N}\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{16130}-\x{16139}"
    r"\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e5f1}-\x{1e5fa}"
)
_LAST_BLANK = rf"([{_SPACE}]+)([{_SPACE}][^{_SPACE}])"
# Without a group around it the search is ten times faster.
_WORD = (
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{_LETTER}]+| ?[{_DIGIT}]+| ?[^{_SPACE}{_LETTER}{_DIGIT}]+"
    rf"|[{_SPACE}]+"
)
_CUT = b"\xff"  # no UTF-8 text has this byte
# What is not in `_SPACE`: for Python's `\s`, four control characters are white space as well.
_BEGINS_WITH_TEXT = re.compile(r"[\S\x1c-\x1f]").match


def _alphabet() -> dict[int, str]:
    """Byte → the character that stands for it, in the order of GPT-2's vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {byte: chr(byte) for byte in printable}
    return table | {byte: chr(256 + i) for i, byte in enumerate(others)}


ALPHABET = _alphabet()
_BYTES = {character: byte for byte, character in ALPHABET.items()}


def words(texts: tf.Tensor, add_prefix_space: bool = False) -> tf.RaggedTensor:
    """Cuts texts into words.

    Args:
      texts: UTF-8 strings [N]; bytes that are not UTF-8 become U+FFFD.
      add_prefix_space: put a blank before each text that does not begin with one.

    Returns:
      Strings [N, None]: the words, which together are the text, and empty strings among them.
    """
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
    if add_prefix_space:
        texts = tf.strings.regex_replace(texts, "^[^ ]", r" \0", replace_global=False)
    texts = tf.strings.regex_replace(texts, _LAST_BLANK, rb"\1" + _CUT + rb"\2")
    return tf.strings.split(tf.strings.regex_replace(texts, _WORD, rb"\0" + _CUT), _CUT)


class ByteBPESplitter(Splitter):
    """Words, then pairs joined in the order of the merges."""

    def __init__(
        self,
        ids: dict[str, int],
        merges: Sequence[tuple[str, str]],
        add_prefix_space: bool,
        source: str,
    ):
        super().__init__()
        self._add_prefix_space = add_prefix_space
        # By id. An added token that is no text of the alphabet is never split off.
        self._bytes_of = tf.constant([len(_spelled(piece)) for piece in ids], tf.int64)
        self._characters = tf.constant([ALPHABET[byte] for byte in range(256)])
        pieces = [*ALPHABET.values(), *reachable(merges, source)]
        self._model = tf_text.SentencepieceTokenizer(_model(pieces), out_type=tf.int32)
        self._ids = tf.constant([ids[piece] for piece in pieces], tf.int32)

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids of string [N], int32 [N, None]."""
        return self.split_words(words(texts, self._add_prefix_space))

    def split_words(self, found: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns ids of words, string [N, None], as `words` gives them: int32 [N, None]."""
        unique, numbers = tf.unique(found.values)
        pieces = tf.gather(self._spell(unique), numbers)  # [all words, None]
        ends = tf.gather(pieces.row_splits, found.row_splits)
        return tf.RaggedTensor.from_row_splits(pieces.values, ends, validate=False)

    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """See `Splitter`; the bytes of a text's pieces are those of the text."""
        ids = self.split(texts)
        characters = tf.strings.unicode_split(texts, "UTF-8")
        ends = tf.cumsum(tf.gather(self._bytes_of, ids.values))
        lengths = tf.gather(self._bytes_of, ids.values)
        before = tf.gather(tf.concat([[0], ends], 0), ids.row_starts())  # [N]
        if self._add_prefix_space:
            before += tf.cast(tf.strings.regex_full_match(texts, "(?s)[^ ].*"), tf.int64)
        ends -= tf.gather(before, offsets.rows_of(ids))
        starts = ids.with_values(tf.maximum(ends - lengths, 0))
        places = offsets.characters_of(
            offsets.origins(characters), starts, ids.with_values(tf.maximum(ends, 0))
        )
        return offsets.Tokens(ids, *offsets.trimmed(characters, *places))

    def _spell(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of words [W], int32 [W, None]."""
        split = tf.strings.bytes_split(words)
        values = tf.reshape(tf.io.decode_raw(split.values, tf.uint8), [-1])
        characters = tf.gather(self._characters, tf.cast(values, tf.int32))
        pieces = self._model.tokenize(offsets.joined(split.with_values(characters)))
        return pieces.with_values(tf.gather(self._ids, pieces.values))


def reachable(merges: Sequence[tuple[str, str]], source: str = "the vocabulary") -> list[str]:
    """Returns the results of the merges that occur in some text, in the order of the merges.

    Of a merge that occurs, both parts are results of earlier merges, and its result is a single
    piece when it is split alone. For as long as no pair across its ends is joined, what becomes of
    a stretch of characters depends on these characters only.

    Args:
      merges: pairs of pieces, each part a character or the result of an earlier merge.
      source: the name of the vocabulary in messages.

    Raises:
      UserError: the first merge that makes a part of another merge occurs in no text, and a later
        merge makes it, so that the order of the merges is not the order in which they are done.
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    made: dict[str, tuple[int, str, str]] = {}  # result → the merge's rank and its two parts

    def joined_across(left: str, right: str, limit: int) -> bool:
        """Whether a merge before `limit` joins the end of `left` with the beginning of `right`.

        It goes back in time from the merge `limit`. The later of the two merges that made `left`
        and `right` is undone, and the pair that meets at the border then must not be a merge that
        comes before the undone one. Of two equal merges the left one is done first.
        """
        while left in made or right in made:
            left_rank = made[left][0] if left in made else -1
            right_rank = made[right][0] if right in made else -1
            if left_rank > right_rank:
                limit, left = left_rank, made[left][2]
            else:
                limit, right = right_rank + 1, made[right][1]
            if ranks.get((left, right), limit) < limit:
                return True
        return False

    unmade = {}  # part → the first merge that asks for it in vain
    for rank, pair in enumerate(merges):
        result = "".join(pair)
        missing = [part for part in pair if len(part) > 1 and part not in made]
        unmade |= {part: rank for part in missing if part not in unmade}
        if not missing and result not in made and not joined_across(*pair, rank):
            if result in unmade:
                raise UserError(
                    f"{source}: merge {unmade[result] + 1} ({' '.join(merges[unmade[result]])}) "
                    f"joins {result!r}, which no merge before merge {rank + 1} "
                    f"({' '.join(pair)}) makes of any text: are the lines in their order?"
                )
            made[result] = rank, *pair
    return list(made)


def _model(pieces: Sequence[str]) -> bytes:
    """Returns a SentencePiece model that joins characters to `pieces`, earlier pieces first.

    SentencePiece joins any two neighbours whose result is a piece, not the listed pairs only. With
    pieces that are `reachable` both are the same: two neighbours that spell such a piece are its
    two listed parts, because its characters have been joined as they are when it is split alone.

    The model's ids are the indices of `pieces`.
    """
    model = sentencepiece_model_pb2.ModelProto()
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    for index, piece in enumerate(pieces):
        model.pieces.add(piece=piece, score=-index, type=kinds.NORMAL)
    # A model has to have an unknown piece. No text gives it, since every character is a piece.
    model.pieces.add(piece="<unk>", score=-len(pieces), type=kinds.UNKNOWN)
    model.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    model.trainer_spec.unk_id = len(pieces)
    normalizer = model.normalizer_spec
    normalizer.add_dummy_prefix = False
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = False
    # An empty table of replacements: size of its trie, the trie, the texts. Without a table
    # SentencePiece logs a line whenever the model is loaded.
    normalizer.precompiled_charsmap = struct.pack("<I", 1024) + bytes(1024) + b"\0"
    return model.SerializeToString(deterministic=True)


class ByteBPE(Tokenizer):
    """Byte-level BPE.

    Attributes:
      merges: pairs of pieces, in the order in which they are joined.
      add_prefix_space: whether a blank is put before each text that does not begin with one, so
        that its first word is spelled like any other. Of a document in slices this is the first
        slice alone.
    """

    FILE = "vocab.json"
    pair_separators = 2  # <s> A </s></s> B </s> (Liu et al. 2019, as released)
    keeps_space = True

    def __init__(
        self,
        pieces: Sequence[str],
        merges: Sequence[tuple[str, str]],
        add_prefix_space: bool = False,
        settings: dict[str, Any] | None = None,
        source: str = "the vocabulary",
    ):
        """Makes a tokenizer from pieces and merges.

        Args:
          pieces: the vocabulary in the order of the ids.
          merges: pairs of pieces; what is to be joined first stands first.
          add_prefix_space: see the class.
          settings: names of special tokens where they are not `<pad> <unk> <s> </s> <mask>`.
          source: the name of the vocabulary in messages.

        Raises:
          UserError: a vocabulary without some bytes, special tokens or results of merges; a merge
            that stands twice, or before the one that makes its parts.
        """
        settings = settings or {}
        ids = {piece: i for i, piece in enumerate(pieces)}
        if lacking := [character for character in ALPHABET.values() if character not in ids]:
            raise UserError(
                f"{source} lacks {len(lacking)} of the 256 characters that stand for bytes "
                f"({' '.join(lacking[:8])}{' …' if len(lacking) > 8 else ''}): is this the "
                "vocabulary of a byte-level BPE?"
            )
        specials = find_specials(pieces, settings, source, SPECIALS)
        _check_merges(ids, merges, source)
        self.merges = list(merges)
        self.add_prefix_space = add_prefix_space
        splitter = ByteBPESplitter(ids, self.merges, add_prefix_space, source)
        super().__init__(pieces, specials, splitter, settings)

    @classmethod
    def read(cls, path: Path, settings: dict[str, Any]) -> "ByteBPE":
        """Makes a tokenizer from a `vocab.json`, the `merges.txt` beside it, and settings.

        Raises:
          UserError: see the constructor; or a file is missing or not what it should be.
        """
        merges = path.with_name(MERGES_FILE)
        if not merges.is_file():
            raise UserError(f"{merges} is missing: byte-level BPE needs it beside {path.name}")
        return cls(
            _read_pieces(path),
            _read_merges(merges),
            bool(switch(settings, "add_prefix_space", False)),
            settings,
            str(path),
        )

    def encode_slices(self, texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of documents that are given in slices, such as sentences.

        A document has the ids of its whole text, and a slice begins with the first token that
        begins in it: it has no token if the one before it reaches to its end.

        Args:
          texts: the slices of each document. Together they are its text. One that begins with white
            space is the rest of a document, before which `add_prefix_space` puts nothing.

        Returns:
          See `Tokenizer.encode_slices`.
        """
        wholes = ["".join(text) for text in texts]
        blanks = [self.add_prefix_space and bool(_BEGINS_WITH_TEXT(whole)) for whole in wholes]
        sizes = np.array([len(spelling) for spelling in self.spellings])
        ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        with tf.device("/CPU:0"):
            for chunk in chunks([" " * b + whole for b, whole in zip(blanks, wholes, strict=True)]):
                spelled = self._splitter.split_words(words(strings(chunk)))
                lengths.append(sizes[spelled.values])
                ids.append(self._splitter.allowed(spelled).values.numpy())
        token_lengths = np.concatenate(lengths)  # in bytes
        slice_lengths = [
            len(part.encode()) + (blank and not number)
            for text, blank in zip(texts, blanks, strict=True)
            for number, part in enumerate(text)
        ]
        token_begins = np.cumsum(token_lengths) - token_lengths
        slice_bounds = np.cumsum([0, *slice_lengths])
        return np.concatenate(ids), np.searchsorted(token_begins, slice_bounds)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids; special tokens show as they are written."""
        return b"".join(self.spellings[i] for i in ids).decode("utf-8", "replace")

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        joined = offsets.joined(tf.gather(tf.constant(self.spellings), ids))
        return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8")

    def _spelled(self, piece: str) -> bytes:
        return _spelled(piece)

    def _begins_word(self, piece: str, rule: str) -> bool:
        return word_starts.of_bytes(_spelled(piece))

    def _ends_word(self, piece: str) -> bool:
        return word_starts.ends_in_space(_spelled(piece))

    def _vocabulary_files(self) -> dict[str, bytes]:
        ids = {piece: i for i, piece in enumerate(self.pieces)}
        lines = [_VERSION, *(f"{a} {b}" for a, b in self.merges), ""]
        return {
            self.FILE: json.dumps(ids, ensure_ascii=False).encode(),
            MERGES_FILE: "\n".join(lines).encode(),
        }

    def _decides(self) -> dict[str, Any]:
        return {"add_prefix_space": self.add_prefix_space}

    def _for_others(self) -> dict[str, Any]:
        gpt2 = self._specials["cls_token"] == END
        return {"tokenizer_class": "GPT2Tokenizer" if gpt2 else "RobertaTokenizer"}


def _spelled(piece: str) -> bytes:
    if all(character in _BYTES for character in piece):
        return bytes(_BYTES[character] for character in piece)
    return piece.encode()  # an added token that is no text of this alphabet


def _check_merges(ids: dict[str, int], merges: Sequence[tuple[str, str]], source: str) -> None:
    made = set(ALPHABET.values())
    seen = set()
    for number, pair in enumerate(merges, 1):
        where = f"{source}: merge {number} ({' '.join(pair)})"
        for part in pair:
            if part not in made:
                raise UserError(
                    f"{where}: {part!r} is neither a byte nor what an earlier merge makes: are "
                    "the lines of merges.txt all there, and in their order?"
                )
        if pair in seen:
            raise UserError(f"{where}: stands twice")
        if "".join(pair) not in ids:
            raise UserError(
                f"{where}: makes {''.join(pair)!r}, which the vocabulary lacks: are vocab.json "
                "and merges.txt of the same model?"
            )
        seen.add(pair)
        made.add("".join(pair))


def _read_pieces(path: Path) -> list[str]:
    wanted = 'an object is wanted, such as {"<s>": 0, "<pad>": 1, …}'
    try:
        pairs = json.loads(path.read_bytes(), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): {wanted}") from error
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise UserError(f"{path}: {wanted}")
    if not pairs:
        raise UserError(f"{path} is empty: {wanted}")
    pieces: dict[int, str] = {}
    for piece, i in pairs:
        if type(i) is not int or not 0 <= i < len(pairs):
            raise UserError(
                f"{path}: {piece!r} has id {i!r}, but {len(pairs):,} pieces have the whole numbers "
                f"from 0 to {len(pairs) - 1:,}"
            )
        if i in pieces:
            raise UserError(f"{path}: {pieces[i]!r} and {piece!r} have the same id, {i}")
        pieces[i] = piece
    if len(set(pieces.values())) < len(pieces):
        twice = next(p for p, _ in pairs if sum(p == other for other, _ in pairs) > 1)
        raise UserError(f"{path}: {twice!r} stands twice")
    return [pieces[i] for i in range(len(pieces))]


def _read_merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: one merge a line is wanted, such as `Ġ t`"
        ) from error
    merges = []
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, blank, second = line.partition(" ")
        if not (first and second) or " " in second:
            raise UserError(
                f"{path}:{number}: {line!r}: two pieces with a blank between them are wanted, such "
                "as `Ġ t`"
            )
        merges.append((first, second))
    return merges
