"""Unicode's form NFC in a graph: an "e" and an accent become "é".

Shapes: N texts, C characters of all texts; a ragged dimension is written None.
"""

import tensorflow as tf
import tensorflow_text as tf_text

NFC = "NFC"
# What can become a part of the character before it: marks, and the second and third parts of Korean
# syllables.
_JOINS = r"[\pM\x{1160}-\x{11ff}]"


def composed(texts: tf.Tensor) -> tf.Tensor:
    """Returns strings [N] in the form NFC."""
    return tf_text.normalize_utf8(tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8"), NFC)


def composed_by_character(characters: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Composes texts that are split into characters, as `composed` does.

    Args:
      characters: string [N, None]; some may be empty.

    Returns:
      What each character becomes, string [N, None]: composed characters are at the first of those
      that they come from, and the others are empty; and which these are, bool [C].
    """
    values = characters.values
    first = tf.equal(tf.ragged.range(tf.cast(characters.row_lengths(), tf.int32)).values, 0)
    joins = tf.strings.regex_full_match(values, _JOINS) & ~first
    number = tf.cumsum(tf.cast(~joins, tf.int32)) - 1
    whole = tf.strings.unsorted_segment_join(values, number, tf.size(values))
    made = composed(whole)
    changed = tf.gather(made != whole, number)
    joined = changed & joins
    values = tf.where(joined, "", tf.where(changed, tf.gather(made, number), values))
    return characters.with_values(values), joined
