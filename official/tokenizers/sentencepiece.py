"""SentencePiece, unigram and BPE: one `spiece.model` holds the pieces, scores and normalisation.

The ids are those of the `sentencepiece` package, save that where two segmentations score the same
(a long run of one character) another may be taken. Text that spells a special token never gives its
id. What transformers does around SentencePiece for some models (ALBERT and XLNet: quotes, accents,
digits before a comma) is left out.

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
from official.tokenizers.base import Splitter, Tokenizer, find_specials, has_capitals, switch

BLANK = "▁"
# What Python's `split` takes for blanks.
_BLANKS = r"[\t-\r\x{1c}-\x{1f}\x{85}\pZ]+"


class SentencePieceSplitter(Splitter):
    """A SentencePiece model as graph operations."""

    def __init__(self, model: bytes):
        super().__init__()
        self.lower_case = False
        self._model = tf_text.SentencepieceTokenizer(model, out_type=tf.int32)

    def pieces(self) -> list[str]:
        """Returns the vocabulary."""
        ids = tf.range(self._model.vocab_size())
        return [piece.decode() for piece in self._model.id_to_string(ids).numpy()]

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids of string [N], int32 [N, None]."""
        if self.lower_case:
            texts = tf.strings.lower(texts, encoding="utf-8")
        return self._model.tokenize(texts)

    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """See `Splitter`; of what the model normalises, it knows itself where it comes from."""
        characters = cleaned = tf.strings.unicode_split(texts, "UTF-8")
        if self.lower_case:
            cleaned = characters.with_values(tf.strings.lower(characters.values, encoding="utf-8"))
            texts = tf.strings.lower(texts, encoding="utf-8")
        ids, starts, ends = self._model.tokenize_with_offsets(texts)
        places = offsets.characters_of(offsets.origins(cleaned), starts, ends)
        return offsets.Tokens(ids, *offsets.trimmed(characters, *places))


class SentencePiece(Tokenizer):
    """SentencePiece.

    Attributes:
      lower_case: whether text is lower-cased before the model's own normalisation, which may do it
        as well.
    """

    FILE = "spiece.model"

    def __init__(
        self,
        model: bytes,
        lower_case: bool | None = None,
        settings: dict[str, Any] | None = None,
        source: str = "the model",
    ):
        """Makes a tokenizer from a serialized model.

        Args:
          model: what the sentencepiece trainer writes.
          lower_case: None for what the vocabulary tells: no, if any of its pieces has a capital.
          settings: names of special tokens where they are not `[PAD] …` or `<pad> …`.
          source: the name of the model in messages.

        Raises:
          UserError: it is no SentencePiece model, or lacks special tokens.
        """
        settings = settings or {}
        if not model:
            raise UserError(f"{source} is empty: a SentencePiece model is wanted")
        try:
            splitter = SentencePieceSplitter(model)
            pieces = splitter.pieces()
        except tf.errors.OpError as error:
            raise UserError(f"{source} is not a SentencePiece model, or is damaged") from error
        specials = find_specials(pieces, settings, source)
        if lower_case is None:
            lower_case = not has_capitals(pieces, specials)
        self.lower_case = splitter.lower_case = lower_case
        self._bytes = model
        super().__init__(pieces, specials, splitter, settings)

    @classmethod
    def read(cls, path: Path, settings: dict[str, Any]) -> "SentencePiece":
        """Makes a tokenizer from a `spiece.model` and its settings.

        Raises:
          UserError: see the constructor.
        """
        lower_case = switch(settings, "do_lower_case", None)
        return cls(path.read_bytes(), lower_case, settings, str(path))

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns readable text of ids; special tokens show as they are written."""
        words = (f" {self.pieces[i]} " if i in self.special_ids else self.pieces[i] for i in ids)
        return " ".join("".join(words).replace(BLANK, " ").split())

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        special = set(self.special_ids)
        words = [f" {p} " if i in special else p for i, p in enumerate(self.pieces)]
        words = [word.replace(BLANK, " ") for word in words]
        joined = tf.strings.reduce_join(tf.gather(tf.constant(words), ids), axis=1)
        joined = tf.strings.regex_replace(joined, _BLANKS, " ")
        return tf.strings.strip(joined)

    def _spelled(self, piece: str) -> bytes:
        return piece.replace(BLANK, " ").encode()

    def _begins_word(self, piece: str) -> bool:
        return piece.startswith(BLANK)

    def _vocabulary_files(self) -> dict[str, bytes]:
        return {self.FILE: self._bytes}

    def _decides(self) -> dict[str, Any]:
        return {"do_lower_case": self.lower_case}

    def _for_others(self) -> dict[str, Any]:
        # With these transformers leaves the text to the model, as it is done here; only a digit
        # before a comma it splits off in any case.
        return {"tokenizer_class": "AlbertTokenizer", "keep_accents": True, "remove_space": False}
