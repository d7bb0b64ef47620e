"""Configs of the corruptions, which hide tokens from the model.

`token_masks` and `rare_token_masks` mask tokens, and `permutation` predicts tokens in a random
order. `sentinels` and `denoising` are those of T5 (Raffel et al. 2020, sections 3.1.4 and 3.3): a
row on disk has the tokens of a text without special tokens, from which the corruption makes the
input of the encoder and the targets of the decoder; both end with the end token. The number of raw
tokens of such a row is the largest whose input fits `segments.max_length`.

Shapes: n raw tokens of a row, L tokens of the encoder, U targets.
"""

import dataclasses
import math
import struct
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from typing_extensions import override

from official.config.parts import CorruptionConfig
from official.config.segments import TEXT_FORMATS, Segments
from official.tokenizers.word_starts import RULES as WORD_START_RULES
from official.utils.strict import at_least, fraction, omitted, one_of, positive_fraction

# The batch fields that `official.corruption.units` and `token_masks` add.
TARGET_FIELDS = frozenset({"masked_positions", "masked_ids", "masked_weights"})
SPAN_FIELDS = frozenset({"span_left", "span_right", "span_offset", "span_weights"})
# The features that mark units, by unit.
_NEEDS = {"phrase": {"phrase_inner"}, "entity": {"entity_inner"}}
TARGET_UNITS = ("token", "token_span", "word_span")  # the units of a permutation
RUNS = ("ngram", "span")  # units that are runs of words, of a random length
WHOLE = ("token", "word", "phrase", "entity")  # units that the text determines
UNITS = (*WHOLE, *RUNS)
OF_WORDS = (*WHOLE[1:], *RUNS, "word_span")  # units that are words or consist of them
COUNTS = ("nearest", "up", "random", "each")
ACTIONS = ("token", "unit")
RANDOM_TOKENS = ("uniform", "non_special", "unigram")
# The batch fields, and the settings, of text-to-text corruptions.
TEXT_TO_TEXT_FIELDS = frozenset({"target_ids", "target_mask"})
MASKS = ("spans", "tokens")
FORMS = ("released", "intended")
METHODS = ("bert_style", "mass_style", "deshuffle", "prefix_lm", "lm")


@dataclasses.dataclass(frozen=True)
class TokenMasksConfig(CorruptionConfig):
    """Masked tokens: how many tokens are selected, and how they are hidden.

    Attributes:
      unit: the unit that is selected: 'token', 'word', 'phrase' or 'entity' (of the lexicon that
        the shards were made with; other words are single units), 'ngram' (of words) or 'span' (of
        words; the last word may be cut to meet the number of tokens).
      mask_rate: p, the share of a sequence's n tokens that are predicted.
      max_predictions: P, the largest number of predicted tokens in a sequence (in each sequence of
        a shared row).
      count: how p·n is rounded to a whole number of at least 1: 'nearest' = to the nearest, halves
        to even (BERT); 'up' = upward, where n does not count special tokens (SpanBERT); 'random' =
        int(p·n + u), u uniform in [0, 1) (RoBERTa). Or 'each' = each unit is selected independently
        with probability p (ERNIE); if more than P tokens are selected, random units are dropped.
      replacement: whether tokens are drawn with replacement (ELECTRA). The number is then the
        number of draws, and a token that is drawn twice has weight 2. For the unit 'token' only.
      windows: whether a token is drawn from each of consecutive windows of int(1 / p) tokens, from
        the start on, until the number is reached (the release of DeBERTa-v3). The last tokens of a
        long sequence are then never hidden. With the unit 'ngram', an n-gram is drawn from each
        window of n * int(1 / p) words, and its last word may exceed the number, but not P (v1 and
        v2). For these units and the count 'nearest' only.
      word_starts: the SentencePiece pieces that begin a word: 'xlnet' = those with the blank mark,
        punctuation, and pieces of scripts without blanks; 'albert' = also all others that are not
        ASCII letters alone; 'blank' = those with the mark only. See
        `official.tokenizers.word_starts`.
      mask_prob: the share of the predicted tokens that become [MASK].
      random_prob: the share of the predicted tokens that become a random token; others stay.
      random_tokens: the distribution of random tokens: 'uniform' = the whole vocabulary, with
        special tokens (BERT); 'non_special' = without them (RoBERTa); 'unigram' = the frequencies
        in the corpus (SpanBERT).
      action: whether the replacement is drawn for each 'token', or once for each 'unit'; adjacent
        spans are one unit.
      max_ngram: the largest number of words of an n-gram; n has the probability p(n) ~ 1/n.
      max_span: the largest number of words of a span. The length is geometric, cut there and
        renormalized.
      span_prob: the parameter of the geometric distribution.
      block_size: tokens of a block. A position attends to its own block and earlier blocks. The
        size divides the length of a row and, in a stream, of the reused part. None = every position
        attends to the whole row.
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
    windows: bool = omitted(False)

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
                f"count: each is not supported for unit: {self.unit}, a run of several words: set "
                f"count to {', '.join(c for c in COUNTS if c != 'each')}, or unit to "
                f"{', '.join(WHOLE)}"
            )
        if self.replacement and (self.unit != "token" or self.count == "each"):
            raise ValueError(
                f"replacement: not supported for unit: {self.unit} with count: {self.count}: set "
                "unit to token and count to nearest, or replacement to false"
            )
        if self.windows and (
            self.unit not in ("token", "ngram") or self.count != "nearest" or self.replacement
        ):
            raise ValueError(
                "windows: only supported for unit: token or ngram with count: nearest and "
                "replacement: false: set these, or windows to false"
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
        fields = TARGET_FIELDS | (SPAN_FIELDS if self.unit == "span" else frozenset())
        return fields if self.block_size is None else fields | {"block_ids"}

    def check(self, segments: Segments) -> None:
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
                    f"block_size: {self.block_size} is not supported for rows that several "
                    "sequences share: set segments.packing to 1"
                )
        if self.unit not in RUNS:
            return
        field, longest = f"max_{self.unit}", self.longest_run
        specials = 2 if self.count == "up" else 0  # [CLS] and [SEP] are left out
        tokens = segments.max_length - specials
        exact = self.mask_rate * tokens
        # No TensorFlow here: a config is read before its devices are set up.
        rounding: dict[str, Callable[[float], int]] = {
            "nearest": round, "up": math.ceil, "random": int,
        }  # fmt: skip
        number = max(1, rounding[self.count](exact))
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
        one more for 'up' and 'random', and any number for 'each' and for n-grams of windows. A
        sequence has at least three tokens.

        Args:
          length: tokens of a row.
          parts: the largest number of sequences that share the row.
        """
        if self.count == "each" or (self.windows and self.unit == "ngram"):
            return min(parts * self.max_predictions, length)
        rate = self.mask_rate
        more = {"nearest": max(0.5, 1 - 3 * rate), "up": max(0, 1 - 2 * rate), "random": 1.0}[
            self.count
        ]
        return min(parts * self.max_predictions, math.floor(rate * length + more * parts + 1e-6))

    @property
    def longest_run(self) -> int:
        """The largest number of words of a run."""
        return self.max_ngram if self.unit == "ngram" else self.max_span


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

    def check(self, segments: Segments) -> None:
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


@dataclasses.dataclass(frozen=True)
class RareTokenMasksConfig(CorruptionConfig):
    """Masked tokens that are drawn from a whole batch, rare ones more often (DistilBERT's release).

    Attributes:
      mask_rate: the share of the tokens of a batch, including special tokens, that are predicted;
        the number is rounded up.
      exponent: a token that occurs n times in the corpus is drawn with the weight max(n,
        1)^-exponent.
      max_predictions: P, the largest number of predicted tokens in a row. Tokens beyond it are not
        predicted.
      mask_prob: the share of the predicted tokens that become [MASK].
      random_prob: the share of the predicted tokens that become a random token; others stay.
      random_tokens: the distribution of random tokens, as in `token_masks`.
    """

    type = "rare_token_masks"
    static = False  # a draw is from the rows of a batch

    # What `token_masks.replaced` reads of every config.
    action: ClassVar[str] = "token"
    replacement: ClassVar[bool] = False

    mask_rate: float = 0.15
    exponent: float = 0.7
    max_predictions: int = 128
    mask_prob: float = 0.8
    random_prob: float = 0.1
    random_tokens: str = "uniform"

    def __post_init__(self):
        one_of("random_tokens", self.random_tokens, RANDOM_TOKENS)
        positive_fraction(self, "mask_rate")
        at_least(self, 0, "exponent")
        at_least(self, 1, "max_predictions")
        fraction(self, "mask_prob", "random_prob")
        if self.mask_prob + self.random_prob > 1 + 1e-9:
            raise ValueError(
                f"mask_prob: {self.mask_prob} and random_prob {self.random_prob} exceed 1 together"
            )

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that `corrupt` adds."""
        return TARGET_FIELDS

    def check(self, segments: Segments) -> None:
        """Raises ValueError if P is less than the mean number of predictions of a full row."""
        number = math.ceil(self.mask_rate * segments.max_length)
        if self.max_predictions < number:
            raise ValueError(
                f"max_predictions: {self.max_predictions} is less than {self.mask_rate:g} × "
                f"max_length {segments.max_length} = {number}, and a row of rare tokens has more "
                f"than the mean: take about {number + number // 2}"
            )


class Lengths(NamedTuple):
    """The numbers of tokens of a row.

    Attributes:
      raw: n.
      inputs: L, with the end token.
      targets: U, with the end token.
    """

    raw: int
    inputs: int
    targets: int


class TextToTextConfig(CorruptionConfig):
    """The base class of text-to-text corruptions."""

    static = False  # drawn each time a row is read

    def gives(self) -> frozenset[str]:
        """Returns the batch fields that `corrupt` adds."""
        return TEXT_TO_TEXT_FIELDS

    def lengths(self, max_length: int) -> Lengths:
        """Returns the lengths for an input of at most `max_length` tokens.

        Raises:
          ValueError: there are not enough sentinels for such a row.
        """
        raise NotImplementedError

    def lengths_of_row(self, raw: int) -> Lengths:
        """Returns the lengths of a row of `raw` tokens."""
        raise NotImplementedError

    def row_length(self, max_length: int) -> int:
        """Returns the number of raw tokens of a row on disk."""
        return self.lengths(max_length).raw

    def check(self, segments: Segments) -> None:
        """Raises ValueError if the rows of `segments` are not plain text, or are too long."""
        if segments.format not in TEXT_FORMATS:
            raise ValueError(
                f"type: {self.type} takes rows of plain text, but segments.format is "
                f"{segments.format}: take {' or '.join(TEXT_FORMATS)}"
            )
        self.lengths(segments.max_length)


@dataclasses.dataclass(frozen=True)
class SentinelsConfig(TextToTextConfig):
    """Span corruption: runs of tokens are replaced by sentinels (T5).

    Attributes:
      noise_density: the share of tokens that are removed from the input.
      mean_span_length: the mean length of a removed span, if `masks` is 'spans'.
      masks: 'spans' = spans of random lengths with a fixed number of tokens and of spans; the
        input begins with text and ends with a sentinel. 'tokens' = each token is removed
        independently, and neighbors are one span.
      replace: whether each span is replaced by a sentinel. If not, spans are dropped, and the
        targets are only the dropped tokens (section 3.3.2, drop corrupted tokens).
      targets: the sentinels of the targets. 'intended' = one before each removed span, and one at
        the end if the text ends with a kept token. 'released' = one for each run of kept tokens, as
        in the release's code. The two differ if a text begins with a removed token.
      sentinels: the number of sentinels of the vocabulary.
    """

    type = "sentinels"

    noise_density: float = 0.15
    mean_span_length: float = 3.0
    masks: str = "spans"
    replace: bool = True
    targets: str = "released"
    sentinels: int = 100

    def __post_init__(self):
        one_of("masks", self.masks, MASKS)
        one_of("targets", self.targets, FORMS)
        at_least(self, 1, "mean_span_length", "sentinels")
        if not 0 < self.noise_density < 1:
            raise ValueError(f"noise_density: {self.noise_density} is not between 0 and 1")

    def counts(self, raw: int) -> tuple[int, int]:
        """Returns the numbers of removed tokens and of spans of `raw` tokens.

        Both are rounded in float32, halves to even, as in the release.
        """
        noise = round(_float32(raw * _float32(self.noise_density)))
        noise = min(max(noise, 1), raw - 1)
        spans = max(1, round(_float32(noise / _float32(self.mean_span_length))))
        return noise, min(spans, noise, raw - noise)

    @override
    def lengths(self, max_length: int) -> Lengths:
        if self.masks == "tokens":
            return self._lengths_of_tokens(max_length)
        raw = max_length - 1
        while max(self._released(raw + 1).inputs, self._spans(raw + 1).inputs) <= max_length:
            raw += 1
        released = self._released(raw)
        if self.noise_density == 0.5 and released.targets > released.inputs:
            raw -= 1  # as in the release: both sides have equal lengths
        lengths = self._spans(raw)
        _, spans = self.counts(lengths.raw)
        needed = spans + 1 if self.targets == "intended" else spans
        if self.replace and needed > self.sentinels:
            raise ValueError(
                f"sentinels: {lengths.raw} tokens × noise_density {self.noise_density:g} / "
                f"mean_span_length {self.mean_span_length:g} = {spans} spans need {needed} "
                f"sentinels, but there are {self.sentinels}: lower segments.max_length "
                f"{max_length}, or raise mean_span_length"
            )
        return lengths

    @override
    def lengths_of_row(self, raw: int) -> Lengths:
        return self._spans(raw) if self.masks == "spans" else self._lengths_of_tokens(raw + 1)

    def _released(self, raw: int) -> Lengths:
        """Returns the lengths that the release uses to choose n.

        For this it rounds in float64 and may find no span, unlike `counts`, which it uses to draw.
        """
        noise = round(raw * self.noise_density)
        return self._lengths(raw, noise, round(noise / self.mean_span_length))

    def _spans(self, raw: int) -> Lengths:
        return self._lengths(raw, *self.counts(raw))

    def _lengths(self, raw: int, noise: int, spans: int) -> Lengths:
        if not self.replace:
            return Lengths(raw, raw - noise + 1, noise + 1)
        return Lengths(raw, raw - noise + spans + 1, noise + spans + 1)

    def _lengths_of_tokens(self, max_length: int) -> Lengths:
        """Returns lengths that rows exceed with a probability of about 0.1%.

        A removed token has one target, and the first token of a span also has a sentinel. Three
        standard deviations are added to the mean, and the sum is rounded up to a multiple of 8.
        """
        raw, p = max_length - 1, self.noise_density
        mean, variance = raw * p, raw * p * (1 - p)
        if self.replace:
            mean = raw * p * (2 - p)
            variance = raw * p * (4 - 3 * p) - raw * (p * (2 - p)) ** 2
            variance -= 2 * raw * p**2 * (2 - p) * (1 - p)
            runs = raw * p * (1 - p)
            most = math.ceil(runs + 3 * math.sqrt(runs * (1 - 3 * p * (1 - p)))) + 1
            if most > self.sentinels:
                raise ValueError(
                    f"sentinels: {raw} tokens × {p:g} × {1 - p:g} = {runs:.0f} spans on average, "
                    f"and up to {most}, need more than {self.sentinels} sentinels: lower "
                    "segments.max_length or noise_density, or take masks: spans"
                )
        targets = math.ceil(mean + 3 * math.sqrt(variance)) + 1
        return Lengths(raw, max_length, min(8 * math.ceil(targets / 8), 2 * raw + 2))


@dataclasses.dataclass(frozen=True)
class DenoisingConfig(TextToTextConfig):
    """The other denoising objectives of T5's study, with an encoder-decoder (section 3.3).

    Attributes:
      method: 'bert_style' = a share of the tokens is masked, or replaced by a random one, and the
        target is the whole text; 'mass_style' = the same with masks only; 'deshuffle' = the
        input is the text in random order; 'prefix_lm' = the text is cut at a random place, and
        the target is the second part; 'lm' = the input is empty.
      noise_density: the share of tokens of the first two methods.
      random_prob: for 'bert_style', the share of these tokens that become a random token, which is
        never a special token but may be a sentinel, as in the release. The others become the mask,
        which is the first sentinel.
    """

    type = "denoising"

    method: str = "bert_style"
    noise_density: float = 0.15
    random_prob: float = 0.1

    def __post_init__(self):
        one_of("method", self.method, METHODS)
        for name in ("noise_density", "random_prob"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not between 0 and 1")

    @property
    def sentinels(self) -> int:
        """The number of sentinels that are used."""
        return 1 if self.method.endswith("_style") else 0

    @override
    def lengths(self, max_length: int) -> Lengths:
        return self.lengths_of_row(max_length - 1)

    @override
    def lengths_of_row(self, raw: int) -> Lengths:
        if self.method == "prefix_lm":
            return Lengths(raw, raw, raw)
        return Lengths(raw, 1 if self.method == "lm" else raw + 1, raw + 1)


def _float32(x: float) -> float:
    """Returns the nearest float32."""
    return struct.unpack("f", struct.pack("f", x))[0]


def _check_blocks(name: str, size: int, segments: Segments) -> None:
    """Checks that blocks fill a row, and that a block ends where the next row continues.

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


PARTS = (
    TokenMasksConfig,
    RareTokenMasksConfig,
    PermutationConfig,
    SentinelsConfig,
    DenoisingConfig,
)
