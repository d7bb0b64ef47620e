"""Maps tokens to the characters of a text, in a graph.

Offsets count characters (code points) of the original text, before any normalization by a
tokenizer. A tokenizer provides the cleaned form of each character (`origins`), and the position of
each token in the cleaned text, in bytes (`characters_of`).

Shapes: N texts, C characters of all texts, Y bytes of all cleaned texts, K tokens of all texts; a
ragged dimension is written None.
"""

from typing import NamedTuple

import tensorflow as tf

# The characters that Python's `str.split` treats as blanks.
WHITE_SPACE = r"[\t-\r\x{1c}-\x{1f}\x{85}\pZ]"
# Characters that are stripped from the ends of tokens: Python's white space, and two zero-width
# blanks.
_BLANK = rf"(?:{WHITE_SPACE}|[\x{{200b}}\x{{feff}}])"


class Tokens(NamedTuple):
    """The tokens of texts and their offsets.

    A token for a part of a character (a byte, or one of the signs that spell "½") has the offsets
    of the whole character, so several tokens may have the same offsets. A token that ends with such
    a part has the offsets of the characters before the part. White space around a token does not
    belong to it, unless the token is white space only.

    Attributes:
      ids: int32 [N, None].
      starts: int32 [N, None], the first character of each token.
      ends: int32 [N, None], the character after its last one: `text[start:end]` is never empty.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Words(NamedTuple):
    """The words of texts.

    Attributes:
      texts: string [N, None].
      starts: int32 [N, None], the first character of each word.
      ends: int32 [N, None], the character after its last one.
    """

    texts: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Origins(NamedTuple):
    """The characters that the bytes of cleaned texts come from.

    Attributes:
      firsts: int32 [N, None], the first character that each byte comes from.
      lasts: int32 [N, None], the last character that each byte comes from.
    """

    firsts: tf.RaggedTensor
    lasts: tf.RaggedTensor


def origins(cleaned: tf.RaggedTensor, attached: tf.Tensor | None = None) -> Origins:
    """Returns the origins of the bytes of texts that were cleaned character by character.

    Args:
      cleaned: string [N, None], the cleaned form of each character, which may be empty.
      attached: bool [C], whether a character belongs to the one before it (a removed accent); None
        = no character does.
    """
    sizes = tf.strings.length(cleaned.values)  # [C]
    positions = tf.ragged.range(tf.cast(cleaned.row_lengths(), tf.int32)).values  # [C]
    lasts = positions
    if attached is not None:
        count = tf.size(positions)
        # The next character that is not attached, or the end of the text.
        free = tf.concat([tf.reshape(tf.where(~attached), [-1]), [tf.cast(count, tf.int64)]], 0)
        following = tf.gather(free, tf.cumsum(tf.cast(~attached, tf.int32)))
        rows = rows_of(cleaned)
        row_ends = tf.gather(cleaned.row_limits(), rows)
        begins = tf.gather(cleaned.row_starts(), rows)
        following = tf.minimum(following, row_ends) - begins
        lasts = tf.maximum(tf.cast(following, tf.int32) - 1, positions)
    ends = tf.concat([[0], tf.cumsum(tf.cast(sizes, tf.int64))], 0)
    splits = tf.gather(ends, cleaned.row_splits)

    def of_bytes(values: tf.Tensor) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_row_splits(tf.repeat(values, sizes), splits, validate=False)

    return Origins(of_bytes(positions), of_bytes(lasts))


def words_of(characters: tf.RaggedTensor, inside: tf.Tensor, begins: tf.Tensor) -> Words:
    """Joins characters into words.

    Args:
      characters: string [N, None].
      inside: bool [C], whether a character is in a word.
      begins: bool [C], whether a word begins with a character.
    """
    word = tf.boolean_mask(tf.cumsum(tf.cast(begins, tf.int32)) - 1, inside)
    total = tf.reduce_sum(tf.cast(begins, tf.int32))
    texts = tf.strings.unsorted_segment_join(
        tf.boolean_mask(characters.values, inside), word, total
    )
    sizes = tf.math.bincount(word, minlength=total, maxlength=total)
    columns = tf.ragged.range(tf.cast(characters.row_lengths(), tf.int32)).values
    starts = tf.boolean_mask(columns, begins)
    ragged = tf.RaggedTensor.from_value_rowids(
        texts, tf.boolean_mask(rows_of(characters), begins), characters.nrows(), validate=False
    )
    return Words(ragged, ragged.with_values(starts), ragged.with_values(starts + sizes))


def rows_of(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Returns the row of each value of [N, None], int64.

    `value_rowids` returns the same, but allocates a tensor [N, length of the longest row].
    """
    ends = ragged.row_splits[1:-1]
    count = tf.size(ragged.flat_values, tf.int32)
    ended = tf.math.bincount(tf.cast(ends, tf.int32), minlength=count + 1)[:count]
    return tf.cast(tf.cumsum(ended), tf.int64)


def joined(ragged: tf.RaggedTensor, separator: str = "") -> tf.Tensor:
    """Joins the strings [N, None] of each row: [N].

    `reduce_join` returns the same, but allocates a tensor [N, length of the longest row].
    """
    rows = tf.cast(ragged.nrows(), tf.int32)
    return tf.strings.unsorted_segment_join(ragged.values, rows_of(ragged), rows, separator)


def characters_of(
    cleaned: Origins, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Converts byte offsets in cleaned texts to character offsets in the texts.

    Args:
      cleaned: the origins of the bytes.
      starts: integers [N, None], the first byte of each token.
      ends: [N, None], the byte after its last one. Tokens without bytes are treated as one byte.

    Returns:
      starts and ends int32 [N, None], in characters; each start is before its end.
    """
    begins = tf.gather(cleaned.firsts.row_starts(), rows_of(starts))  # [K]
    # One more value, so that look-ups in texts without a byte are valid.
    firsts = tf.concat([cleaned.firsts.values, [0]], 0)
    lasts = tf.concat([cleaned.lasts.values, [0]], 0)
    max_index = tf.size(firsts, tf.int64) - 1
    first = tf.minimum(begins + tf.cast(starts.values, tf.int64), max_index)
    last = tf.minimum(begins + tf.cast(ends.values, tf.int64) - 1, max_index)
    start = tf.gather(firsts, first)
    end = tf.gather(lasts, tf.maximum(first, last)) + 1
    return starts.with_values(start), starts.with_values(tf.maximum(end, start + 1))


def trimmed(
    characters: tf.RaggedTensor,
    starts: tf.RaggedTensor,
    ends: tf.RaggedTensor,
    joint: tf.Tensor | None = None,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Removes white space from both ends of tokens that are not white space only.

    A SentencePiece model may assign a token that joins a blank and a part of the next character
    ("▁1" of " ½") to the blank alone. Such a token gets the offsets of that character.

    Args:
      characters: string [N, None].
      starts: int32 [N, None], in characters.
      ends: int32 [N, None].
      joint: bool [K], whether a token joins a blank and something else; None = no token does.
    """
    visible = ~tf.strings.regex_full_match(characters.values, _BLANK)  # [C]
    numbers = tf.concat([[-1], tf.cast(tf.reshape(tf.where(visible), [-1]), tf.int32)], 0)
    before = tf.concat([[0], tf.cumsum(tf.cast(visible, tf.int32))], 0)  # [C + 1]
    begins = tf.cast(tf.gather(characters.row_starts(), rows_of(starts)), tf.int32)
    first = tf.gather(before, begins + starts.values)
    last = tf.gather(before, begins + ends.values)  # visible characters before the end
    some = last > first
    max_index = tf.size(numbers) - 1
    start = tf.gather(numbers, tf.minimum(first + 1, max_index)) - begins
    end = tf.gather(numbers, last) - begins + 1
    if joint is not None:
        size = tf.cast(tf.gather(characters.row_lengths(), rows_of(starts)), tf.int32)
        part = ~some & joint & tf.equal(start, ends.values) & (start < size)
        end = tf.where(part, start + 1, end)
        some |= part
    return (
        starts.with_values(tf.where(some, start, starts.values)),
        starts.with_values(tf.where(some, end, ends.values)),
    )
