"""Splits pieces such as "▁1990," into the number, which is encoded again, and the comma.

This is done in `encode_pieces` of the releases of ALBERT (`tokenization.py`) and XLNet
(`prepro_utils.py`). The parts of a piece depend only on the piece, so they are computed once, as a
table.

Shapes: N texts, V pieces of the vocabulary, S pieces that are split, K tokens of all texts before
and P after the split; a ragged dimension is written None.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.tokenizers import offsets

BLANK = "▁"


class _Parts(NamedTuple):
    """The parts of a piece.

    Attributes:
      ids: the ids of the parts.
      rest: number of bytes from the end of each part to the end of the piece.
      text: the text of the piece in bytes; empty if the parts do not spell the same text.
    """

    ids: list[int]
    rest: list[int]
    text: bytes


class DigitCommas:
    """The pieces of a vocabulary that end in a digit and a comma, and their parts."""

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
          ids_of: returns the ids of pieces, `unk_id` for strings that are no pieces.
          unk_id: id of the unknown token.
        """
        split = [i for i, p in enumerate(pieces) if p[-1:] == "," and p[-2:-1].isdigit()]
        numbers = encode([pieces[i][:-1].replace(BLANK, "") for i in split])
        table = [_Parts([0], [0], b"")]  # of the pieces that are not split
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

    def split_with_offsets(
        self, texts: tf.Tensor, ids: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Splits pieces and their offsets in the texts.

        If the model has normalised the text of a piece, each part has the offsets of the piece.

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
        """Returns the new ids, and the token, number and table index of each: [P]."""
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
        """Returns whether a token is split and the text before its end is its piece: [K]."""
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
