"""The words of raw text.

`official.utils.word_rules.RULES` names the rules:

  words       "Ada's York-based, 3.5%" → Ada 's York - based , 3.5%
  edges       "Ada's York-based, 3.5%" → Ada's York-based , 3.5%
  blanks      "Ada's York-based, 3.5%" → Ada's York-based, 3.5%
  basic       "Ada's York-based, 3.5%" → Ada ' s York - based , 3 . 5 %
  characters  "é👍🏽 ก็" → é 👍🏽 ก็
  tokens      the tokens of the tokenizer, those of the same characters joined

With `words` and `edges`, opening, closing and sentence marks at either end of a run are words of
their own; inside a run they stay, as in U.S, 3.5, don't and http://x.y/z. With `words`, hyphens and
slashes inside a run are words too, but before a digit that follows no letter (1/2, 3-4), and 's
begins a word at its end. Web and mail addresses stay whole. Each CJK ideograph is a word.

One function does this in a graph. Python calls it eagerly.

Shapes: N texts, C characters of all texts, K words of all texts; a ragged dimension is written
None.
"""

from collections.abc import Sequence

import tensorflow as tf

from official.tokenizers import base, offsets, wordpiece
from official.tokenizers.base import Tokenizer
from official.tokenizers.offsets import WHITE_SPACE
from official.utils import word_rules
from official.utils.strict import one_of

_MARKS = r"""[.,;:!?…"'。、，！？：；\p{Ps}\p{Pe}\p{Pi}\p{Pf}]"""
_LETTER, _DIGIT = r"[\pL\pM]", r"\pN"
_JOINTS = r"[-/\x{2010}-\x{2015}\x{2212}]"  # hyphens, dashes, minus, slash
_APOSTROPHE = r"['\x{2019}]"
# Characters that belong to the one before: marks, the joiner of emoji, and the tones of their skin.
_ATTACHED = r"[\pM\x{200d}\x{1f3fb}-\x{1f3ff}]"
_JOINER = "\u200d"


def split(
    texts: tf.Tensor, rule: str = word_rules.DEFAULT, tokenizer: Tokenizer | None = None
) -> offsets.Words:
    """Splits texts into words, in a graph or eagerly.

    Args:
      texts: UTF-8 strings [N].
      rule: one of `official.utils.word_rules.RULES`.
      tokenizer: the tokenizer, for the rule "tokens".

    Raises:
      ValueError: there is no such rule, or the rule "tokens" has no tokenizer.
    """
    one_of("split_words", rule, word_rules.RULES)
    characters = tf.strings.unicode_split(texts, "UTF-8")
    if rule == "tokens":
        if tokenizer is None:
            raise ValueError("split_words: tokens: needs a tokenizer")
        return _of_tokens(characters, tokenizer.tokenize_with_offsets(texts))
    return offsets.words_of(characters, *_RULES[rule](_Characters(characters)))


def spans(
    texts: Sequence[str], rule: str = word_rules.DEFAULT, tokenizer: Tokenizer | None = None
) -> list[list[tuple[int, int]]]:
    """Returns the first character of each word of texts, and the character after its last one."""
    result: list[list[tuple[int, int]]] = []
    with tf.device("/CPU:0"):
        for chunk in base.chunks(texts):
            found = split(base.characters(chunk), rule, tokenizer)
            pairs = zip(found.starts.to_list(), found.ends.to_list(), strict=True)
            result += [list(zip(*pair, strict=True)) for pair in pairs]
    return result


class _Characters:
    """The characters of texts.

    Attributes:
      values: string [C].
      rows: int64 [C], the text of each.
      inside: bool [C], whether a character is not a blank.
      follows: bool [C], whether the character before it is of the same text and no blank.
    """

    def __init__(self, characters: tf.RaggedTensor):
        self.values = characters.values
        self.rows = offsets.rows_of(characters)
        self.inside = ~self.are(WHITE_SPACE)
        self._same = tf.concat([[False], self.rows[1:] == self.rows[:-1]], 0)[
            : tf.size(self.values)
        ]
        self.follows = self.before(self.inside)

    def are(self, pattern: str) -> tf.Tensor:
        """Returns whether each character matches a pattern, bool [C]."""
        return tf.strings.regex_full_match(self.values, pattern)

    def before(self, flags: tf.Tensor) -> tf.Tensor:
        """Returns the flag of the character before each, False at the start of a text."""
        return tf.concat([[False], flags[:-1]], 0)[: tf.size(flags)] & self._same

    def after(self, flags: tf.Tensor) -> tf.Tensor:
        """Returns the flag of the character after each, False at the end of a text."""
        same = tf.concat([self._same[1:], [False]], 0)[: tf.size(flags)]
        return tf.concat([flags[1:], [False]], 0)[: tf.size(flags)] & same


def _blanks(text: _Characters) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns whether each character is inside a word, and whether it begins one, bool [C] each."""
    return text.inside, text.inside & ~text.follows


def _basic(text: _Characters) -> tuple[tf.Tensor, tf.Tensor]:
    inside = ~text.are(f"[{wordpiece.BLANK}]")
    alone = text.are(f"[{wordpiece.ALONE}]")
    return inside, inside & (~text.before(inside) | alone | text.before(alone))


def _characters(text: _Characters) -> tuple[tf.Tensor, tf.Tensor]:
    attached = text.are(_ATTACHED) | text.before(tf.equal(text.values, _JOINER))
    return text.inside, text.inside & ~(attached & text.follows)


def _edges(text: _Characters, cuts: tf.Tensor | bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the same; `cuts` are characters inside a run that begin another one, bool [C]."""
    ideograph = text.are(f"[{wordpiece.IDEOGRAPHS}]")
    starts = text.inside & (~text.follows | ideograph | text.before(ideograph) | cuts)
    plain = text.inside & ~ideograph & ~text.are(_MARKS)  # neither alone nor a mark
    position, first, last = _ends(starts, plain)
    alone = (position < first) | (position > last)
    return text.inside, text.inside & (alone | (position == first))


def _words(text: _Characters) -> tuple[tf.Tensor, tf.Tensor]:
    letter, digit = text.are(_LETTER), text.are(_DIGIT)
    whole = _addresses(text, letter | digit)
    joint = text.are(_JOINTS) & ~(text.after(digit) & ~text.before(letter)) & ~whole
    cuts = joint != text.before(joint)
    # The end of a part: no letter or digit follows the s.
    last = text.are("[sS]") & ~text.after(letter | digit)
    possessive = text.are(_APOSTROPHE) & text.after(last) & ~whole
    possessive &= text.before(letter | digit) | ~text.follows
    cuts |= possessive | text.before(last & text.before(possessive))  # it ends with the s
    inside, begins = _edges(text, cuts)
    # The apostrophe is not a mark here: it begins the word.
    return inside, (begins | possessive) & ~text.before(possessive)


_RULES = {
    "words": _words,
    "edges": _edges,
    "blanks": _blanks,
    "basic": _basic,
    "characters": _characters,
}


def _ends(starts: tf.Tensor, kept: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the position of each character, and of the first and the last kept one of its run.

    Args:
      starts: bool [C], whether a character begins a run. Blanks get the run before them.
      kept: bool [C].

    Returns:
      int64 [C] each.
    """
    count = tf.size(starts)
    run = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)
    places = tf.reshape(tf.where(kept), [-1])
    number = tf.gather(run, places)
    first = tf.gather(tf.math.unsorted_segment_min(places, number, count), run)
    last = tf.gather(tf.math.unsorted_segment_max(places, number, count), run)
    return tf.range(tf.cast(count, tf.int64)), first, last


def _addresses(text: _Characters, alphanumeric: tf.Tensor) -> tf.Tensor:
    """Returns whether each character is in a run with "://", "www." or "x@", bool [C]."""
    slash, w = tf.equal(text.values, "/"), text.are("[wW]")
    scheme = tf.equal(text.values, ":") & text.after(slash & text.after(slash))
    host = w & text.after(w & text.after(w & text.after(tf.equal(text.values, "."))))
    mail = tf.equal(text.values, "@") & text.before(alphanumeric)
    sign = scheme | host | mail
    starts = text.inside & ~text.follows
    count = tf.size(starts)
    run = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)
    signs = tf.math.unsorted_segment_sum(tf.cast(sign, tf.int32), run, count)
    return tf.gather(signs, run) > 0


def _of_tokens(characters: tf.RaggedTensor, tokens: offsets.Tokens) -> offsets.Words:
    """Returns the tokens of texts as words; those that share a character are one word."""
    rows = offsets.rows_of(tokens.starts)
    starts, ends = tokens.starts.values, tokens.ends.values
    parted = (rows[1:] != rows[:-1]) | (starts[1:] >= ends[:-1])
    begins = tf.concat([[True], parted], 0)[: tf.size(starts)]
    word = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    total = tf.reduce_sum(tf.cast(begins, tf.int32))
    begin = tf.boolean_mask(starts, begins)
    end = tf.math.unsorted_segment_max(ends, word, total)
    row = tf.boolean_mask(rows, begins)
    first = tf.cast(tf.gather(characters.row_starts(), row), tf.int32)
    places = tf.ragged.range(first + begin, first + end)
    spelled = offsets.joined(places.with_values(tf.gather(characters.values, places.values)))
    ragged = tf.RaggedTensor.from_value_rowids(spelled, row, characters.nrows(), validate=False)
    return offsets.Words(ragged, ragged.with_values(begin), ragged.with_values(end))
