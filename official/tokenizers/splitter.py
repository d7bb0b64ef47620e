"""The part of a tokenizer that a SavedModel carries.

Shapes: N texts, C characters of all texts, P parts of all texts; a ragged dimension is written
None.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from official.tokenizers import offsets
from official.tokenizers.added_tokens import AddedToken, Finder, Parts


class Splitter(tf.Module):
    """Splits strings into ids, inside a graph or eagerly.

    Text never becomes a special token other than the unknown token unless it is asked for: a
    literal "[MASK]" in a corpus is text. The splitters of WordPiece and SentencePiece ensure this
    for the usual special tokens. For others (a `CLS` without brackets, a user-defined SentencePiece
    symbol) `forbid` ensures it. Added tokens are found before the text is split.
    """

    # Whether a splitter normalises text.
    normalizes = True

    def __init__(self):
        super().__init__()
        self._allowed = None
        self._added: Finder | None = None
        self._special: Finder | None = None  # made when it is asked for
        self._special_tokens: dict[int, AddedToken] = {}

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None], before `forbid` is applied."""
        raise NotImplementedError

    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """Returns the same ids and the characters that they come from, for valid UTF-8 [N]."""
        raise NotImplementedError

    def split_parts(self, parts: Parts) -> tf.RaggedTensor:
        """Returns the ids of the parts of texts that are text, int32 [P, None]."""
        return self.split(parts.texts)

    def split_parts_with_offsets(self, parts: Parts) -> offsets.Tokens:
        """Returns the same ids and the characters of the parts that they come from."""
        return self.split_with_offsets(parts.texts)

    def normalized(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns strings [N] as they are before they are split."""
        raise NotImplementedError

    def normalized_characters(
        self, characters: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor | None]:
        """Returns the normalised form of each of C characters, string [N, None].

        Also returns whether each belongs to the one before it, bool [C]; None = none does.
        """
        raise NotImplementedError

    def forbid(self, ids: Sequence[int], replacement: int, size: int) -> None:
        """Replaces each of `ids` in the results of `split`; `size` is the vocabulary size."""
        table = np.arange(size, dtype=np.int32)
        table[list(ids)] = replacement
        self._allowed = tf.constant(table)

    def find(self, added: Mapping[int, AddedToken], special: Mapping[int, AddedToken]) -> None:
        """Sets the tokens that are found in text before it is split.

        Args:
          added: the tokens that are found in every text.
          special: those that are found besides where special tokens are asked for.
        """
        self._added = self._finder(added) if added else None
        self._special_tokens = {**added, **special}

    def _finder(self, tokens: Mapping[int, AddedToken]) -> Finder:
        return Finder(tokens, self if self.normalizes else None)

    def finder(self, special: bool) -> Finder | None:
        """Returns what finds tokens in texts; None = no token is found."""
        if not special:
            return self._added
        if self._special is None:
            with tf.init_scope():
                self._special = self._finder(self._special_tokens)
        return self._special

    def tokenize(self, texts: tf.Tensor, special: bool = False) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None], without special tokens around them.

        Args:
          texts: UTF-8 strings [N].
          special: whether text that spells a special token becomes its id.
        """
        finder = self.finder(special)
        if finder is None:
            return self.allowed(self.split(texts))
        parts = finder.cut(texts)
        return parts.with_tokens(self.allowed(self.split_parts(parts)))

    def tokenize_with_offsets(self, texts: tf.Tensor, special: bool = False) -> offsets.Tokens:
        """Returns the ids of `tokenize`, and the characters of string [N] that each comes from."""
        finder = self.finder(special)
        if finder is None:
            texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
            tokens = self.split_with_offsets(texts)
            return tokens._replace(ids=self.allowed(tokens.ids))
        parts = finder.cut(texts)
        tokens = self.split_parts_with_offsets(parts)
        return parts.tokens_with_offsets(tokens._replace(ids=self.allowed(tokens.ids)))

    def allowed(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns ids of `split` with the replacement in the place of forbidden ids."""
        if self._allowed is not None:
            ids = ids.with_values(tf.gather(self._allowed, ids.values))
        return ids
