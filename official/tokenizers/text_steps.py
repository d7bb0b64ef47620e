"""The normalizers of `tokenizer.json`, which change a text before it is split.

Each is an object with two methods: `apply` for texts, and `by_character` for texts that are split
into characters, so that offsets of tokens can be traced to the original characters. If several
characters are replaced together (a composed letter, a replacement), the result is at the first of
them, and the others become empty.

Shapes: N texts, C characters of all texts; a ragged dimension is written None.
"""

import base64
from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf
import tensorflow_text as tf_text
from typing_extensions import override

from official.tokenizers import charsmap, composition, offsets, patterns, wordpiece
from official.tokenizers.added_tokens import SPACE
from official.tokenizers.byte_bpe import MARKS
from official.tokenizers.byte_vocabulary import ALPHABET
from official.tokenizers.patterns import Pattern
from official.tokenizers.sentencepiece_rules import NO_REPLACEMENTS

_CUT = b"\xff"  # no UTF-8 text has this byte
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_NONCHARACTER = "\uffff"
# The characters that the normalizer of BERT removes, and the ideographs that it puts blanks around:
# fewer blocks than in BERT's release.
_CONTROL = r"\x{0}-\x{8}\x{b}\x{c}\x{e}-\x{1f}\x{7f}-\x{9f}\p{Cf}\p{Co}\x{fffd}"
_IDEOGRAPHS = wordpiece.IDEOGRAPHS.replace(r"\x{2b820}", r"\x{2b920}")
# The control characters that the normalizer of NMT removes, and those that become a blank.
_NMT_REMOVED = r"\x{1}-\x{8}\x{b}\x{e}-\x{1f}\x{7f}\x{8f}\x{9f}"
_NMT_BLANK = r"\t\n\f\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}"


class Step(Protocol):
    """One normalizer.

    Attributes:
      local: whether the step changes each part of a text as it changes the part within the whole
        text.
    """

    local: bool

    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns valid UTF-8 strings [N] after the step."""

    def by_character(
        self, characters: tf.RaggedTensor, attached: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Like `apply`, for texts that are split into characters.

        Args:
          characters: the form of each character after earlier steps, string [N, None].
          attached: whether each character belongs to the one before it, bool [C].

        Returns:
          Both after the step.
        """


class _ByCharacter:
    """A step that changes each character independently."""

    local = True
    marks = ""  # characters that, when removed, belong to the one before

    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        """See `Step`."""
        raise NotImplementedError

    def by_character(
        self, characters: tf.RaggedTensor, attached: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """See `Step`."""
        values = self.apply(characters.values)
        if self.marks:
            removed = tf.equal(values, "") & tf.strings.regex_full_match(
                characters.values, f"[{self.marks}]+"
            )
            attached |= removed
        return characters.with_values(values), attached


class Form(_ByCharacter):
    """One of Unicode's four normalization forms."""

    def __init__(self, name: str):
        self._name = name

    @override
    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        if "K" in self._name:  # a character of 2019 (Unicode 12.1) that TensorFlow's tables lack
            texts = tf.strings.regex_replace(texts, "\u32ff", "令和")
        return tf_text.normalize_utf8(texts, self._name)

    @override
    def by_character(
        self, characters: tf.RaggedTensor, attached: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        if self._name == "NFKC":
            characters, attached = Form("NFKD").by_character(characters, attached)
        if self._name in ("NFC", "NFKC"):
            characters, joined = composition.composed_by_character(characters)
            return characters, attached | joined
        return super().by_character(characters, attached)


class LowerCase(_ByCharacter):
    """Lower case, one character at a time: a capital sigma at the end of a word is "σ"."""

    @override
    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        return _lower(texts)


def _lower(texts: tf.Tensor) -> tf.Tensor:
    texts = tf.strings.regex_replace(texts, "Σ", "σ")
    # TensorFlow cuts text at NUL, so NUL is temporarily replaced by a noncharacter.
    texts = tf.strings.regex_replace(texts, r"\x{0}", _NONCHARACTER)
    texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.regex_replace(texts, _NONCHARACTER, "\0")


class Characters(_ByCharacter):
    """Replaces characters of classes by texts."""

    def __init__(self, replacements: Mapping[str, str], marks: str = ""):
        """Makes a step.

        Args:
          replacements: {class without its brackets: replacement}, applied in this order.
          marks: see the base class.
        """
        self._replacements = dict(replacements)
        self.marks = marks

    @override
    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        for characters, replacement in self._replacements.items():
            texts = tf.strings.regex_replace(texts, f"[{characters}]", replacement)
        return texts


class Bert(_ByCharacter):
    """The normalizer of BERT; each of its four parts may be off."""

    marks = r"\pM"

    def __init__(self, clean: bool, ideographs: bool, accents: bool, lower_case: bool):
        self._clean, self._ideographs = clean, ideographs
        self._accents, self._lower_case = accents, lower_case

    @override
    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        if self._clean:
            texts = tf.strings.regex_replace(texts, f"[{_CONTROL}]+", "")
            texts = tf.strings.regex_replace(texts, f"[{wordpiece.BLANK}]", " ")
        if self._ideographs:
            texts = tf.strings.regex_replace(texts, f"[{_IDEOGRAPHS}]", r" \0 ")
        if self._accents:
            texts = tf_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, r"\p{Mn}+", "")
        return _lower(texts) if self._lower_case else texts


class Precompiled(tf.Module):
    """The replacements of a SentencePiece model; a module, so that a SavedModel saves them."""

    local = True

    def __init__(self, table: bytes):
        super().__init__()
        self._replacements = charsmap.Replacements(table)

    @override
    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        return self._replacements(texts)

    @override
    def by_character(
        self, characters: tf.RaggedTensor, attached: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        return self._replacements.by_character(characters, attached)


class Bytes(_ByCharacter):
    """Writes each byte as a character of GPT-2's alphabet."""

    def __init__(self) -> None:
        self._characters = tf.constant([ALPHABET[byte] for byte in range(256)])

    @override
    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        split = tf.strings.bytes_split(texts)
        values = tf.reshape(tf.io.decode_raw(split.values, tf.uint8), [-1])
        spelled = tf.gather(self._characters, tf.cast(values, tf.int32))
        return offsets.joined(split.with_values(spelled))


class Strip:
    """Removes white space from the ends of a text."""

    local = False

    def __init__(self, left: bool, right: bool):
        self._left, self._right = left, right

    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        """See `Step`."""
        if self._left:
            texts = tf.strings.regex_replace(texts, f"^[{SPACE}]+", "")
        return tf.strings.regex_replace(texts, f"[{SPACE}]+$", "") if self._right else texts

    def by_character(
        self, characters: tf.RaggedTensor, attached: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """See `Step`."""
        values = characters.values
        if self._left:
            values = _of_ends(characters, lambda texts: tf.strings.regex_replace(
                texts, f"^[{SPACE}]+", ""), first=True)  # fmt: skip
            characters = characters.with_values(values)
        if self._right:
            values = _of_ends(characters, lambda texts: tf.strings.regex_replace(
                texts, f"[{SPACE}]+$", ""), first=False)  # fmt: skip
        return characters.with_values(values), attached


def _of_ends(characters: tf.RaggedTensor, change: Any, first: bool) -> tf.Tensor:
    """Returns characters [C], with `change` applied to the blanks at one end of each text.

    Args:
      characters: string [N, None].
      change: removes blanks from one end of strings.
      first: whether it is the beginning of texts, not the end.
    """
    blank = tf.strings.regex_full_match(characters.values, f"[{SPACE}]*")
    rows = offsets.rows_of(characters)
    count = tf.cast(characters.nrows(), tf.int64)
    position = tf.range(tf.size(rows))
    of_text = tf.where(blank, -1 if not first else tf.int32.max, position)
    if first:
        # the first character that is not a blank
        edge = tf.math.unsorted_segment_min(of_text, rows, count)
        outside = position < tf.gather(edge, rows)
    else:
        edge = tf.math.unsorted_segment_max(of_text, rows, count)
        outside = position > tf.gather(edge, rows)
    at_edge = tf.equal(position, tf.gather(edge, rows))
    values = tf.where(outside, "", characters.values)
    return tf.where(at_edge, change(values), values)


class Prepend:
    """Puts a text before each text that is not empty."""

    local = False

    def __init__(self, text: str):
        self._text = text

    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        """See `Step`."""
        return tf.where(tf.equal(texts, ""), texts, self._text + texts)

    def by_character(
        self, characters: tf.RaggedTensor, attached: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """See `Step`; the text is added to the first character that is not empty."""
        rows = offsets.rows_of(characters)
        some = tf.cast(characters.values != "", tf.int32)
        total = tf.cumsum(some)
        before = tf.concat([[0], total], 0)
        count = total - tf.gather(before, tf.gather(characters.row_starts(), rows))
        first = tf.equal(count, 1) & tf.equal(some, 1)
        values = tf.where(first, self._text + characters.values, characters.values)
        return characters.with_values(values), attached


class Replace:
    """Replaces the matches of an expression."""

    def __init__(self, pattern: Pattern, content: str, local: bool):
        """Makes a step.

        Args:
          pattern: the expression.
          content: the replacement.
          local: whether every match is a single character.
        """
        self._pattern, self._content, self.local = pattern, content, local

    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        """See `Step`."""
        texts = self._pattern.marked(texts)
        content = self._content.replace("\\", r"\\")
        texts = tf.strings.regex_replace(texts, self._pattern.expression, content)
        return self._pattern.unmarked(texts)

    def by_character(
        self, characters: tf.RaggedTensor, attached: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """See `Step`."""
        if self.local:
            return characters.with_values(self.apply(characters.values)), attached
        texts = self._pattern.marked(offsets.joined(characters))
        found = _CUT + rb"\0" + _CUT
        pieces = tf.strings.split(
            tf.strings.regex_replace(texts, self._pattern.expression, found), _CUT
        )
        match = tf.equal(tf.ragged.range(pieces.row_lengths()).values % 2, 1)
        pieces = pieces.with_values(self._pattern.unmarked(pieces.values))
        # For each byte: whether it is in a match, and whether it begins a match.
        sizes = tf.strings.length(pieces.values)
        in_match = tf.repeat(match, sizes)
        begins = tf.equal(tf.ragged.range(sizes).values, 0) & in_match
        raw = tf.strings.bytes_split(tf.strings.reduce_join(pieces.values))
        kept = tf.where(in_match, tf.where(begins, self._content, ""), raw)
        widths = tf.strings.length(characters.values)
        owner = tf.repeat(tf.range(tf.size(widths)), widths)
        values = tf.strings.unsorted_segment_join(kept, owner, tf.size(widths))
        gone = tf.equal(values, "") & (widths > 0)
        return characters.with_values(values), attached | gone


def step(described: Mapping[str, Any]) -> Step | None:
    """Returns the step for the description of a normalizer; None = its type is unknown.

    Raises:
      patterns.Unsupported: RE2 cannot express an expression.
      LookupError, TypeError, ValueError: the description is malformed.
    """
    kind = described["type"]
    if kind in _FORMS:
        return Form(kind)
    if kind == "Lowercase":
        return LowerCase()
    if kind == "StripAccents":
        return Characters({MARKS: ""}, marks=MARKS)
    if kind == "ByteLevel":
        return Bytes()
    if kind == "Nmt":
        return Characters({_NMT_REMOVED: "", _NMT_BLANK: " "})
    if kind == "Strip":
        return Strip(bool(described["strip_left"]), bool(described["strip_right"]))
    if kind == "Prepend":
        return Prepend(str(described["prepend"]))
    if kind == "Precompiled":
        table = base64.b64decode(described["precompiled_charsmap"] or "")
        return Precompiled(table or NO_REPLACEMENTS)
    if kind == "BertNormalizer":
        lower_case = bool(described.get("lowercase", True))
        accents = described.get("strip_accents")
        return Bert(
            bool(described.get("clean_text", True)),
            bool(described.get("handle_chinese_chars", True)),
            lower_case if accents is None else bool(accents),
            lower_case,
        )
    if kind == "Replace":
        pattern, single = pattern_of(described["pattern"])
        return Replace(pattern, str(described["content"]), single)
    return None


def pattern_of(described: Mapping[str, Any]) -> tuple[Pattern, bool]:
    """Returns an expression of the file, and whether each match is a single character."""
    ((kind, text),) = described.items()
    if kind == "String":
        if not text:
            raise patterns.Unsupported("an empty text")
        return patterns.literal(text), len(text) == 1
    pattern = patterns.translated(text)
    one = (
        pattern.expression.startswith("[")
        and pattern.expression.find("]") == len(pattern.expression) - 1
    )
    return pattern, one
