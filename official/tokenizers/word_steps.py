"""The pre-tokenizers of `tokenizer.json`, which split a text into words.

Each step splits the words of the step before. If offsets are needed, the original characters of
each byte of the words are tracked.

Shapes: N texts, W words of all texts, Y bytes of all words; a ragged dimension is written None.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from official.tokenizers import offsets, patterns, text_steps
from official.tokenizers.added_tokens import SPACE
from official.tokenizers.byte_bpe import DIGIT, LETTER, MARKS
from official.tokenizers.byte_vocabulary import ALPHABET
from official.tokenizers.patterns import Pattern
from official.tokenizers.word_starts import BLANK

_CUT = b"\xff"  # no UTF-8 text has this byte
_BLANK_BYTES = len(BLANK.encode())
REMOVED, ISOLATED, PREVIOUS, NEXT, CONTIGUOUS = _BEHAVIORS = (
    "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous",
)  # fmt: skip
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# The package's classes: `\w` of Unicode 16 (with characters that TensorFlow's 15.0 lacks); the
# digits of Unicode 17; and signs, the punctuation of Unicode 7.
_LETTER = (
    r"\pL\pM\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}"
    r"\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}"
    + MARKS
    + LETTER.removeprefix(r"\p{L}")
    + r"\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{16130}-\x{16139}"
    r"\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e5f1}-\x{1e5fa}"
)
_DIGIT = DIGIT + r"\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}"
_RANGES = """
3f 5f
21-2f 3a-3e 40 5b-5e 60 7b-7e a1 a7 ab b6-b7 bb bf 37e 387 55a-55f 589-58a 5be 5c0 5c3 5c6 5f3-5f4
609-60a 60c-60d 61b 61e-61f 66a-66d 6d4 700-70d 7f7-7f9 830-83e 85e 964-965 970 af0 df4 e4f
e5a-e5b f04-f12 f14 f3a-f3d f85 fd0-fd4 fd9-fda 104a-104f 10fb 1360-1368 1400 166d-166e 169b-169c
16eb-16ed 1735-1736 17d4-17d6 17d8-17da 1800-180a 1944-1945 1a1e-1a1f 1aa0-1aa6 1aa8-1aad
1b5a-1b60 1bfc-1bff 1c3b-1c3f 1c7e-1c7f 1cc0-1cc7 1cd3 2010-2027 2030-2043 2045-2051 2053-205e
207d-207e 208d-208e 2308-230b 2329-232a 2768-2775 27c5-27c6 27e6-27ef 2983-2998 29d8-29db
29fc-29fd 2cf9-2cfc 2cfe-2cff 2d70 2e00-2e2e 2e30-2e42 3001-3003 3008-3011 3014-301f 3030 303d
30a0 30fb a4fe-a4ff a60d-a60f a673 a67e a6f2-a6f7 a874-a877 a8ce-a8cf a8f8-a8fa a8fc a92e-a92f
a95f a9c1-a9cd a9de-a9df aa5c-aa5f aade-aadf aaf0-aaf1 abeb fd3e-fd3f fe10-fe19 fe30-fe52
fe54-fe61 fe63 fe68 fe6a-fe6b ff01-ff03 ff05-ff0a ff0c-ff0f ff1a-ff1b ff1f-ff20 ff3b-ff3d ff3f
ff5b ff5d ff5f-ff65 10100-10102 1039f 103d0 1056f 10857 1091f 1093f 10a50-10a58 10a7f 10af0-10af6
10b39-10b3f 10b99-10b9c 11047-1104d 110bb-110bc 110be-110c1 11140-11143 11174-11175 111c5-111c9
111cd 111db 111dd-111df 11238-1123d 112a9 114c6 115c1-115d7 11641-11643 1173c-1173e 12470-12474
16a6e-16a6f 16af5 16b37-16b3b 16b44 1bc9f 1da87-1da8b
"""
_SIGN = "".join("-".join(rf"\x{{{code}}}" for code in part.split("-")) for part in _RANGES.split())


class Words(NamedTuple):
    """Words of texts.

    Attributes:
      texts: string [W]; none is empty.
      splits: the words of text i are `splits[i]` to `splits[i + 1]`, int64 [N + 1].
      firsts: the first character that each byte comes from, int32 [Y]; None = offsets are not
        needed.
      lasts: the last character that each byte comes from, int32 [Y].
    """

    texts: tf.Tensor
    splits: tf.Tensor
    firsts: tf.Tensor | None = None
    lasts: tf.Tensor | None = None

    def of_bytes(self, change: Any) -> "Words":
        """Returns the words with `change` applied to `firsts` and `lasts`."""
        if self.firsts is None or self.lasts is None:
            return self
        return self._replace(firsts=change(self.firsts), lasts=change(self.lasts))


class Step(Protocol):
    """A pre-tokenizer."""

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """Splits words.

        Args:
          words: the words of the step before.
          begins: whether each text is the beginning of an input text, and not a part after an added
            token, bool [N]; None = all are.
        """


class Split:
    """Splits words at the matches of an expression."""

    def __init__(self, pattern: Pattern, behavior: str, invert: bool = False):
        """Makes a step.

        Args:
          pattern: the expression.
          behavior: the treatment of a match: 'Removed'; 'Isolated' = it is a word;
            'MergedWithPrevious' or 'MergedWithNext' = joined to the word before or after it;
            'Contiguous' = joined with adjacent matches.
          invert: whether the text between matches is treated as matches.
        """
        if behavior not in _BEHAVIORS:
            raise ValueError(f"{behavior!r} is none of {', '.join(_BEHAVIORS)}")
        self._pattern, self._behavior, self._invert = pattern, behavior, invert

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """See `Step`."""
        texts = self._pattern.marked(words.texts)
        found = tf.strings.regex_replace(texts, self._pattern.expression, _CUT + rb"\0" + _CUT)
        pieces = tf.strings.split(found, _CUT)  # unmatched and matched text in turns
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
    """Puts a prefix before words that do not begin with it."""

    def __init__(self, text: str, first: bool = False):
        """Makes a step.

        Args:
          text: the prefix.
          first: whether only the first word of an input text gets it.
        """
        self._text, self._first = text, first

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """See `Step`. The prefix gets the offsets of the first character of the word."""
        size = len(self._text.encode())
        lengths = tf.minimum(size, tf.strings.length(words.texts))
        start = tf.strings.substr(words.texts, tf.zeros_like(lengths), lengths)
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
        self._spelled = text_steps.Bytes()
        self._widths = tf.constant([len(ALPHABET[byte].encode()) for byte in range(256)])

    def apply(self, words: Words, begins: tf.Tensor | None) -> Words:
        """See `Step`."""
        if words.firsts is not None:
            raw = tf.io.decode_raw(tf.strings.reduce_join(words.texts), tf.uint8)
            times = tf.gather(self._widths, tf.cast(raw, tf.int32))
            words = words.of_bytes(lambda characters: tf.repeat(characters, times))
        unique, numbers = tf.unique(words.texts)
        return words._replace(texts=tf.gather(self._spelled.apply(unique), numbers))


def steps(described: Mapping[str, Any], is_first: bool) -> list[Step] | None:
    """Returns the steps for the description of a pre-tokenizer; None = its type is unknown.

    Args:
      described: the description of the pre-tokenizer.
      is_first: whether it is the first pre-tokenizer.

    Raises:
      patterns.Unsupported: TensorFlow cannot compute it.
      LookupError, TypeError, ValueError: the description is malformed.
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
        return [Split(_class(SPACE), REMOVED), Split(_class(_SIGN), ISOLATED)]
    if kind == "Punctuation":
        return [Split(_class(_SIGN), str(described.get("behavior", ISOLATED)))]
    if kind == "Digits":
        return [Split(_class(_DIGIT), ISOLATED if described["individual_digits"] else CONTIGUOUS)]
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
