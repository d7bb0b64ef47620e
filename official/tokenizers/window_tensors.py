"""Tokens of words and the windows of long texts in a graph, as `official.tokenizers.word_windows`.

Shapes: N texts, K tokens of all texts, W windows of all texts, T tokens of the longest window, C
characters of a word; a ragged dimension is written None.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.tokenizers import offsets, word_characters
from official.tokenizers.base import Tokenizer
from official.tokenizers.word_characters import Characters
from official.tokenizers.word_windows import NO_WORD

# The places of [CLS] and [SEP] in a table of tokens, before those of the texts.
_BEGIN, _END, _FIRST = range(3)


class WordTokens(NamedTuple):
    """The tokens of texts.

    Attributes:
      ids: the ids, int32 [N, None].
      word_ids: the number of the word at the first token of each word, -1 elsewhere, int32
        [N, None].
      character_ids: the characters of each token, int32 [K, C]; None if the tokenizer is not one
        of words.
    """

    ids: tf.RaggedTensor
    word_ids: tf.RaggedTensor
    character_ids: tf.Tensor | None


def encode(words: tf.RaggedTensor, tokenizer: Tokenizer) -> WordTokens:
    """Returns the tokens of texts, the same as `word_windows.encode`.

    Args:
      words: the words of each text, UTF-8 strings [N, None].
      tokenizer: the tokenizer.
    """
    sizes = tf.strings.length(words.values, unit="UTF8_CHAR") + 1  # with the blank after it
    ends = tf.cumsum(tf.cast(sizes, tf.int64))
    begins = tf.gather(tf.concat([[0], ends], 0), words.row_starts())  # [N]
    ends -= tf.gather(begins, offsets.rows_of(words)) + 1
    return encode_running(offsets.joined(words, " "), words.with_values(ends), tokenizer)


def encode_running(texts: tf.Tensor, ends: tf.RaggedTensor, tokenizer: Tokenizer) -> WordTokens:
    """Returns the tokens of running texts, the same as `word_windows.encode_running`.

    Args:
      texts: UTF-8 strings [N].
      ends: the character after the last one of each word, integers [N, None].
      tokenizer: the tokenizer.
    """
    tokens = tokenizer.tokenize_with_offsets(texts)
    characters = None
    if isinstance(tokenizer, Characters):
        characters = word_characters.of_words(tokenizer.words(texts).values)
    # The texts follow one another, with a character between them.
    sizes = tf.cast(tf.strings.length(texts, unit="UTF8_CHAR"), tf.int64) + 1
    begins = tf.cumsum(sizes, exclusive=True)  # [N]
    rows = offsets.rows_of(tokens.ids)
    starts = tf.gather(begins, rows) + tf.cast(tokens.starts.values, tf.int64)  # [K]
    placed = tf.gather(begins, offsets.rows_of(ends)) + tf.cast(ends.values, tf.int64)
    number = tf.cast(tf.searchsorted(placed, starts, side="right"), tf.int64)
    number -= tf.gather(ends.row_starts(), rows)
    number = tf.minimum(number, tf.gather(ends.row_lengths(), rows) - 1)
    first = (number[1:] != number[:-1]) | (rows[1:] != rows[:-1])
    first = tf.concat([[True], first], 0)[: tf.size(number)]
    word_ids = tf.where(first, tf.cast(number, tf.int32), NO_WORD)
    return WordTokens(tokens.ids, tokens.ids.with_values(word_ids), characters)


def pack(tokens: WordTokens, tokenizer: Tokenizer, max_length: int) -> dict[str, tf.Tensor]:
    """Cuts texts into windows, those of `word_windows.windows`.

    Args:
      tokens: the tokens of the texts.
      tokenizer: has the special ids.
      max_length: the length of the longest window, special tokens counted.

    Returns:
      The fields of `packing.pack` with the layout `cls_first`, [W, T]; `word_ids` int32 [W, None];
      `row` int32 [W], the number of the text; and with a tokenizer of words `character_ids` int32
      [W, T, C].
    """
    row, start, end, own_start, own_end = _windows(tokens.ids.row_lengths(), max_length)
    begins = tf.cast(tf.gather(tokens.ids.row_starts(), row), tf.int32)
    places = tf.ragged.range(begins + start, begins + end)  # [W, None], of the K tokens
    window = offsets.rows_of(places)
    number = places.values - tf.gather(begins, window)  # of the token in its text
    own = (number >= tf.gather(own_start, window)) & (number < tf.gather(own_end, window))
    words = tf.where(own, tf.gather(tokens.word_ids.values, places.values), NO_WORD)
    framed = _framed(places.with_values(places.values + _FIRST), _BEGIN, _END)
    ids = tf.concat([[tokenizer.cls_id, tokenizer.sep_id], tokens.ids.values], 0)
    token_ids = framed.with_values(tf.gather(ids, framed.values)).to_tensor(tokenizer.pad_id)
    mask = tf.sequence_mask(framed.row_lengths(), tf.shape(token_ids)[1])
    fields = {
        "token_ids": token_ids,
        "segment_ids": tf.zeros_like(token_ids),
        "padding_mask": mask,
        "word_ids": _framed(places.with_values(words), NO_WORD, NO_WORD),
        "row": row,
    }
    if tokens.character_ids is not None:
        ends = [word_characters.SENTENCE_BEGIN, word_characters.SENTENCE_END]
        marks = np.stack([word_characters.mark(which) for which in ends])
        table = tf.concat([marks, tokens.character_ids], 0)
        fields["character_ids"] = framed.with_values(tf.gather(table, framed.values)).to_tensor(
            0, shape=[None, None, word_characters.WIDTH]
        )
    return fields


def _windows(lengths: tf.Tensor, max_length: int) -> tuple[tf.Tensor, ...]:
    """Returns the text and the fields of `word_windows.Window` of each window, int32 [W] each."""
    lengths = tf.cast(lengths, tf.int32)
    room = max_length - 2
    step = max(1, room // 2)
    counts = 1 + tf.maximum(lengths - room + step - 1, 0) // step  # [N]
    row = tf.repeat(tf.range(tf.size(counts)), counts)  # [W]
    number = tf.ragged.range(counts).values
    start, length = number * step, tf.gather(lengths, row)
    middle = (2 * start - step + room - 1) // 2 + 1
    own_start = tf.where(number > 0, middle, 0)
    last = tf.equal(number, tf.gather(counts, row) - 1)
    own_end = tf.where(last, length, (2 * start + step + room - 1) // 2 + 1)
    return row, start, tf.minimum(start + room, length), own_start, own_end


def _framed(values: tf.RaggedTensor, first: int, last: int) -> tf.RaggedTensor:
    """Puts a value before and after each row of int32 [W, None]."""
    column = tf.fill([values.nrows(), 1], tf.constant(0, tf.int32))
    return tf.concat([column + first, values, column + last], axis=1)
