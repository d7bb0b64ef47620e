"""Numbers the units of a sequence: tokens, words, phrases or entities.

Units are sequences of tokens, numbered from 0 in each row. Special tokens and padding have the
number -1. They are never hidden and separate units.

Shapes: B rows, T tokens with padding.
"""

from collections.abc import Mapping

import tensorflow as tf

from official.corruption.vocabulary import Vocabulary

_FEW = 8  # ids: comparisons with so few are faster than a gather


def tokens(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Numbers the tokens: int32 [B, T]."""
    maskable = maskable_tokens(vocabulary, batch)
    return numbered(maskable, maskable)


def words(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Numbers the words: int32 [B, T]."""
    return _joined(vocabulary, batch, False)


def phrases(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Numbers the phrases, and the words outside phrases: int32 [B, T]."""
    return _joined(vocabulary, batch, batch["phrase_inner"])


def entities(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Numbers the entities, and the words outside entities: int32 [B, T]."""
    return _joined(vocabulary, batch, batch["entity_inner"])


def sequences(flags: tf.Tensor) -> tf.Tensor:
    """Numbers the sequences of true flags [B, T]: int32 [B, T], -1 where a flag is false."""
    return numbered(flags & ~_previous(flags), flags)


def _joined(
    vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor], inner: tf.Tensor | bool
) -> tf.Tensor:
    """Numbers words; where `inner` [B, T] is true, a word is joined to the word before.

    In rows of reversed text (`backward` [B]) the first piece of a word comes last.
    """
    maskable = maskable_tokens(vocabulary, batch)
    starts = tf.gather(vocabulary.word_starts, batch["token_ids"])
    ends = tf.zeros_like(starts)
    if vocabulary.word_ends is not None:
        ends = tf.gather(vocabulary.word_ends, batch["token_ids"])
    first = starts | _previous(ends)  # of its word
    if "backward" in batch:
        first = tf.where(batch["backward"][:, None], _previous(starts) | ends, first)
    first &= ~tf.convert_to_tensor(inner)
    return numbered(maskable & (first | ~_previous(maskable)), maskable)


def maskable_tokens(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns which tokens may be hidden, bool [B, T]."""
    token_ids, maskable = batch["token_ids"], batch["padding_mask"]
    if len(vocabulary.never_masked) > _FEW:
        return maskable & tf.gather(vocabulary.maskable, token_ids)
    for other in vocabulary.never_masked:
        maskable &= token_ids != other
    return maskable


def _previous(flags: tf.Tensor) -> tf.Tensor:
    """Returns the flags [B, T] of the previous token; false for the first."""
    return tf.pad(flags[:, :-1], [[0, 0], [1, 0]])


def numbered(starts: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
    """Numbers the units of each row.

    Args:
      starts: bool [B, N], whether a unit begins at an element.
      inside: bool [B, N], whether an element is in a unit.

    Returns:
      int32 [B, N], from 0; -1 where `inside` is false.
    """
    # A product with a triangular matrix is a cumulative sum. It is exact, as every sum is at most
    # N, and faster than `tf.cumsum` along the last axis.
    length = tf.shape(starts)[1]
    triangle = tf.linalg.band_part(tf.ones([length, length]), 0, -1)
    count = tf.cast(tf.matmul(tf.cast(starts, tf.float32), triangle), tf.int32)
    return tf.where(inside, count - 1, -1)


def sum_at(
    columns: tf.Tensor, values: tf.Tensor, length: int | tf.Tensor | None = None
) -> tf.Tensor:
    """Sums the values [B, N] of each row by their column [B, N]; -1 = no column.

    Returns:
      [B, length]; without a length [B, N].
    """
    rows = tf.shape(columns)[0]
    length = tf.shape(columns)[1] if length is None else length
    cells = tf.where(columns < 0, -1, columns + tf.range(rows)[:, None] * length)
    return tf.reshape(tf.math.unsorted_segment_sum(values, cells, rows * length), [rows, length])
