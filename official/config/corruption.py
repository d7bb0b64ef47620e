"""Configs of the corruptions, which hide tokens from the model."""

import dataclasses
import math
from typing import TYPE_CHECKING

from official.config.part import CorruptionConfig
from official.utils.strict import at_least, fraction, one_of, positive_fraction

if TYPE_CHECKING:
    from official.config.segments import Segments

# The batch fields that `official.corruption.units` and `token_masks` add.
TARGET_FIELDS = frozenset({"masked_positions", "masked_ids", "masked_weights"})
SPAN_FIELDS = frozenset({"span_left", "span_right", "span_offset", "span_weights"})
# Rules for the SentencePiece pieces that begin a word; see `official.tokenizers.word_starts`.
WORD_START_RULES = ("xlnet", "albert", "blank")


def _check_blocks(name: str, size: int, segments: "Segments") -> None:
    """Checks that blocks fill a row, and end where the next row continues.

    Args:
      name: the name of the setting, for messages.
      size: tokens of a block.
      segments: the segments of the config.

    Raises:
      ValueError: they do not; the message has the arithmetic.
    """
    length = segments.max_length
    if reused := segments.reuse_length % size:
        # The memory of the next row would contain positions that attended to its targets.
        raise ValueError(
            f"{name}: blocks of {size} do not end where the next row continues, after "
            f"reuse_length {segments.reuse_length} = {segments.reuse_length // size} × {size} + "
            f"{reused}: take a divisor of both reuse_length and max_length {length}"
        )
    if length % size:
        raise ValueError(
            f"{name}: blocks of {size} do not fill max_length {length}: {length} = "
            f"{length // size} × {size} + {length % size}; take a divisor"
        )


# The features that mark the units.
_NEEDS = {"phrase": {"phrase_inner"}, "entity": {"entity_inner"}}
RUNS = ("ngram", "span")  # units that are runs of words, of a random length
WHOLE = ("token", "word", "phrase", "entity")  # units that the text determines
UNITS = (*WHOLE, *RUNS)
COUNTS = ("nearest", "up", "random", "each")
ACTIONS = ("token", "unit")
RANDOM_TOKENS = ("uniform", "non_special", "unigram")


@dataclasses.dataclass(frozen=True)
class TokenMasksConfig(CorruptionConfig):
    """Masked tokens: how many tokens are selected, and how they are hidden.

    Attributes:
      unit: what is selected as a whole: 'token', 'word', 'phrase' or 'entity' (of the lexicon that
        the shards were made with; words elsewhere), 'ngram' (of words) or 'span' (of words; the
        last word may be cut to meet the number of tokens).
      mask_rate: p, the share of a sequence's n tokens that are predicted.
      max_predictions: P, the largest number of predicted tokens in a sequence; if sequences share a
        row, in each of them.
      count: how p·n is rounded to a number, which is at least 1: 'nearest' = to the nearest whole
        number, halves to the even one (BERT); 'up' = to the next whole number, where n does not
        count special tokens (SpanBERT); 'random' = int(p·n + u), u uniform in [0, 1) (RoBERTa). Or
        'each' = each unit is selected independently with probability p (ERNIE); if more than P
        tokens are selected, random units are dropped.
      replacement: whether tokens are drawn with replacement (ELECTRA). The number is then the
        number of draws, and a token that is drawn twice has weight 2. For the unit 'token' only.
      word_starts: the SentencePiece pieces that begin a word: 'xlnet' = those with the blank mark,
        punctuation, and pieces of scripts without blanks; 'albert' = also all others that are not
        ASCII letters alone; 'blank' = those with the mark only. See
        `official.tokenizers.word_starts`.
      mask_prob: the share of the predicted tokens that become [MASK].
      random_prob: the share of the predicted tokens that become a random token; the rest stay.
      random_tokens: the distribution of random tokens: 'uniform' = the whole vocabulary, with
        special tokens (BERT); 'non_special' = without them (RoBERTa); 'unigram' = the frequencies
        in the corpus (SpanBERT).
      action: whether the replacement is drawn for each 'token', or once for each 'unit'; adjacent
        spans are one unit.
      max_ngram: the largest number of words of an n-gram; n has the probability p(n) ~ 1/n.
      max_span: the largest number of words of a span. The length is geometric, cut there and
        renormalised.
      span_prob: the parameter of the geometric distribution.
      block_size: tokens of a block. A position attends to its own block and to those before it. It
        divides the length of a row and, in a stream, the reused part. None = every position attends
        to the whole row.
    """

    type = "token_masks"
    packs = True

    unit: str = "token"
    mask_rate: float = 0.15
    max_predictions: int = 20
    count: str = "nearest"
    replacement: bool = False
    word_starts: str = WORD_START_RULES[0]
    mask_prob: float = 0.8
    random_prob: float = 0.1
    random_tokens: str = "uniform"
    action: str = "token"
    max_ngram: int = 3
    max_span: int = 10
    span_prob: float = 0.2
    block_size: int | None = None

    def __post_init__(self):
        for name, choices in (
            ("unit", UNITS),
            ("count", COUNTS),
            ("action", ACTIONS),
            ("random_tokens", RANDOM_TOKENS),
            ("word_starts", WORD_START_RULES),
        ):
            one_of(name, getattr(self, name), choices)
        if self.count == "each" and self.unit in RUNS:
            raise ValueError(
                f"count: each hides units by themselves, and the unit {self.unit} is a run of "
                f"them: take {', '.join(c for c in COUNTS if c != 'each')}, or the unit "
                f"{', '.join(WHOLE)}"
            )
        if self.replacement and (self.unit != "token" or self.count == "each"):
            raise ValueError(
                f"replacement: a number of tokens is drawn, and unit is {self.unit} and count is "
                f"{self.count}: take the unit token and the count nearest, or replacement: false"
            )
        positive_fraction(self, "mask_rate", "span_prob")
        at_least(self, 1, "max_predictions", "max_ngram", "max_span")
        at_least(self, 1, "block_size")
        fraction(self, "mask_prob", "random_prob")
        if self.mask_prob + self.random_prob > 1 + 1e-9:
            raise ValueError(
                f"mask_prob: {self.mask_prob} and random_prob {self.random_prob} exceed 1 together"
            )

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that `corrupt` reads, beside token_ids and padding_mask."""
        return frozenset(_NEEDS.get(self.unit, ()))

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that `corrupt` adds."""
        given = TARGET_FIELDS | (SPAN_FIELDS if self.unit == "span" else frozenset())
        return given if self.block_size is None else given | {"block_ids"}

    def check(self, segments: "Segments") -> None:
        """Checks that blocks fill a row, and that the longest run fits into a sequence.

        Args:
          segments: the segments of the config.

        Raises:
          ValueError: they do not; the message has the arithmetic.
        """
        if self.block_size is not None:
            _check_blocks("block_size", self.block_size, segments)
            if segments.packing > 1:
                raise ValueError(
                    f"block_size: {self.block_size} tokens of a row are counted, and sequences "
                    "that share one begin anywhere: take segments.packing: 1"
                )
        if self.unit not in RUNS:
            return
        field, longest = f"max_{self.unit}", self.longest_run
        specials = 2 if self.count == "up" else 0  # [CLS] and [SEP] are left out
        tokens = segments.max_length - specials
        exact = self.mask_rate * tokens
        # No TensorFlow here: a config is read before its devices are set up.
        number = {"nearest": round, "up": math.ceil, "random": int}[self.count](exact)
        number = max(1, number)
        bound = f"{self.mask_rate:g} × {tokens} tokens = {exact:g}"
        raised = "mask_rate or max_length"
        if self.max_predictions < number:
            number = self.max_predictions
            bound, raised = f"max_predictions = {number}", "max_predictions"
        if longest > number:
            raise ValueError(
                f"{field}: {longest} words have at least {longest} tokens, and at most {number} "
                f"are predicted in a sequence ({bound}): lower {field} to {number}, or raise "
                f"{raised}"
            )

    def row_predictions(self, length: int, parts: int) -> int:
        """Returns P of a row that several sequences share.

        Each sequence has its own number of predictions, at least 1 and, depending on `count`, a
        little more than `mask_rate` times its tokens: up to half a token more for 'nearest', up to
        one more for 'up' and 'random', and any number for 'each'. A sequence has at least three
        tokens.

        Args:
          length: tokens of a row.
          parts: the largest number of sequences that share the row.
        """
        if self.count == "each":
            return min(parts * self.max_predictions, length)
        rate = self.mask_rate
        more = {"nearest": max(0.5, 1 - 3 * rate), "up": max(0, 1 - 2 * rate), "random": 1.0}
        more = more[self.count]
        return min(parts * self.max_predictions, math.floor(rate * length + more * parts + 1e-6))

    @property
    def longest_run(self) -> int:
        """The largest number of words of a run."""
        return self.max_ngram if self.unit == "ngram" else self.max_span


TARGET_UNITS = ("token", "token_span", "word_span")


@dataclasses.dataclass(frozen=True)
class PermutationConfig(CorruptionConfig):
    """Permutation: targets that are predicted in a random order (XLNet).

    Attributes:
      unit: 'token' = single targets; 'token_span' = spans of 1, 2, ... tokens that begin with a
        word (XLNet's release); 'word_span' = spans of 1, 2, ... words (the paper). The last span
        may be cut to meet the number. See `official.corruption.partial_prediction`.
      k: K: a row of n tokens has n // k targets, at least one.
      num_predict: P, the number of targets of a full row, which is the largest number.
      max_span: the largest number of tokens or words of a span; n has the probability p(n) ~ 1/n.
      word_starts: the SentencePiece pieces that begin a word: 'xlnet', 'albert' or 'blank'. See
        `official.tokenizers.word_starts`.
      perm_size: tokens of a block. It divides the length of a row and, in a stream, the reused
        part, because no block may attend to what the next row predicts. None = the row is one
        block.
    """

    type = "permutation"
    static = False  # an order is drawn each time a row is read

    unit: str = "word_span"
    k: int = 6
    num_predict: int = 85
    max_span: int = 5
    word_starts: str = WORD_START_RULES[0]
    perm_size: int | None = None

    def __post_init__(self):
        one_of("unit", self.unit, TARGET_UNITS)
        one_of("word_starts", self.word_starts, WORD_START_RULES)
        at_least(self, 1, "k", "num_predict", "max_span")
        at_least(self, 1, "perm_size")

    def needs(self) -> frozenset[str]:
        """Returns the batch fields that `corrupt` reads, beside token_ids and padding_mask."""
        return frozenset()

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that `corrupt` adds."""
        return TARGET_FIELDS | {"permutation_mask"}

    def check(self, segments: "Segments") -> None:
        """Checks that the targets fit into a row, and that blocks fill it.

        Args:
          segments: the segments of the config.

        Raises:
          ValueError: they do not; the message has the arithmetic.
        """
        length = segments.max_length
        size = self.perm_size or length
        _check_blocks("perm_size", size, segments)
        if self.num_predict * self.k > length:
            raise ValueError(
                f"num_predict: {self.num_predict} targets with {self.k} tokens for each "
                f"(k) need {self.num_predict} × {self.k} = {self.num_predict * self.k} tokens, "
                f"and max_length is {length}: predict at most {length} // {self.k} = "
                f"{length // self.k}, or lower k"
            )
        longest = self.max_span * (1 + self.k)
        if self.unit != "token" and longest > size:
            raise ValueError(
                f"max_span: a span of {self.max_span} in its context needs {self.max_span} × "
                f"(1 + {self.k}) = {longest} tokens, and a block has {size}: lower max_span to at "
                f"most {size // (1 + self.k)}, or take unit: token"
            )


PARTS = (TokenMasksConfig, PermutationConfig)
