"""Splits raw text into words.

`official.utils.word_rules.RULES` names the rules:

  unicode     "Ada's York-based, 3.5%" → Ada 's York - based , 3.5% words       "Ada's York-based,
  3.5%" → Ada 's York - based , 3.5% edges       "Ada's York-based, 3.5%" → Ada's York-based , 3.5%
  blanks      "Ada's York-based, 3.5%" → Ada's York-based, 3.5% basic       "Ada's York-based, 3.5%"
  → Ada ' s York - based , 3 . 5 % characters  "é👍🏽 ก็" → é 👍🏽 ก็ graphemes   "é👍🏽 ก็" → é 👍🏽 ก็
  tokens      the tokens of the tokenizer; tokens that share a character are joined

A run is a maximal sequence of characters without blanks. With `words` and `edges`, opening, closing
and sentence marks at either end of a run are separate words; inside a run they are kept, as in U.S,
3.5, don't and http://x.y/z. With `words`, hyphens and slashes inside a run are words too, except
before a digit in a run without letters before it (1/2, 3-4), and 's at the end of a run is a word.
Web and mail addresses are not split. Each CJK ideograph is a word.

`unicode` is `words` for all scripts. Its marks are those of Unicode, and most of them are words
inside a run too: only `.`, `:` and apostrophes are kept, and commas between digits. Endings of
names and numbers are words (Ankara'nın → Ankara 'nın), and so are elided articles before a capital
(l'Europe → l' Europe). A zero-width space ends a word, and invisible characters at the ends of a
word do not belong to it. `graphemes` is `characters` that also joins decomposed Hangul, flags, and
vowel signs that Unicode classes as letters.

The same function runs in a graph and, called eagerly, in Python.

Shapes: N texts, C characters of all texts, K words of all texts; a ragged dimension is written
None.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official.tokenizers import base, offsets, utf8, wordpiece
from official.tokenizers.base import Tokenizer
from official.tokenizers.offsets import WHITE_SPACE
from official.utils import unicode_tables as unicode
from official.utils import word_rules
from official.utils.character_sets import (
    HANGUL_LEADING,
    HANGUL_TRAILING,
    HANGUL_VOWELS,
    inside_class,
    minus,
)
from official.utils.strict import one_of

_MARKS = r"""[.,;:!?…"'。、，！？：；\p{Ps}\p{Pe}\p{Pi}\p{Pf}]"""
_LETTER, _DIGIT = r"[\pL\pM]", r"\pN"
_JOINTS = r"[-/\x{2010}-\x{2015}\x{2212}]"  # hyphens, dashes, minus, slash
_APOSTROPHE = r"['\x{2019}]"
# Characters that belong to the one before: marks, the joiner of emoji, and skin tones.
_ATTACHED = r"[\pM\x{200d}\x{1f3fb}-\x{1f3ff}]"
_JOINER = "\u200d"
# For the rule "unicode": all marks; those that are words inside a run too; and those of them that
# are kept between digits or letters.
_ENDS = rf"""[.,;:!?"'()\[\]{{}}{inside_class(unicode.MARKS)}]"""
_CUTS = rf"""[,;!?"()\[\]{{}}{inside_class(minus(unicode.MARKS, unicode.MARKS_AT_ENDS))}]"""
_IN_NUMBERS = f"[,;{inside_class(unicode.MARKS_IN_NUMBERS)}]"
_IN_WORDS = f"[{inside_class(unicode.MARKS_IN_WORDS)}]"
_INVISIBLE = f"[{inside_class(unicode.INVISIBLE)}]"
_ZERO_WIDTH_BLANK = "\u200b"  # separates words of Khmer, Burmese and others
_HYPHENS = r"[-/\x{2010}\x{2011}\x{2212}\x{ff0f}]"  # dashes are left out: they may join two numbers
_ALL_JOINTS = r"[-/\p{Pd}\x{2212}\x{ff0f}\x{ff5e}]"
# For the rule "graphemes".
_EXTENDING = f"[{inside_class(unicode.EXTENDING)}]"
_LEADING = f"[{inside_class(HANGUL_LEADING)}]"
_VOWEL = f"[{inside_class(HANGUL_VOWELS)}]"
_TRAILING = f"[{inside_class(HANGUL_TRAILING)}]"
_FLAG = r"[\x{1f1e6}-\x{1f1ff}]"  # two of these letters are a flag
_SINGLE = r"(?s)[\x{0}-\x{2ff}]*"  # texts in which every character is a grapheme


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
    """Returns (start, end) of each word of texts, in characters; the end is exclusive."""
    result: list[list[tuple[int, int]]] = []
    with tf.device("/CPU:0"):
        for chunk in base.chunks(texts):
            found = split(base.characters(chunk), rule, tokenizer)
            pairs = zip(found.starts.to_list(), found.ends.to_list(), strict=True)
            result += [list(zip(*pair, strict=True)) for pair in pairs]
    return result


def whole_graphemes(
    texts: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Moves offsets that are inside a grapheme to its bounds, in a graph or eagerly.

    A token may end between a letter and its vowel sign, but a shown part of a text should not.

    Args:
      texts: UTF-8 strings [N].
      starts: int32 [N, None], in characters.
      ends: int32 [N, None]; each is after its start.

    Returns:
      starts and ends, int32 [N, None]. A start is moved to the left, an end to the right.
    """

    def moved() -> tuple[tf.Tensor, tf.Tensor]:
        valid = utf8.valid(texts)
        characters = tf.strings.unicode_split(valid, "UTF-8")
        inside, begins = _graphemes(_Characters(characters))
        first = begins | ~inside
        grapheme = tf.cumsum(tf.cast(first, tf.int32)) - 1
        places = tf.cast(tf.reshape(tf.where(first), [-1]), tf.int32)
        after = tf.concat([places[1:], [tf.size(first)]], 0)
        before = tf.cast(tf.gather(characters.row_starts(), offsets.rows_of(starts)), tf.int32)
        start = tf.gather(places, tf.gather(grapheme, before + starts.values))
        end = tf.gather(after, tf.gather(grapheme, before + ends.values - 1))
        return start - before, end - before

    single = tf.reduce_all(tf.strings.regex_full_match(texts, _SINGLE))
    start, end = tf.cond(single, lambda: (starts.values, ends.values), moved)
    return starts.with_values(start), ends.with_values(end)


def whole_grapheme_spans(
    texts: Sequence[str], tokens: Sequence[tuple[np.ndarray, np.ndarray]]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the starts and ends of the tokens of each text, by `whole_graphemes`: int32 each."""
    result: list[tuple[np.ndarray, np.ndarray]] = []
    with tf.device("/CPU:0"):
        for chunk in base.chunks(texts):
            rows = tokens[len(result) : len(result) + len(chunk)]
            lengths = [len(starts) for starts, _ in rows]
            bounds = whole_graphemes(
                base.characters(chunk),
                *(
                    tf.RaggedTensor.from_row_lengths(np.concatenate(part), lengths)
                    for part in zip(*rows, strict=True)
                ),
            )
            ends = np.cumsum(lengths)[:-1]
            result += zip(*(np.split(part.values.numpy(), ends) for part in bounds), strict=True)
    return result


class _Characters:
    """The characters of texts.

    Attributes:
      values: string [C].
      rows: int64 [C], the text of each.
      inside: bool [C], whether a character is not a blank.
      follows: bool [C], whether a character follows, in the same text, a character that is not a
        blank.
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
    """Like `_blanks`, for `edges`; runs also begin at the flags `cuts`, bool [C]."""
    ideograph = text.are(f"[{wordpiece.IDEOGRAPHS}]")
    starts = text.inside & (~text.follows | ideograph | text.before(ideograph) | cuts)
    plain = text.inside & ~ideograph & ~text.are(_MARKS)  # neither an ideograph nor a mark
    position, first, last = _ends(starts, plain)
    alone = (position < first) | (position > last)
    return text.inside, text.inside & (alone | (position == first))


def _words(text: _Characters) -> tuple[tf.Tensor, tf.Tensor]:
    letter, digit = text.are(_LETTER), text.are(_DIGIT)
    whole = _addresses(text, letter | digit)
    joint = text.are(_JOINTS) & ~(text.after(digit) & ~text.before(letter)) & ~whole
    cuts = joint != text.before(joint)
    # The s of 's ends a part: no letter or digit follows it.
    last = text.are("[sS]") & ~text.after(letter | digit)
    possessive = text.are(_APOSTROPHE) & text.after(last) & ~whole
    possessive &= text.before(letter | digit) | ~text.follows
    cuts |= possessive | text.before(last & text.before(possessive))  # the part 's ends with its s
    inside, begins = _edges(text, cuts)
    # The apostrophe of 's is not a separate mark: it begins the word.
    return inside, (begins | possessive) & ~text.before(possessive)


def _unicode(text: _Characters) -> tuple[tf.Tensor, tf.Tensor]:
    inside = text.inside & ~tf.equal(text.values, _ZERO_WIDTH_BLANK)
    follows = text.before(inside)
    letter, digit = text.are(_LETTER), text.are(_DIGIT)
    alphanumeric = letter | digit
    invisible = text.are(_INVISIBLE)
    # belongs to the character before
    attached = text.are(r"\pM") & follows & ~text.before(invisible)
    bases = _last(~attached)

    def are(pattern: str) -> tf.Tensor:
        return tf.gather(text.are(pattern), bases)

    ideograph, mark = are(f"[{wordpiece.IDEOGRAPHS}]"), are(_ENDS)
    cut = text.are(_CUTS)
    cut &= ~(text.are(_IN_NUMBERS) & text.before(digit) & text.after(digit))
    cut &= ~(text.are(_IN_WORDS) & text.before(letter) & text.after(letter))
    whole = _addresses(text, alphanumeric)
    cut &= ~(text.are("[ -~]") & whole)
    alone = ideograph | tf.gather(cut, bases)
    joint = text.are(_ALL_JOINTS) & ~whole
    joint &= ~(text.are(_HYPHENS) & text.after(digit) & ~text.before(letter))
    starts = inside & ~attached & (~follows | alone | text.before(alone))
    starts |= joint != text.before(joint)
    begun, ended = _at_apostrophes(text, starts, alphanumeric, digit)
    begun, ended = begun & ~whole, ended & ~whole
    starts |= begun | text.before(ended)
    # An apostrophe that begins or ends a word is not a separate mark.
    position, first, last = _ends(starts, inside & ~ideograph & ~(mark & ~ended) & ~invisible)
    outer = (position < first) | (position > last)
    inside &= ~(outer & invisible)
    begins = inside & ~attached & (outer | (position == first))
    return inside, (begins | begun) & ~text.before(begun)


def _at_apostrophes(
    text: _Characters, starts: tf.Tensor, alphanumeric: tf.Tensor, digit: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns whether an apostrophe begins a word, and whether a character is a word's last, [C].

    's begins a word at the end of a part, as with the rule "words". In languages of Latin letters,
    so does an ending of a name or a number: Ankara'nın, 1944'teki, Kennedy'ego, but not don't,
    O'Brien and l'eau. The part before such an ending begins with a capital or a digit, and small
    letters follow. An elision before a capital ends a word: l'Europe, dell'Unione.

    Args:
      text: the characters.
      starts: whether a character begins a run, bool [C].
      alphanumeric: bool [C].
      digit: bool [C].
    """
    apostrophe = text.are(_APOSTROPHE) & text.before(alphanumeric)
    latin = text.are(r"\p{Latin}")
    upper, lower = latin & text.are(r"\p{Lu}"), latin & text.are(r"\p{Ll}")
    position, first, _ = _ends(starts, alphanumeric)
    first = tf.minimum(first, position)
    name = tf.gather(upper, first) & (position - first > 1)
    final = ~text.after(alphanumeric)  # of a part
    negated = text.before(text.are("[nN]")) & text.after(text.are("[tT]") & final)
    suffix = apostrophe & text.after(lower) & (name | tf.gather(digit, first)) & ~negated
    s = text.are("[sS]") & final
    possessive = text.are(_APOSTROPHE) & text.after(s)
    possessive &= text.before(alphanumeric) | ~text.before(text.inside)
    elided = apostrophe & text.after(upper) & text.before(lower | text.are("[LD]"))
    elided &= tf.gather(lower, first) | (position - first == 1)
    return possessive | suffix, (s & text.before(possessive)) | elided


def _graphemes(text: _Characters) -> tuple[tf.Tensor, tf.Tensor]:
    leading, vowel, trailing = text.are(_LEADING), text.are(_VOWEL), text.are(_TRAILING)
    syllable = text.are(r"[\x{ac00}-\x{d7a3}]")
    attached = text.are(_EXTENDING) | text.before(tf.equal(text.values, _JOINER))
    attached |= (leading | vowel | syllable) & text.before(leading)
    attached |= vowel & text.before(vowel) | trailing & text.before(vowel | trailing | syllable)
    flag = text.are(_FLAG)
    number = tf.range(tf.size(text.rows, tf.int64)) - _last(~(flag & text.before(flag)))
    attached |= tf.equal(number % 2, 1)  # only letters of flags have numbers above 0
    return text.inside, text.inside & ~(attached & text.follows)


_RULES = {
    "unicode": _unicode,
    "words": _words,
    "edges": _edges,
    "blanks": _blanks,
    "basic": _basic,
    "characters": _characters,
    "graphemes": _graphemes,
}


def _last(flags: tf.Tensor) -> tf.Tensor:
    """Returns the position of the last true flag up to each position, int64 [C]; flag 0 is true."""
    places = tf.reshape(tf.where(flags), [-1])
    return tf.gather(places, tf.cumsum(tf.cast(flags, tf.int32)) - 1)


def _ends(starts: tf.Tensor, kept: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the position of each character, and of the first and last kept character of its run.

    Args:
      starts: bool [C], whether a character begins a run. Blanks belong to the run before them.
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
    """Returns the tokens of texts as words; tokens that share a character are one word."""
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
