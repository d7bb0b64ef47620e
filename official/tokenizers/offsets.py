"""Which characters of a text its tokens come from, in a graph.

Places are counted in characters (code points) of the text that the user gave, whatever a tokenizer
does to it first. A tokenizer says what each character became (`origins`), and where its tokens
stand in what all of them became together, in bytes (`characters_of`).

Shapes: N texts, C characters of all texts, Y bytes of all cleaned texts, K tokens of all texts; a
ragged dimension is written None.
"""

from typing import NamedTuple

import tensorflow as tf

# What no answer begins or ends with: Python's white space, and two blanks of no width.
_BLANK = r"[\t-\r\x{1c}-\x{1f}\x{85}\pZ\x{200b}\x{feff}]"


class Tokens(NamedTuple):
    """The tokens of texts, and where they come from.

    A token of a part of a character (a byte; one of the signs that "½" is spelled with) has the
    whole of it, and so may have the same place as its neighbours. White space around a token is
    not counted to it, unless it is all that the token stands for.

    Attributes:
      ids: int32 [N, None].
      starts: int32 [N, None], the token's first character.
      ends: int32 [N, None], behind its last one: `text[start:end]`, never empty.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Origins(NamedTuple):
    """The characters that the bytes of cleaned texts come from.

    Attributes:
      firsts: int32 [N, None], for each byte.
      lasts: int32 [N, None], the last character of those that the byte comes from.
    """

    firsts: tf.RaggedTensor
    lasts: tf.RaggedTensor


def origins(cleaned: tf.RaggedTensor, attached: tf.Tensor | None = None) -> Origins:
    """The origin of each byte of texts that were cleaned character by character.

    Args:
      cleaned: string [N, None], what became of each character, perhaps nothing.
      attached: bool [C], characters that belong to the one before them (accents that were
        removed); None = there are none.
    """
    sizes = tf.strings.length(cleaned.values)  # [C]
    places = tf.ragged.range(tf.cast(cleaned.row_lengths(), tf.int32)).values  # [C]
    lasts = places
    if attached is not None:
        count = tf.size(places)
        # The next character that is not attached, or the end of the text.
        free = tf.concat([tf.reshape(tf.where(~attached), [-1]), [tf.cast(count, tf.int64)]], 0)
        following = tf.gather(free, tf.cumsum(tf.cast(~attached, tf.int32)))
        rows = rows_of(cleaned)
        row_ends = tf.gather(cleaned.row_limits(), rows)
        begins = tf.gather(cleaned.row_starts(), rows)
        following = tf.minimum(following, row_ends) - begins
        lasts = tf.maximum(tf.cast(following, tf.int32) - 1, places)
    ends = tf.concat([[0], tf.cumsum(tf.cast(sizes, tf.int64))], 0)
    splits = tf.gather(ends, cleaned.row_splits)

    def of_bytes(values: tf.Tensor) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_row_splits(tf.repeat(values, sizes), splits, validate=False)

    return Origins(of_bytes(places), of_bytes(lasts))


def rows_of(ragged: tf.RaggedTensor) -> tf.Tensor:
    """The row of each value of [N, None], int64.

    `value_rowids` gives the same, by way of a tensor [N, length of the longest row].
    """
    ends = ragged.row_splits[1:-1]
    count = tf.size(ragged.flat_values, tf.int32)
    ended = tf.math.bincount(tf.cast(ends, tf.int32), minlength=count + 1)[:count]
    return tf.cast(tf.cumsum(ended), tf.int64)


def joined(ragged: tf.RaggedTensor, separator: str = "") -> tf.Tensor:
    """Joins the strings [N, None] of each row: [N].

    `reduce_join` gives the same, by way of a tensor [N, length of the longest row].
    """
    rows = tf.cast(ragged.nrows(), tf.int32)
    return tf.strings.unsorted_segment_join(ragged.values, rows_of(ragged), rows, separator)


def characters_of(
    found: Origins, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Turns places in cleaned texts, in bytes, into places in the texts, in characters.

    Args:
      found: of the texts.
      starts: integers [N, None], the first byte of each token.
      ends: [N, None], behind its last byte; a token of no byte is taken as one of one byte.

    Returns:
      starts and ends int32 [N, None], in characters; a start comes before its end.
    """
    begins = tf.gather(found.firsts.row_starts(), rows_of(starts))  # [K]
    # One more, so that texts without a byte can be looked up in.
    firsts = tf.concat([found.firsts.values, [0]], 0)
    lasts = tf.concat([found.lasts.values, [0]], 0)
    most = tf.size(firsts, tf.int64) - 1
    first = tf.minimum(begins + tf.cast(starts.values, tf.int64), most)
    last = tf.minimum(begins + tf.cast(ends.values, tf.int64) - 1, most)
    start = tf.gather(firsts, first)
    end = tf.gather(lasts, tf.maximum(first, last)) + 1
    return starts.with_values(start), starts.with_values(tf.maximum(end, start + 1))


def trimmed(
    characters: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Takes white space from both ends of tokens that have something else.

    Args:
      characters: string [N, None].
      starts: int32 [N, None], in characters.
      ends: int32 [N, None].
    """
    dark = ~tf.strings.regex_full_match(characters.values, _BLANK)  # [C]
    numbers = tf.concat([[-1], tf.cast(tf.reshape(tf.where(dark), [-1]), tf.int32)], 0)
    before = tf.concat([[0], tf.cumsum(tf.cast(dark, tf.int32))], 0)  # [C + 1]
    begins = tf.cast(tf.gather(characters.row_starts(), rows_of(starts)), tf.int32)
    first = tf.gather(before, begins + starts.values)
    last = tf.gather(before, begins + ends.values)  # dark ones before the end
    some = last > first
    most = tf.size(numbers) - 1
    start = tf.gather(numbers, tf.minimum(first + 1, most)) - begins
    end = tf.gather(numbers, last) - begins + 1
    return (
        starts.with_values(tf.where(some, start, starts.values)),
        starts.with_values(tf.where(some, end, ends.values)),
    )
