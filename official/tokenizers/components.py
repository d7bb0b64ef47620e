"""Tokenizers of a `tokenizer.json` that no other kind of this package covers.

A text goes through the normalizers, the pre-tokenizers split it into words, and the model splits
each word: `text_steps`, `word_steps` and `word_models` have the parts. All steps are TensorFlow
operations, so Python, graphs and exports give the same ids: those of the `tokenizers` package. The
folder of such a tokenizer holds `tokenizer.json` itself.

`tokenizer_json` lists the differences to that package.

Shapes: N texts, W words of all texts; a ragged dimension is written None.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import override

from official.tokenizers import added_tokens, offsets, text_steps, utf8, word_models, word_starts
from official.tokenizers.added_tokens import Parts
from official.tokenizers.base import Splitter, Tokenizer
from official.tokenizers.byte_vocabulary import spelling
from official.tokenizers.file_formats import SPECIALS, find_specials
from official.tokenizers.word_starts import BLANK
from official.tokenizers.word_steps import Step, Words
from official.utils.paths import AnyPath

FILE = "tokenizer.json"
_CLASS = "PreTrainedTokenizerFast"  # reads only this file
# How pieces write their text; see `Components.style`.
STYLES = ("bytes", "blanks", "continues", "ends", "words")


class ComponentSplitter(Splitter):
    """Normalizes texts, splits them into words, and words into ids."""

    def __init__(
        self,
        normalizers: Sequence[text_steps.Step],
        pre_tokenizers: Sequence[Step],
        model: word_models.Model,
    ):
        super().__init__()
        self.normalizes = bool(normalizers)
        self._normalizers = list(normalizers)
        self._pre_tokenizers = list(pre_tokenizers)
        self._model = model

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None]."""
        return self._split(texts)

    @override
    def split_parts(self, parts: Parts) -> tf.RaggedTensor:
        return self._split(parts.texts, parts.begins())

    @override
    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        return self._split_with_offsets(texts)

    @override
    def split_parts_with_offsets(self, parts: Parts) -> offsets.Tokens:
        return self._split_with_offsets(parts.texts, parts.begins())

    @override
    def normalized(self, texts: tf.Tensor) -> tf.Tensor:
        for step in self._normalizers:
            texts = step.apply(texts)
        return texts

    @override
    def normalized_characters(
        self, characters: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        attached = tf.zeros(tf.shape(characters.values), tf.bool)
        for step in self._normalizers:
            characters, attached = step.by_character(characters, attached)
        return characters, attached

    def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of strings [N] as the model reads them, string [N, None]."""
        texts = utf8.valid(texts)
        words = self._words(self.normalized(texts), None)
        return tf.RaggedTensor.from_row_splits(words.texts, words.splits, validate=False)

    def _words(
        self,
        texts: tf.Tensor,
        begins: tf.Tensor | None,
        firsts: tf.Tensor | None = None,
        lasts: tf.Tensor | None = None,
    ) -> Words:
        """Returns the words of normalized strings [N]."""
        some = tf.not_equal(texts, "")
        before = tf.concat([[0], tf.cumsum(tf.cast(some, tf.int64))], 0)
        words = Words(tf.boolean_mask(texts, some), before, firsts, lasts)
        for step in self._pre_tokenizers:
            words = step.apply(words, begins)
        return words

    def _split(self, texts: tf.Tensor, begins: tf.Tensor | None = None) -> tf.RaggedTensor:
        texts = utf8.valid(texts)
        words = self._words(self.normalized(texts), begins)
        unique, numbers = tf.unique(words.texts)
        ids = tf.gather(self._model.ids(unique), numbers)  # [W, None]
        splits = tf.gather(tf.cast(ids.row_splits, tf.int64), words.splits)
        return tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False)

    def _split_with_offsets(
        self, texts: tf.Tensor, begins: tf.Tensor | None = None
    ) -> offsets.Tokens:
        characters = tf.strings.unicode_split(texts, "UTF-8")
        cleaned, attached = self.normalized_characters(characters)
        origins = offsets.origins(cleaned, attached)
        whole = self.normalized(texts)
        firsts, lasts = (
            _fitted(part, tf.strings.length(whole)) for part in (origins.firsts, origins.lasts)
        )
        words = self._words(whole, begins, firsts, lasts)
        ids, starts, ends = self._model.ids_with_offsets(words.texts)
        sizes = tf.strings.length(words.texts)
        before = tf.gather(tf.cumsum(sizes) - sizes, offsets.rows_of(ids))
        firsts, lasts = (tf.concat([part, [0]], 0) for part in (words.firsts, words.lasts))
        last = tf.size(firsts) - 1
        start = tf.gather(firsts, tf.minimum(before + starts.values, last))
        end = tf.gather(lasts, tf.clip_by_value(before + ends.values - 1, 0, last)) + 1
        splits = tf.gather(tf.cast(ids.row_splits, tf.int64), words.splits)

        def of_texts(values: tf.Tensor) -> tf.RaggedTensor:
            return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

        bounds = of_texts(start), of_texts(tf.maximum(end, start + 1))
        return offsets.Tokens(of_texts(ids.values), *offsets.trimmed(characters, *bounds))


def _fitted(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the first `lengths` [N] values of each row [N, None]: [sum of lengths].

    A row that is too short is extended by its last value.
    """
    columns = tf.ragged.range(lengths)
    sizes = tf.cast(rows.row_lengths(), tf.int32)
    owner = offsets.rows_of(columns)
    place = tf.minimum(columns.values, tf.gather(sizes, owner) - 1)
    begins = tf.cast(tf.gather(rows.row_starts(), owner), tf.int32)
    values = tf.concat([rows.values, [0]], 0)
    return tf.gather(values, tf.clip_by_value(begins + place, 0, tf.size(values) - 1))


class Components(Tokenizer):
    """A tokenizer of components.

    Attributes:
      described: the objects `normalizer`, `pre_tokenizer`, `post_processor`, `decoder` and `model`
        of the file.
      style: how pieces write their text, one of `STYLES`: 'bytes' = in GPT-2's alphabet of bytes;
        'blanks' = with "▁" for a blank; 'continues' = with a mark before pieces that continue a
        word; 'ends' = with a mark after pieces that end a word; 'words' = as whole words.
    """

    FILE = FILE

    def __init__(
        self,
        pieces: Sequence[str],
        splitter: ComponentSplitter,
        described: Mapping[str, Any],
        style: str,
        mark: str = "",
        settings: dict[str, Any] | None = None,
        source: str = "the vocabulary",
    ):
        """Makes a tokenizer.

        Args:
          pieces: the vocabulary in the order of the ids.
          splitter: splits text.
          described: see the class.
          style: see the class.
          mark: the mark of the styles 'continues' and 'ends'.
          settings: the content of the settings file, with the names of the special tokens.
          source: the name of the file in messages.

        Raises:
          UserError: the vocabulary lacks special tokens.
        """
        settings = {**(settings or {}), "tokenizer_class": _CLASS}
        base, pieces = pieces, added_tokens.appended(pieces, settings, source)
        self.described, self.style, self._mark = dict(described), style, mark
        known = set(pieces)
        usual = dict(SPECIALS)
        if settings.get("unk_token") is None and not known & set(usual["unk_token"]):
            # There is no unknown token: every text can be spelled, or characters that cannot are
            # left out.
            names = [settings.get(key) for key in ("pad_token", "sep_token", "cls_token")]
            usual["unk_token"] = tuple(name for name in names if name) or usual["unk_token"]
        if settings.get("pad_token") is None and not known & set(usual["pad_token"]):
            names = [settings.get(key) for key in ("eos_token", "sep_token")]
            usual["pad_token"] = tuple(name for name in names if name) or usual["pad_token"]
        specials = find_specials(pieces, settings, source, usual)
        super().__init__(pieces, specials, splitter, settings, len(base))

    @classmethod
    def read(cls, path: AnyPath, settings: dict[str, Any]) -> "Components":
        """Reads a tokenizer from a `tokenizer.json`: see `tokenizer_json.read`."""
        raise NotImplementedError("tokenizer_json.read reads these files")

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids; special tokens appear as in the vocabulary."""
        text = b"".join(self.spellings[i] for i in ids).decode("utf-8", "replace")
        return text if self.style == "bytes" else " ".join(text.split())

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        joined = offsets.joined(tf.gather(tf.constant(self.spellings), ids))
        joined = utf8.valid(joined)
        if self.style == "bytes":
            return joined
        joined = tf.strings.regex_replace(joined, f"{offsets.WHITE_SPACE}+", " ")
        return tf.strings.strip(joined)

    def _spelled_added(self, content: str) -> bytes:
        apart = self.style != "bytes"
        return f" {content} ".encode() if apart else content.encode()

    def _spelled(self, piece: str) -> bytes:
        if self.style == "bytes":
            return spelling(piece)
        if piece in self._special_names():
            return f" {piece} ".encode()
        if self.style == "blanks":
            byte = piece[3:5] if len(piece) == 6 and piece.startswith("<0x") else ""
            return bytes.fromhex(byte) if byte else piece.replace(BLANK, " ").encode()
        if self.style == "ends":
            ends = piece.endswith(self._mark)
            return (piece.removesuffix(self._mark) + " " * ends).encode()
        continues = self.style == "continues" and piece.startswith(self._mark)
        return piece.removeprefix(self._mark).encode() if continues else f" {piece}".encode()

    def _special_names(self) -> set[str]:
        return set(self._specials.values())

    def _num_bytes(self, piece: str) -> int:
        if piece in self._special_names():
            return 0
        return super()._num_bytes(piece)

    def _begins_word(self, piece: str, rule: str) -> bool:
        if self.style == "bytes":
            return word_starts.of_bytes(spelling(piece))
        if self.style == "blanks":
            return word_starts.of_piece(piece, rule)
        if self.style == "ends":
            return False
        return self.style == "words" or not piece.startswith(self._mark)

    def _ends_word(self, piece: str) -> bool:
        if self.style == "bytes":
            return bool(piece) and word_starts.ends_in_space(spelling(piece))
        return self.style == "ends" and piece.endswith(self._mark)

    def content(self) -> dict[str, Any]:
        """Returns the content of a `tokenizer.json` with the current added tokens."""
        tokens = self.sentinels | self.special_tokens | self.added
        flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": i, **{name: getattr(tokens[i], name) for name in flags}}
                for i in sorted(tokens)
            ],
            **self.described,
        }

    def _blanks_matter(self) -> bool:
        return True

    def splitting(self) -> dict[str, Any]:
        """Returns all components, the model without its pieces; see the base class."""
        model = {key: value for key, value in self.described["model"].items()
                 if key not in ("vocab", "merges")}  # fmt: skip
        return super().splitting() | self.described | {"model": model}

    def _vocabulary_files(self) -> dict[str, bytes]:
        text = json.dumps(self.content(), ensure_ascii=False, indent=1)
        return {self.FILE: (text + "\n").encode()}

    def _decides(self) -> dict[str, Any]:
        return {}

    def _for_others(self) -> dict[str, Any]:
        # The class replaces this option if the component is not in a sequence.
        alone = self.described["pre_tokenizer"] or {}
        prefix = {"add_prefix_space": alone.get("add_prefix_space", True)}
        return {"tokenizer_class": _CLASS} | (prefix if alone.get("type") == "ByteLevel" else {})
