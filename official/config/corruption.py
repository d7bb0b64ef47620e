"""Corruptions in YAML: what the model gets to see of a sequence."""

import dataclasses
import math
from typing import TYPE_CHECKING

from official.config.part import CorruptionConfig
from official.utils.validators import at_least, fraction, one_of

if TYPE_CHECKING:
    from official.config.segments import Segments

# The fields that `official.corruption.targets` and `spans` give.
TARGET_FIELDS = frozenset({"masked_positions", "masked_ids", "masked_weights"})
SPAN_FIELDS = frozenset({"span_left", "span_right", "span_offset", "span_weights"})
# Which pieces of a SentencePiece vocabulary begin a word: see `official.tokenizers.word_starts`.
WORD_START_RULES = ("xlnet", "albert", "blank")


def _check_blocks(name: str, size: int, segments: "Segments") -> None:
    """Refuses blocks that do not fill a row, or that do not end where the next row goes on.

    Args:
      name: of the setting, for messages.
      size: tokens of a block.
      segments: the segments of the config.

    Raises:
      ValueError: with the arithmetic.
    """
    length = segments.max_length
    if reused := segments.reuse_length % size:
        # The next row's targets would be seen by what it remembers of this one.
        raise ValueError(
            f"{name}: blocks of {size} do not end where the next row goes on, after "
            f"reuse_length {segments.reuse_length} = {segments.reuse_length // size} × {size} + "
            f"{reused}: take a divisor of both reuse_length and max_length {length}"
        )
    if length % size:
        raise ValueError(
            f"{name}: blocks of {size} do not fill max_length {length}: {length} = "
            f"{length // size} × {size} + {length % size}; take a divisor"
        )


# Fields beyond the tokens that a unit is known by.
_NEEDS = {"phrase": {"phrase_inner"}, "entity": {"entity_inner"}}
# Units that are runs of words, with a length of their own.
RUNS = ("ngram", "span")
WHOLE = ("token", "word", "phrase", "entity")  # units that are taken whole
UNITS = (*WHOLE, *RUNS)
COUNTS = ("nearest", "up", "random", "each")
ACTIONS = ("token", "unit")
RANDOM_TOKENS = ("uniform", "non_special", "unigram")


@dataclasses.dataclass(frozen=True)
class TokenMasksConfig(CorruptionConfig):
    """How much is hidden, and how.

    Attributes:
      unit: what is hidden as a whole: 'token', 'word', 'phrase' or 'entity' (of the lexicon that
        the shards were made with; words where there is none), 'ngram' (of words) or 'span' (of
        words, of which the last may be cut to meet the number).
      mask_rate: share p of a sequence's n tokens that is to be predicted.
      max_predictions: P, the most tokens predicted in a sequence; where sequences share a row, in
        each of them.
      count: how p·n becomes a number, which is at least 1: 'nearest' = the nearest whole number,
        halves to the even one (BERT); 'up' = the next whole number, n without specials (SpanBERT);
        'random' = int(p·n + u), u uniform in [0, 1) (RoBERTa). Specials count for n in the first
        and the last. Or 'each' = there is no number: each unit is hidden with probability p by
        itself (ERNIE); what exceeds P is left out, units at random.
      replacement: whether tokens are drawn with replacement (ELECTRA): the number is that of the
        draws, and a token that was drawn twice is one prediction of weight 2. Of the unit 'token'.
      word_starts: which pieces of a SentencePiece vocabulary begin a word: 'xlnet' = those with the
        blank mark, signs, and pieces of scripts without blanks; 'albert' = also all others that are
        not of ASCII letters alone; 'blank' = those with the mark only. See
        `official.tokenizers.word_starts`.
      mask_prob: share of the predicted tokens that become [MASK].
      random_prob: share of them that become a random token; the rest stay.
      random_tokens: 'uniform' = any piece of the vocabulary, specials included (BERT);
        'non_special' = any piece that is no special token (RoBERTa); 'unigram' = as often as it
        stands in the corpus (SpanBERT).
      action: whether these are drawn for each 'token', or once for each 'unit'; spans that touch
        are one.
      max_ngram: the most words of an n-gram; n has the probability p(n) ~ 1/n.
      max_span: the most words of a span; its length is geometric, cut off there and renormalised.
      span_prob: of the geometric distribution: the share of spans of one word, were none too long.
      block_size: tokens of a block; a position attends to its own block and to those before it.
        Divides the length, and that of the part of a stream's row that is reused. None = every
        position sees the whole row.
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
        for name in ("mask_rate", "span_prob"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0 and at most 1")
        at_least(self, 1, "max_predictions", "max_ngram", "max_span")
        at_least(self, 1, "block_size")
        fraction(self, "mask_prob", "random_prob")
        if self.mask_prob + self.random_prob > 1 + 1e-9:
            raise ValueError(
                f"mask_prob: {self.mask_prob} and random_prob {self.random_prob} exceed 1 together"
            )

    def needs(self) -> frozenset[str]:
        """The fields of a batch that `corrupt` reads, beyond token_ids and padding_mask."""
        return frozenset(_NEEDS.get(self.unit, ()))

    def gives(self) -> frozenset[str]:
        """The fields that `corrupt` adds to a batch."""
        given = TARGET_FIELDS | (SPAN_FIELDS if self.unit == "span" else frozenset())
        return given if self.block_size is None else given | {"block_ids"}

    def check(self, segments: "Segments") -> None:
        """Refuses blocks that do not fill a row, and runs that a sequence has no room for.

        Args:
          segments: the segments of the config.

        Raises:
          ValueError: with the arithmetic.
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
        # (Python alone: a config is read before TensorFlow's devices are set up.)
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
        """P of a row that several sequences share, each with a number of its own.

        A sequence has at least three tokens and, by `count`, at most so much more than `mask_rate`
        times its tokens: half a token where it is rounded (but 1 is the least), less than one where
        it is the next whole number of what specials leave, or drawn. Where each unit is drawn, any
        number.

        Args:
          length: tokens of a row.
          parts: the most sequences that share it.
        """
        if self.count == "each":
            return min(parts * self.max_predictions, length)
        rate = self.mask_rate
        more = {"nearest": max(0.5, 1 - 3 * rate), "up": max(0, 1 - 2 * rate), "random": 1.0}
        more = more[self.count]
        return min(parts * self.max_predictions, math.floor(rate * length + more * parts + 1e-6))

    @property
    def longest_run(self) -> int:
        """The most words of a run of them."""
        return self.max_ngram if self.unit == "ngram" else self.max_span


TARGET_UNITS = ("token", "token_span", "word_span")


@dataclasses.dataclass(frozen=True)
class PermutationConfig(CorruptionConfig):
    """What is predicted, and in blocks of which size.

    Attributes:
      unit: 'token' = each target by itself; 'token_span' = spans of 1, 2, ... tokens that begin
        with a word (XLNet's release); 'word_span' = spans of as many words (as it was meant). The
        last span may be cut to meet the number. See `official.corruption.partial_prediction`.
      k: K, one token in so many is predicted: a row of n tokens has n // k targets, at least one.
      num_predict: P, the targets of a row of full length, and the most of any.
      max_span: the most tokens or words of a span; n has the probability p(n) ~ 1/n.
      word_starts: which pieces of a SentencePiece vocabulary begin a word: 'xlnet', 'albert' or
        'blank'. See `official.tokenizers.word_starts`.
      perm_size: tokens of a block; divides the length, and that of the part of a stream's row that
        is reused: no block may see what the next row goes on with. None = the row is one block.
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
        """The fields of a batch that `corrupt` reads, beyond token_ids and padding_mask."""
        return frozenset()

    def gives(self) -> frozenset[str]:
        """The fields that `corrupt` adds to a batch."""
        return TARGET_FIELDS | {"permutation_mask"}

    def check(self, segments: "Segments") -> None:
        """Refuses targets that a row has no room for, and blocks that do not fill it.

        Args:
          segments: the segments of the config.

        Raises:
          ValueError: with the arithmetic.
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
