"""Normalises blanks, quotes, accents and case before SentencePiece reads a text.

These are the steps of the releases of ALBERT (`tokenization.preprocess_text`) and XLNet
(`prepro_utils.preprocess_text`), and of the tokenizers of transformers for both. Each rule has its
own setting. The first rules are applied in the order of the attributes of `TextRules`.

Shapes: N texts, C characters of all texts; a ragged dimension is written None.
"""

import dataclasses

import tensorflow as tf
import tensorflow_text as tf_text

from official.tokenizers import combining, offsets

# The characters that Python's `split` treats as blanks.
WHITE_SPACE = r"[\t-\r\x{1c}-\x{1f}\x{85}\pZ]"
_COMBINING = f"[{combining.PATTERN}]"
_NONCHARACTER = "\uffff"


@dataclasses.dataclass(frozen=True)
class TextRules:
    """The rules for one tokenizer.

    Attributes:
      remove_space: whether each run of blanks becomes one space, and blanks at the ends of a text
        are removed.
      replace_quotes: whether two grave accents or two apostrophes become a straight double quote.
      keep_accents: False = the text is decomposed (NFKD), and combining marks are removed.
      lower_case: whether letters become lower case.
      remove_marks: whether all marks are removed with the accents, vowel signs too, as by the
        `tokenizers` package, and not only the combining ones.
      blanks: characters that become a blank.
    """

    remove_space: bool = False
    replace_quotes: bool = False
    keep_accents: bool = True
    lower_case: bool = False
    remove_marks: bool = False
    blanks: str = ""

    @property
    def _marks(self) -> str:
        return r"\pM" if self.remove_marks else _COMBINING

    def _with_blanks(self, texts: tf.Tensor) -> tf.Tensor:
        if not self.blanks:
            return texts
        codes = "".join(rf"\x{{{ord(character):x}}}" for character in self.blanks)
        return tf.strings.regex_replace(texts, f"[{codes}]", " ")

    def apply(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalises strings [N]."""
        texts = self._with_blanks(texts)
        if self.remove_space:
            texts = tf.strings.regex_replace(texts, f"{WHITE_SPACE}+", " ")
            texts = tf.strings.regex_replace(texts, "^ | $", "")
        if self.replace_quotes:
            texts = tf.strings.regex_replace(texts, "``|''", '"')
        return self._apply_to_letters(texts)

    def apply_by_character(self, characters: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Normalises texts that are split into characters, as `apply` does.

        A text is normalised character by character, except for the form of a Greek sigma, which
        does not change the number of bytes.

        Args:
          characters: string [N, None].

        Returns:
          The normalised form of each character, string [N, None], which may be empty; and bool [C],
          whether a character belongs to the one before it: a combining mark that is removed, or the
          second of two quotes.
        """
        given = characters.values  # [C]
        runs = _Runs(characters)
        second = tf.zeros_like(given, tf.bool)
        values = self._with_blanks(given)
        if self.remove_space:
            blank = tf.strings.regex_full_match(given, WHITE_SPACE)
            space = blank & (runs.offset == 0) & ~runs.at_edge
            values = tf.where(blank, tf.where(space, " ", ""), values)
        if self.replace_quotes:
            quote = tf.equal(given, "`") | tf.equal(given, "'")
            first = quote & (runs.offset % 2 == 0) & (runs.offset + 1 < runs.length)
            second = quote & (runs.offset % 2 == 1)
            values = tf.where(first, '"', tf.where(second, "", values))
        values = self._apply_to_letters(values)
        if not self.keep_accents:
            second |= tf.strings.regex_full_match(given, self._marks)
        return characters.with_values(values), second

    def _apply_to_letters(self, texts: tf.Tensor) -> tf.Tensor:
        if not self.keep_accents:
            texts = tf_text.normalize_utf8(texts, "NFKD")
            texts = tf.strings.regex_replace(texts, f"{self._marks}+", "")
        if self.lower_case:
            # TensorFlow cuts text at NUL, so NUL is replaced by a noncharacter in between.
            texts = tf.strings.regex_replace(texts, r"\x{0}", _NONCHARACTER)
            texts = tf.strings.lower(texts, encoding="utf-8")
            texts = tf.strings.regex_replace(texts, _NONCHARACTER, "\0")
        return texts


class _Runs:
    """The runs of equal characters in texts; all blanks are equal.

    Attributes:
      offset: int32 [C], the position of a character in its run, from 0.
      length: int32 [C], the length of its run.
      at_edge: bool [C], whether the run begins or ends its text.
    """

    def __init__(self, characters: tf.RaggedTensor):
        values = tf.strings.regex_replace(characters.values, WHITE_SPACE, " ")
        rows = offsets.rows_of(characters)
        changes = (values[1:] != values[:-1]) | (rows[1:] != rows[:-1])
        begins = tf.concat([tf.ones_like(values[:1], tf.bool), changes], 0)  # [C]
        run = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        start = tf.cast(tf.reshape(tf.where(begins), [-1]), tf.int32)  # of each run
        count = tf.size(values)
        sizes = tf.concat([start[1:], tf.reshape(count, [1])[: tf.size(start)]], 0) - start
        self.length = tf.gather(sizes, run)
        first = tf.gather(start, run)
        self.offset = tf.range(count) - first
        row_starts = tf.cast(tf.gather(characters.row_starts(), rows), tf.int32)
        row_ends = tf.cast(tf.gather(characters.row_limits(), rows), tf.int32)
        self.at_edge = (first == row_starts) | (first + self.length == row_ends)
