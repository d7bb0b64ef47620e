"""The part of a tokenizer that a SavedModel carries.

Shapes: N texts; a ragged dimension is written None.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official.tokenizers import offsets


class Splitter(tf.Module):
    """Splits strings into ids, inside a graph or eagerly.

    Text never becomes a special token other than the unknown token: a literal "[MASK]" in a corpus
    is text. The splitters of WordPiece and SentencePiece ensure this for the usual special tokens.
    For others (a `CLS` without brackets, a user-defined SentencePiece symbol) `forbid` ensures it.
    """

    def __init__(self):
        super().__init__()
        self._allowed = None

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None], before `forbid` is applied."""
        raise NotImplementedError

    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """Returns the same ids and the characters that they come from, for valid UTF-8 [N]."""
        raise NotImplementedError

    def forbid(self, ids: Sequence[int], replacement: int, size: int) -> None:
        """Replaces each of `ids` in the results of `split`; `size` is the vocabulary size."""
        table = np.arange(size, dtype=np.int32)
        table[list(ids)] = replacement
        self._allowed = tf.constant(table)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None], without special tokens around them."""
        return self.allowed(self.split(texts))

    def tokenize_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """Returns the ids of `tokenize`, and the characters of string [N] that each comes from."""
        tokens = self.split_with_offsets(tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8"))
        return tokens._replace(ids=self.allowed(tokens.ids))

    def allowed(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns ids of `split` with the replacement in the place of forbidden ids."""
        if self._allowed is not None:
            ids = ids.with_values(tf.gather(self._allowed, ids.values))
        return ids
