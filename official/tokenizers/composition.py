"""Unicode's form NFC in a graph: "e" and a combining accent become "é".

Shapes: N texts, C characters of all texts; a ragged dimension is written None.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from official.tokenizers import utf8
from official.utils.errors import UserError
from official.utils.paths import AnyPath

NFC = "NFC"
FORM = "unicode_normalization"  # the setting
# Characters that may be composed with the one before: marks, and the second and third parts of
# Korean syllables.
_JOINS = r"[\pM\x{1160}-\x{11ff}]"


def is_named(settings: Mapping[str, Any], path: AnyPath) -> bool:
    """Returns whether the settings beside a vocabulary name the form NFC.

    Raises:
      UserError: the settings name another form.
    """
    form = settings.get(FORM)
    if form not in (None, NFC):
        raise UserError(f"{path}: {FORM}: {form!r} in its settings is not supported, only {NFC!r}")
    return form == NFC


def composed(texts: tf.Tensor) -> tf.Tensor:
    """Returns strings [N] in the form NFC."""
    return tf_text.normalize_utf8(utf8.valid(texts), NFC)


def composed_by_character(characters: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Like `composed`, for texts that are split into characters.

    Args:
      characters: string [N, None]; some may be empty.

    Returns:
      The composed form of each character, string [N, None]: a composed character is at the first of
      the characters that it replaces, and the others become empty; and whether a character is one
      of these others, bool [C].
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
