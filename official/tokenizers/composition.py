"""Unicode's form NFC in a graph: an "e" and an accent become "é".

Shapes: N texts, C characters of all texts; a ragged dimension is written None.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from official.utils.errors import UserError
from official.utils.paths import AnyPath

NFC = "NFC"
FORM = "unicode_normalization"  # the setting
# What can become a part of the character before it: marks, and the second and third parts of Korean
# syllables.
_JOINS = r"[\pM\x{1160}-\x{11ff}]"


def is_named(settings: Mapping[str, Any], path: AnyPath) -> bool:
    """Returns whether the settings beside a vocabulary name the form NFC.

    Raises:
      UserError: they name another form.
    """
    form = settings.get(FORM)
    if form not in (None, NFC):
        raise UserError(f"{path}: {FORM}: {form!r} in its settings is not supported, only {NFC!r}")
    return form == NFC


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
