"""Pieces such as "▁1990,", split into the number, encoded again, and the comma.

The releases of ALBERT (`tokenization.py`) and XLNet (`prepro_utils.py`) do so in `encode_pieces`.
What a piece becomes depends on the piece alone, so it is a table, made once.

Shapes: N texts, V pieces of the vocabulary, S pieces that are split, K tokens of all texts, P of
all texts after the split; a ragged dimension is written None.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.tokenizers import offsets

BLANK = "▁"


class _Parts(NamedTuple):
    """What a piece is split into.

    Attributes:
      ids: of the parts.
      rest: bytes from the end of each part to the end of the piece.
      text: what the piece spells, in bytes; empty where the parts do not spell the same.
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
          encode: the ids of texts.
          ids_of: the ids of pieces, `unk_id` for what is no piece.
          unk_id: of what the vocabulary cannot spell.
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

    def split_with_places(
        self, texts: tf.Tensor, ids: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Splits pieces and their places in the texts.

        Where the model has normalised what a piece stands for, each part has the whole of it.

        Args:
          texts: string [N], as the model reads them.
          ids: int32 [N, None].
          starts: the first byte of each token, integers [N, None].
          ends: behind its last byte.

        Returns:
          ids, starts and ends, int32 [N, None].
        """
        starts, ends = (
            values.with_values(tf.cast(values.values, tf.int32)) for values in (starts, ends)
        )
        split, token, number, place = self._split(ids)
        apart = tf.gather(self._spelled(texts, ids, ends), token)  # [P]
        start, end = (tf.gather(values.values, token) for values in (starts, ends))
        left = tf.where(
            apart & (number > 0), end - tf.gather(self._rest, tf.maximum(place - 1, 0)), start
        )
        right = tf.where(apart, end - tf.gather(self._rest, place), end)
        return split, split.with_values(left), split.with_values(right)

    def _split(
        self, ids: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns new ids and, for each of them, its token, number and place in the table: [P]."""
        row = tf.gather(self._row_of, ids.values)  # [K]
        counts, firsts = tf.gather(self._counts, row), tf.gather(self._firsts, row)
        places = tf.ragged.range(firsts, firsts + counts)  # [K, None]
        token, place = offsets.rows_of(places), places.values  # [P]
        whole = tf.equal(tf.gather(row, token), 0)
        new = tf.where(whole, tf.gather(ids.values, token), tf.gather(self._ids, place))
        splits = tf.gather(places.row_splits, ids.row_splits)
        number = place - tf.gather(firsts, token)
        return tf.RaggedTensor.from_row_splits(new, splits, validate=False), token, number, place

    def _spelled(self, texts: tf.Tensor, ids: tf.RaggedTensor, ends: tf.RaggedTensor) -> tf.Tensor:
        """Whether a token is of a piece that is split, and its place ends as it is spelled: [K]."""
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
