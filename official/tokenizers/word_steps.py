"""The pre-tokenizers of `tokenizer.json`: how a text becomes words.

Each step splits the words of the one before. Where offsets are asked for, the bytes of words carry
the characters that they come from.

Shapes: N texts, W words of all texts, Y bytes of all words; a ragged dimension is written None.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from official.tokenizers import offsets, patterns, text_steps, wordpiece
from official.tokenizers.added_tokens import SPACE
from official.tokenizers.byte_bpe import DIGIT
from official.tokenizers.byte_vocabulary import ALPHABET
from official.tokenizers.patterns import Pattern
from official.tokenizers.word_starts import BLANK

_CUT = b"\xff"  # no UTF-8 text has this byte
_BLANK_BYTES = len(BLANK.encode())
REMOVED, ISOLATED, PREVIOUS, NEXT, CONTIGUOUS = _BEHAVIORS = (
    "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous",
)  # fmt: skip
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Rust's classes: `\w`, white space, and punctuation as BERT has it.
_LETTER = (
    r"\pL\pM\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}"
    r"\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}"
)


class Words(NamedTuple):
    """Words of texts.

    Attributes:
      texts: string [W]; none is empty.
      splits: the words of text i are `splits[i]` to `splits[i + 1]`, int64 [N + 1].
      firsts: the first character that each byte comes from, int32 [Y]; None = not asked for.
      lasts: the last one, int32 [Y].
    """

    texts: tf.Tensor
    splits: tf.Tensor
    firsts: tf.Tensor | None = None
    lasts: tf.Tensor | None = None

    def of_bytes(self, change: Any) -> "Words":
        """Returns the same with `change` done to what is known of the bytes."""
        if self.firsts is None or self.lasts is None:
            return self
        return self._replace(firsts=change(self.firsts), lasts=change(self.lasts))


class Step(Protocol):
    """One pre-tokenizer."""

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """Splits words.

        Args:
          words: the words so far.
          begins: whether each text is the beginning of one, bool [N]; None = all are.
        """


class Split:
    """Splits words at what an expression finds."""

    def __init__(self, pattern: Pattern, behavior: str, invert: bool = False):
        """Makes a step.

        Args:
          pattern: what is found.
          behavior: one of five: what is found is removed, a word, joined to the word before it or
            after it, or joined with what is found beside it.
          invert: whether what is not found is treated so.
        """
        if behavior not in _BEHAVIORS:
            raise ValueError(f"{behavior!r} is none of {', '.join(_BEHAVIORS)}")
        self._pattern, self._behavior, self._invert = pattern, behavior, invert

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """See `Step`."""
        texts = self._pattern.marked(words.texts)
        found = tf.strings.regex_replace(texts, self._pattern.expression, _CUT + rb"\0" + _CUT)
        pieces = tf.strings.split(found, _CUT)  # in turns not found and found
        match = tf.equal(tf.ragged.range(pieces.row_lengths()).values % 2, 1)
        match = ~match if self._invert else match
        values, owner = self._pattern.unmarked(pieces.values), offsets.rows_of(pieces)
        kept = tf.not_equal(values, "")
        if self._behavior == REMOVED:
            sizes = tf.strings.length(values)
            inside = tf.repeat(~match, sizes)
            words = words.of_bytes(lambda characters: tf.boolean_mask(characters, inside))
            kept &= ~match
        values, owner, match = (tf.boolean_mask(part, kept) for part in (values, owner, match))
        if self._behavior in (PREVIOUS, NEXT, CONTIGUOUS):
            before = match[:-1]
            joined = {
                PREVIOUS: match[1:] & ~before,
                NEXT: before & ~match[1:],
                CONTIGUOUS: tf.equal(match[1:], before),
            }[self._behavior] & (owner[1:] == owner[:-1])
            first = tf.concat([[True], ~joined], 0)[: tf.size(match)]
            group = tf.cumsum(tf.cast(first, tf.int32)) - 1
            count = tf.reduce_sum(tf.cast(first, tf.int32))
            values = tf.strings.unsorted_segment_join(values, group, count)
            owner = tf.boolean_mask(owner, first)
        counts = tf.math.bincount(tf.cast(owner, tf.int32), minlength=tf.size(words.texts))
        before = tf.concat([[0], tf.cumsum(counts)], 0)
        splits = tf.cast(tf.gather(before, words.splits), tf.int64)
        return words._replace(texts=values, splits=splits)


class Prefix:
    """Puts a text before words that do not begin with it."""

    def __init__(self, text: str, first: bool = False):
        """Makes a step.

        Args:
          text: the text.
          first: whether only the first word of a text gets it.
        """
        self._text, self._first = text, first

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """See `Step`. The text is at the first character of the word."""
        size = len(self._text.encode())
        start = tf.strings.substr(words.texts, 0, tf.minimum(size, tf.strings.length(words.texts)))
        lacks = tf.not_equal(start, self._text)
        if self._first:
            at_first = tf.tensor_scatter_nd_update(
                tf.zeros([tf.size(words.texts) + 1], tf.bool),
                words.splits[:-1, None],
                tf.fill(tf.shape(words.splits[:-1]), True) if begins is None else begins,
            )
            lacks &= at_first[:-1]
        sizes = tf.strings.length(words.texts)
        before = tf.cumsum(sizes) - sizes
        times = tf.tensor_scatter_nd_add(
            tf.ones([tf.reduce_sum(sizes)], tf.int32),
            before[:, None],
            tf.where(lacks, size, 0),
        )
        words = words.of_bytes(lambda characters: tf.repeat(characters, times))
        return words._replace(texts=tf.where(lacks, self._text + words.texts, words.texts))


class BlankMarks:
    """Replaces each blank by "▁"."""

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """See `Step`."""
        if words.firsts is not None:
            raw = tf.io.decode_raw(tf.strings.reduce_join(words.texts), tf.uint8)
            times = tf.where(tf.equal(raw, ord(" ")), _BLANK_BYTES, 1)
            words = words.of_bytes(lambda characters: tf.repeat(characters, times))
        return words._replace(texts=tf.strings.regex_replace(words.texts, " ", BLANK))


class Bytes:
    """Writes each byte as a character of GPT-2's alphabet."""

    def __init__(self) -> None:
        self._characters = tf.constant([ALPHABET[byte] for byte in range(256)])

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """See `Step`."""
        if words.firsts is not None:
            raw = tf.io.decode_raw(tf.strings.reduce_join(words.texts), tf.uint8)
            widths = tf.strings.length(self._characters)
            times = tf.gather(widths, tf.cast(raw, tf.int32))
            words = words.of_bytes(lambda characters: tf.repeat(characters, times))
        unique, numbers = tf.unique(words.texts)
        split = tf.strings.bytes_split(unique)
        values = tf.reshape(tf.io.decode_raw(split.values, tf.uint8), [-1])
        spelled = split.with_values(tf.gather(self._characters, tf.cast(values, tf.int32)))
        return words._replace(texts=tf.gather(offsets.joined(spelled), numbers))


def steps(described: Mapping[str, Any], is_first: bool) -> list[Step] | None:
    """Returns the steps of a pre-tokenizer; None = there is none of this name.

    Args:
      described: its description.
      is_first: whether no other pre-tokenizer comes before it.

    Raises:
      patterns.Unsupported: it cannot be computed by TensorFlow.
      LookupError, TypeError, ValueError: the description is not as the package writes it.
    """
    kind = described["type"]
    if kind == "WhitespaceSplit":
        return [Split(_class(SPACE), REMOVED)]
    if kind == "Whitespace":
        return [
            Split(_class(SPACE), REMOVED),
            Split(Pattern(f"[{_LETTER}]+|[^{SPACE}{_LETTER}]+", False), ISOLATED),
        ]
    if kind == "BertPreTokenizer":
        return [Split(_class(SPACE), REMOVED), Split(_class(wordpiece.SIGNS), ISOLATED)]
    if kind == "Punctuation":
        return [Split(_class(wordpiece.SIGNS), str(described.get("behavior", ISOLATED)))]
    if kind == "Digits":
        return [Split(_class(DIGIT), ISOLATED if described["individual_digits"] else CONTIGUOUS)]
    if kind == "CharDelimiterSplit":
        return [Split(patterns.literal(described["delimiter"]), REMOVED)]
    if kind == "Split":
        pattern, _ = text_steps.pattern_of(described["pattern"])
        return [Split(pattern, described["behavior"], bool(described.get("invert")))]
    if kind == "Metaspace":
        return _metaspace(described, is_first)
    if kind == "ByteLevel":
        parts: list[Step] = [Prefix(" ")] if described.get("add_prefix_space", True) else []
        if described.get("use_regex", True):
            parts.append(Split(patterns.translated(GPT2), ISOLATED))
        return [*parts, Bytes()]
    return None


def _metaspace(described: Mapping[str, Any], is_first: bool) -> list[Step]:
    if described.get("replacement", BLANK) != BLANK:
        raise patterns.Unsupported(f"the replacement {described['replacement']!r}")
    scheme = described.get("prepend_scheme")
    if scheme is None:
        scheme = "always" if described.get("add_prefix_space", True) else "never"
    parts: list[Step] = [BlankMarks()]
    if scheme == "first" and not is_first:
        raise patterns.Unsupported("prepend_scheme 'first' after another pre-tokenizer")
    if scheme != "never":
        parts.append(Prefix(BLANK, scheme == "first"))
    if described.get("split", True):
        parts.append(Split(patterns.literal(BLANK), NEXT))
    return parts


def _class(characters: str) -> Pattern:
    return Pattern(f"[{characters}]", False)
