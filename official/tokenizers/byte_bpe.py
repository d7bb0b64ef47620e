"""Byte-level BPE of GPT-2 and RoBERTa: `vocab.json` and `merges.txt`.

Text is split into words by GPT-2's pattern. The first pieces of a word are its bytes. Neighbours
are joined pair by pair: always the pair that comes first in `merges.txt`, wherever it occurs in the
word, until the file has no pair of the word (Radford et al. 2019, section 2.2; Sennrich et al.
2016). Every text can be spelled, so no token is unknown. A blank belongs to the word after it.

The ids are those of the `tokenizers` package, in Python and inside a graph. Text that spells a
special token, such as a literal "<mask>", is split as text unless the special ids are asked for.

Ids represent a text exactly: `decode` returns it with its white space and control characters. A
word of the pattern begins with white space or has none, so a text can be split before white space:
the ids of its parts are the ids of the whole. `encode_slices` gives documents the ids of their
whole text, wherever the slices are cut.

Shapes: N texts, S slices.
"""

import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official.tokenizers import added_tokens, offsets, word_starts
from official.tokenizers.base import Tokenizer
from official.tokenizers.byte_bpe_splitter import ByteBPESplitter
from official.tokenizers.byte_vocabulary import (
    ALPHABET,
    MERGES_FILE,
    VERSION,
    read_merges,
    read_pieces,
    spelling,
)
from official.tokenizers.byte_vocabulary import check as check_merges
from official.tokenizers.byte_word_ids import WordIds
from official.tokenizers.byte_words import begins_with_text
from official.tokenizers.settings_file import find_specials, switch
from official.tokenizers.text_tensors import chunks, strings
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# GPT-2 has one special token, which also separates documents.
END = "<|endoftext|>"
SPECIALS = {
    "pad_token": ("<pad>", END),
    "unk_token": ("<unk>", END),
    "cls_token": ("<s>", END),
    "sep_token": ("</s>", END),
    "mask_token": ("<mask>",),
}


class ByteBPE(Tokenizer):
    """Byte-level BPE.

    Attributes:
      merges: pairs of pieces, in the order in which they are joined.
      add_prefix_space: whether a blank is put before each text that does not begin with one, so
        that its first word is spelled like any other word. In a document of slices, only the first
        slice gets the blank.
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
          merges: pairs of pieces, in the order in which they are joined.
          add_prefix_space: see the class.
          settings: names of special tokens other than `<pad> <unk> <s> </s> <mask>`.
          source: the name of the vocabulary in messages.

        Raises:
          UserError: the vocabulary lacks bytes, special tokens or results of merges; or a merge is
            listed twice, or before the merges that make its parts.
        """
        settings = settings or {}
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
        splitter = ByteBPESplitter(ids, self.merges, add_prefix_space, source)
        self._words = WordIds(splitter.spell)
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
        )

    def _ids(self, texts: Sequence[str], special: bool) -> tf.RaggedTensor:
        finder = self._splitter.finder(special)
        if finder is None or not any(map(finder.may_be_in, texts)):
            return self._ids_of_parts(texts)
        parts = finder.cut(strings(texts))
        return parts.with_tokens(self._ids_of_parts(_decoded(parts.texts)))

    def _ids_of_parts(self, texts: Sequence[str]) -> tf.RaggedTensor:
        """Returns the ids of texts without added tokens."""
        if self.add_prefix_space:
            texts = [" " * (text[:1] not in ("", " ")) + text for text in texts]
        return self._splitter.allowed(self._words.split(texts))

    def encode_slices(self, texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of documents that are given as slices, such as sentences.

        A document has the ids of its whole text. A token belongs to the slice in which it begins,
        so a slice has no tokens if a token of an earlier slice extends to its end.

        Args:
          texts: the slices of each document. Concatenated they are its text. A document that begins
            with white space continues another one, so `add_prefix_space` puts no blank before it.

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
        slice_lengths = [len(part.encode()) for text in texts for part in text]
        token_begins = np.cumsum(token_lengths) - token_lengths
        slice_bounds = np.cumsum([0, *slice_lengths])
        return np.concatenate(ids), np.searchsorted(token_begins, slice_bounds)

    def _of_parts(
        self, texts: Sequence[str], begin: Sequence[bool] | None = None
    ) -> tuple[tf.RaggedTensor, np.ndarray]:
        """Returns the ids of texts without added tokens, and how many of its bytes each token has.

        Args:
          texts: the texts.
          begin: whether each begins a document; None = all do. Any other follows an added token.
        """
        begins = [True] * len(texts) if begin is None else begin
        blanks = [
            self.add_prefix_space
            and bool(begins_with_text(text) if first else text[:1] not in ("", " "))
            for text, first in zip(texts, begins, strict=True)
        ]
        spelled = self._words.split(
            [" " * blank + text for text, blank in zip(texts, blanks, strict=True)]
        )
        sizes = self._sizes[spelled.values.numpy()]
        sizes[spelled.row_starts().numpy()[np.array(blanks, bool)]] -= 1
        return self._splitter.allowed(spelled), sizes

    def _of_texts(self, parts: added_tokens.Parts) -> tuple[tf.RaggedTensor, np.ndarray]:
        """Returns the ids of texts, and how many of the bytes each token has."""
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
        return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8")

    def _spelled(self, piece: str) -> bytes:
        return spelling(piece)

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
        return {"add_prefix_space": self.add_prefix_space}

    def _for_others(self) -> dict[str, Any]:
        gpt2 = self._specials["cls_token"] == END
        return {"tokenizer_class": "GPT2Tokenizer" if gpt2 else "RobertaTokenizer"}


def _decoded(texts: tf.Tensor) -> list[str]:
    return [text.decode() for text in texts.numpy().tolist()]
