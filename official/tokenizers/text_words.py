"""The words of raw text: runs between blanks, without the punctuation marks at their ends.

Each CJK ideograph is a word. Opening, closing and sentence marks at either end of a run are words
of their own; inside a run they stay, as in U.S, 3.5, don't and http://x.y/z.

`words` and the graph function `split` have the same rule.

Shapes: N texts, C characters of all texts; a ragged dimension is written None.
"""

import re
import unicodedata
from typing import NamedTuple

import tensorflow as tf

from official.tokenizers import offsets
from official.tokenizers.text_rules import WHITE_SPACE

_MARKS = frozenset(".,;:!?…\"'。、，！？：；")
_CATEGORIES = frozenset({"Ps", "Pe", "Pi", "Pf"})
_IDEOGRAPH = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)  # as BERT's tokenizer defines them
_IDEOGRAPHS = f"[{_IDEOGRAPH}]"
_GRAPH_MARKS = r"""[.,;:!?…"'。、，！？：；\p{Ps}\p{Pe}\p{Pi}\p{Pf}]"""
_RUN = re.compile(rf"[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}]+")


def words(text: str) -> list[tuple[int, int]]:
    """Returns the first character of each word, and the character after its last one."""
    found = []
    for run in _RUN.finditer(text):
        start, end = run.span()
        first, last = start, end
        while first < last and _is_mark(text[first]):
            first += 1
        while last > first and _is_mark(text[last - 1]):
            last -= 1
        found += [(i, i + 1) for i in range(start, first)]
        found += [(first, last)] if first < last else []
        found += [(i, i + 1) for i in range(last, end)]
    return found


def _is_mark(character: str) -> bool:
    return character in _MARKS or unicodedata.category(character) in _CATEGORIES


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


def split(texts: tf.Tensor) -> Words:
    """Splits texts in a graph, as `words` does.

    Args:
      texts: UTF-8 strings [N].
    """
    characters = tf.strings.unicode_split(texts, "UTF-8")
    values, rows = characters.values, offsets.rows_of(characters)
    count = tf.size(values)
    inside = ~tf.strings.regex_full_match(values, WHITE_SPACE)  # [C]
    ideograph = tf.strings.regex_full_match(values, _IDEOGRAPHS)
    mark = tf.strings.regex_full_match(values, _GRAPH_MARKS)
    parted = ideograph[1:] | ideograph[:-1] | ~inside[:-1] | (rows[1:] != rows[:-1])
    begins = inside & tf.concat([[True], parted], 0)[:count]
    # Blanks get the run before them, of which they are no part.
    run = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0)
    plain = tf.reshape(tf.where(inside & ~ideograph & ~mark), [-1])  # neither alone nor a mark
    number = tf.gather(run, plain)
    first = tf.gather(tf.math.unsorted_segment_min(plain, number, count), run)  # [C]
    last = tf.gather(tf.math.unsorted_segment_max(plain, number, count), run)
    position = tf.range(tf.cast(count, tf.int64))
    alone = (position < first) | (position > last)
    begins = inside & (alone | (position == first))
    word = tf.boolean_mask(tf.cumsum(tf.cast(begins, tf.int32)) - 1, inside)
    total = tf.reduce_sum(tf.cast(begins, tf.int32))
    spelled = tf.strings.unsorted_segment_join(tf.boolean_mask(values, inside), word, total)
    sizes = tf.math.bincount(word, minlength=total, maxlength=total)
    columns = tf.ragged.range(tf.cast(characters.row_lengths(), tf.int32)).values
    starts = tf.boolean_mask(columns, begins)
    ragged = tf.RaggedTensor.from_value_rowids(
        spelled, tf.boolean_mask(rows, begins), characters.nrows(), validate=False
    )
    return Words(ragged, ragged.with_values(starts), ragged.with_values(starts + sizes))
