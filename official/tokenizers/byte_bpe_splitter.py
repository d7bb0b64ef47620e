"""Byte-level BPE inside a graph.

The words of a batch are made unique, and an operation of SentencePiece joins the pairs of each
word: n bytes take a time of n log n.

Shapes: N texts, W words; a ragged dimension is written None.
"""

import struct
from collections.abc import Mapping, Sequence

import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2

from official.tokenizers import offsets
from official.tokenizers.byte_vocabulary import ALPHABET, reachable, spelling
from official.tokenizers.byte_words import words
from official.tokenizers.splitter import Splitter

# An empty table of replacements: the size of its trie, the trie and the texts. Without a table,
# SentencePiece logs a line whenever the model is loaded.
NO_REPLACEMENTS = struct.pack("<I", 1024) + bytes(1024) + b"\0"


class ByteBPESplitter(Splitter):
    """Splits text into words, and joins the pairs of each word in the order of the merges."""

    normalizes = False

    def __init__(
        self,
        ids: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        add_prefix_space: bool,
        source: str,
    ):
        super().__init__()
        self._add_prefix_space = add_prefix_space
        # By id. Text never becomes an added token with characters outside the alphabet.
        self._bytes_of = tf.constant([len(spelling(piece)) for piece in ids], tf.int64)
        self._characters = tf.constant([ALPHABET[byte] for byte in range(256)])
        pieces = [*ALPHABET.values(), *reachable(merges, source)]
        self._model = tf_text.SentencepieceTokenizer(_model(pieces), out_type=tf.int32)
        self._ids = tf.constant([ids[piece] for piece in pieces], tf.int32)

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None]."""
        return self.split_words(words(texts, self._add_prefix_space))

    def split_words(self, text_words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of the words of texts, string [N, None]: int32 [N, None]."""
        unique, numbers = tf.unique(text_words.values)
        pieces = tf.gather(self.spell(unique), numbers)  # [all words, None]
        ends = tf.gather(pieces.row_splits, text_words.row_splits)
        return tf.RaggedTensor.from_row_splits(pieces.values, ends, validate=False)

    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """See `Splitter`. The pieces of a text have the same bytes as the text."""
        ids = self.split(texts)
        characters = tf.strings.unicode_split(texts, "UTF-8")
        ends = tf.cumsum(tf.gather(self._bytes_of, ids.values))
        lengths = tf.gather(self._bytes_of, ids.values)
        before = tf.gather(tf.concat([[0], ends], 0), ids.row_starts())  # [N]
        if self._add_prefix_space:
            before += tf.cast(tf.strings.regex_full_match(texts, "(?s)[^ ].*"), tf.int64)
        ends -= tf.gather(before, offsets.rows_of(ids))
        starts = ids.with_values(tf.maximum(ends - lengths, 0))
        characters_of = offsets.characters_of(
            offsets.origins(characters), starts, ids.with_values(tf.maximum(ends, 0))
        )
        return offsets.Tokens(ids, *offsets.trimmed(characters, *characters_of))

    def spell(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of words, string [W]: int32 [W, None]."""
        split = tf.strings.bytes_split(words)
        values = tf.reshape(tf.io.decode_raw(split.values, tf.uint8), [-1])
        characters = tf.gather(self._characters, tf.cast(values, tf.int32))
        pieces = self._model.tokenize(offsets.joined(split.with_values(characters)))
        return pieces.with_values(tf.gather(self._ids, pieces.values))


def _model(pieces: Sequence[str]) -> bytes:
    """Returns a SentencePiece model that joins characters to `pieces`, earlier pieces first.

    SentencePiece joins any two neighbours whose result is a piece, not only the listed pairs. For
    `reachable` pieces both are the same: two neighbours that spell such a piece are its two listed
    parts, because its characters were joined in the same way as when it is split alone.

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
