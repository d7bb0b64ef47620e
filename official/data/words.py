"""The characters of whole words, and in rows of sentences the word after each.

`tfrecords_tools.pretraining.sentence_rows` makes rows of sentences. The shards of a task have one
or two texts with a mark at each end.

Shapes: B rows, T tokens of a row, C characters of a word.
"""

from collections.abc import Mapping

import tensorflow as tf

from official.tokenizers import word_characters
from official.tokenizers.word_characters import Characters


def characters(
    tokenizer: Characters,
    parsed: Mapping[str, tf.RaggedTensor],
    size: int,
    length: int | tf.Tensor,
) -> tf.Tensor:
    """Returns the characters of the tokens of a task, int32 [B, T, C]; 0 in padding.

    Args:
      tokenizer: the tokenizer of the words.
      parsed: token_ids, word_lengths and word_bytes.
      size: B.
      length: T.
    """
    lengths = parsed["word_lengths"]
    words = word_characters.of_bytes(parsed["word_bytes"], lengths)
    begins = parsed["token_ids"].flat_values == tokenizer.cls_id
    marks = tf.where(
        begins[:, None],
        word_characters.mark(word_characters.SENTENCE_BEGIN),
        word_characters.mark(word_characters.SENTENCE_END),
    )
    words = tf.where(lengths.flat_values[:, None] > 0, words, marks)
    shape = tf.stack([size, length, word_characters.WIDTH])
    return lengths.with_flat_values(words).to_tensor(shape=shape)


def fields(
    tokenizer: Characters, parsed: Mapping[str, tf.Tensor], size: int, length: int
) -> dict[str, tf.Tensor]:
    """Returns the batch fields of rows of sentences.

    Args:
      tokenizer: the tokenizer of the words.
      parsed: the features `official.config.segments.SENTENCE_FEATURES`, token_ids and next_id.
      size: B.
      length: T.

    Returns:
      `character_ids` [B, T, C]; `target_ids` [B, T], the next word, or the mark that ends a
      sentence; `backward_token_ids` [B, T], and `backward_character_ids` and `backward_target_ids`
      for it. All are int32.
    """
    # For each direction, the marks that its sentences begin with and that end them, as characters
    # and as targets.
    first, last = tokenizer.cls_id, tokenizer.sep_id
    marks = {
        "": (word_characters.SENTENCE_BEGIN, first, last),
        "backward_": (word_characters.SENTENCE_END, last, first),
    }
    made = {}
    for prefix, (mark, begins, ends) in marks.items():
        tokens = parsed[f"{prefix}token_ids"].to_tensor(shape=[size, length])
        lengths = parsed[f"{prefix}word_lengths"]
        words = word_characters.of_bytes(parsed[f"{prefix}word_bytes"], lengths)
        words = tf.where(lengths.flat_values[:, None] > 0, words, word_characters.mark(mark))
        following = tf.concat([tokens[:, 1:], parsed[f"{prefix}next_id"][:, None]], axis=1)
        made |= {
            f"{prefix}character_ids": tf.reshape(words, [size, length, word_characters.WIDTH]),
            f"{prefix}target_ids": tf.where(following == begins, ends, following),
        }
    return {**made, "backward_token_ids": tokens}
