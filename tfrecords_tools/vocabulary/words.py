"""Makes a vocabulary of whole words from word counts.

The special tokens come first, then the words by descending count, as the sampled softmax of a word
language model assumes (Peters et al., 2018, and its release). Words are split as the tokenizer
splits them. Ties are in the order of the bytes, so the same text gives the same vocabulary.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from official.tokenizers.word_characters import SPECIALS, split_words
from official.utils.errors import UserError
from tfrecords_tools.vocabulary.word_counts import MAX_WORDS, WordCounts, most_common


def word_counts(split_punctuation: bool = False, max_words: int = MAX_WORDS) -> WordCounts:
    """Returns a counter of the words that the tokenizer sees."""

    def words(texts: Sequence[str]) -> list[bytes]:
        with tf.device("/CPU:0"):
            given = tf.constant(texts, tf.string)
            return split_words(given, split_punctuation).values.numpy().tolist()

    return WordCounts(words, max_words, lambda word: word.decode("utf-8", "replace"))


def learn(counts: Mapping[str, int], vocab_size: int) -> list[str]:
    """Returns the words of a vocabulary.

    Args:
      counts: word → count.
      vocab_size: the number of words, special tokens counted.

    Raises:
      UserError: `vocab_size` has no room for a word, or is more than the text has.
    """
    room = vocab_size - len(SPECIALS)
    if room < 1:
        raise UserError(
            f"--vocab_size={vocab_size} is too small: {' '.join(SPECIALS)} take {len(SPECIALS)}"
        )
    encoded = {word.encode(): count for word, count in counts.items() if word not in SPECIALS}
    if len(encoded) < room:
        raise UserError(
            f"--vocab_size={vocab_size} is more than the text supports: it has {len(encoded)} "
            f"different words and {len(SPECIALS)} special tokens: take "
            f"{len(encoded) + len(SPECIALS)} or less, or more text"
        )
    return [*SPECIALS, *(word.decode() for word, _ in most_common(encoded, room))]
