"""Words as characters: 50 ids for each word, as the character convolutions of ELMo read them.

A word is a begin, the bytes of its UTF-8, an end, and padding up to 50 ids (Peters et al., 2018,
and its release). At most 48 bytes are kept. The cut is between bytes, so it may fall inside a
character. The marks of a sentence are words of one character, which is no byte:

  word       260 ... ids
  cat        259 100  98 117 260 261 ... 261
  <S>        259 257 260 261 ... 261
  </S>       259 258 260 261 ... 261

All ids are one above those of the release's training, and 0 means that there is no word, as in the
release's inference.

Shapes: N texts, K words, C = `WIDTH` characters of a word, T words of a row; a ragged dimension is
written None.
"""

import numpy as np
import tensorflow as tf

WIDTH = 50
MAX_BYTES = WIDTH - 2
# The ids: bytes are 1 to 256.
SENTENCE_BEGIN, SENTENCE_END, BEGIN, END, PADDING = 257, 258, 259, 260, 261
TABLE_SIZE = 262  # the number of ids, 0 = no word among them


def mark(sentence_mark: int) -> np.ndarray:
    """Returns the ids of `<S>` or `</S>`, int32 [C], from `SENTENCE_BEGIN` or `SENTENCE_END`."""
    ids = np.full(WIDTH, PADDING, np.int32)
    ids[:3] = BEGIN, sentence_mark, END
    return ids


def of_words(words: tf.Tensor) -> tf.Tensor:
    """Returns the ids of words.

    Args:
      words: UTF-8 strings [...].

    Returns:
      int32 [..., C]. An empty word is a begin, an end, and padding.
    """
    data = tf.io.decode_raw(words, tf.uint8, fixed_length=MAX_BYTES)  # [..., MAX_BYTES]
    return _framed(data, tf.minimum(tf.strings.length(words), MAX_BYTES))


def of_bytes(data: tf.Tensor, lengths: tf.RaggedTensor) -> tf.Tensor:
    """Returns the ids of words that are given as the bytes of a whole row.

    Args:
      data: strings [N], the bytes of the words of each row, one word after the other.
      lengths: int32 [N, None], the number of bytes of each word, at most `MAX_BYTES`.

    Returns:
      int32 [K, C], the ids of the words of all rows.
    """
    flat = tf.io.decode_raw(tf.strings.reduce_join(data, 0), tf.uint8)
    words = tf.RaggedTensor.from_row_lengths(flat, lengths.flat_values, validate=False)
    return _framed(words.to_tensor(shape=[None, MAX_BYTES]), lengths.flat_values)


def in_sentences(words: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns the ids of sentences with their marks, as the encoder reads them.

    Args:
      words: UTF-8 strings [N, None].

    Returns:
      int32 [N, None, C]: `<S>`, the words, and `</S>` of each sentence.
    """
    counts = words.row_lengths()
    ends = [
        tf.RaggedTensor.from_row_lengths(
            tf.repeat(mark(which)[None], words.nrows(), axis=0), tf.ones_like(counts)
        )
        for which in (SENTENCE_BEGIN, SENTENCE_END)
    ]
    ids = words.with_flat_values(of_words(words.flat_values))
    return tf.concat([ends[0], ids, ends[1]], axis=1)


def _framed(data: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the ids of words from their bytes [..., MAX_BYTES], of which `lengths` count."""
    columns = tf.range(MAX_BYTES)
    lengths = lengths[..., None]
    inside = tf.where(columns < lengths, tf.cast(data, tf.int32) + 1, PADDING)
    inside = tf.where(columns == lengths, END, inside)
    first = tf.fill(tf.shape(lengths), BEGIN)
    last = tf.where(lengths == MAX_BYTES, END, PADDING)
    return tf.concat([first, inside, last], axis=-1)
