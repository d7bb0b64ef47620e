"""Masks: some units of the text are hidden, and are what masked LM has to find.

A unit is a token or a whole word (BERT, section 3.1 and appendix A.1, and the whole-word masks of
its release), a phrase or an entity (ERNIE), an n-gram of words (ALBERT, section 4.1), or a span of
words (SpanBERT, section 3.1); `official.corruption.units` says what belongs together and
`official.corruption.selection` which units are taken. Each hidden token then becomes [MASK] (80%),
any token of the vocabulary (10%), or stays as it is (10%).

With `block_size` a row is read in blocks: nobody sees a block behind his own, as in permutations.
That is for rows of which only the first tokens are remembered (see `official.corruption.blocks`).

A row's draws depend on its seed alone, neither on its neighbours nor on its padding. Special tokens
are never hidden (RoBERTa's release hides them like others; nothing here does), but for the one that
stands for text that the vocabulary cannot spell. A row with any other token has a prediction, for
every unit and count: where none comes of the draws, one unit is taken, or a part of it that is as
long as the row's number.

Shapes: B rows, T tokens with padding, V pieces of the vocabulary, P predictions (padded).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from official.corruption import blocks, selection, spans, targets, units
from official.corruption.vocabulary import Vocabulary
from official.tokenizers.word_starts import RULES
from official.utils import seeding
from official.utils.names import one_of
from official.utils.seeding import Stream

if TYPE_CHECKING:
    from official.config import Segments

# Units that are taken whole: the function that numbers them.
WHOLE = {
    "token": units.tokens,
    "word": units.words,
    "phrase": units.phrases,
    "entity": units.entities,
}
# Fields beyond the tokens that a unit is known by.
_NEEDS = {"phrase": {"phrase_inner"}, "entity": {"entity_inner"}}
# Units that are runs of words, with a length of their own.
RUNS = ("ngram", "span")
UNITS = (*WHOLE, *RUNS)
COUNTS = ("nearest", "up", "random", "each")
ACTIONS = ("token", "unit")
RANDOM_TOKENS = ("uniform", "non_special", "unigram")


@dataclasses.dataclass(frozen=True)
class Config:
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

    unit: str = "token"
    mask_rate: float = 0.15
    max_predictions: int = 20
    count: str = "nearest"
    replacement: bool = False
    word_starts: str = RULES[0]
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
            ("word_starts", RULES),
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
        for name in ("max_predictions", "max_ngram", "max_span"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is less than 1")
        if self.block_size is not None and self.block_size < 1:
            raise ValueError(f"block_size: {self.block_size} is less than 1")
        for name in ("mask_prob", "random_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not between 0 and 1")
        if self.mask_prob + self.random_prob > 1 + 1e-9:
            raise ValueError(
                f"mask_prob: {self.mask_prob} and random_prob {self.random_prob} exceed 1 together"
            )


def needs(config: Config) -> frozenset[str]:
    """The fields of a batch that `corrupt` reads, beyond token_ids and padding_mask."""
    return frozenset(_NEEDS.get(config.unit, ()))


def gives(config: Config) -> frozenset[str]:
    """The fields that `corrupt` adds to a batch."""
    given = targets.GIVES | (spans.GIVES if config.unit == "span" else frozenset())
    return given if config.block_size is None else given | {"block_ids"}


def check(config: Config, segments: "Segments") -> None:
    """Refuses blocks that do not fill a row, and runs that the longest sequence has no room for.

    Args:
      config: how much is hidden.
      segments: `official.config.sections.Segments`.

    Raises:
      ValueError: with the arithmetic.
    """
    if config.block_size is not None:
        blocks.check("block_size", config.block_size, segments)
        if segments.packing > 1:
            raise ValueError(
                f"block_size: {config.block_size} tokens of a row are counted, and sequences that "
                "share one begin anywhere: take segments.packing: 1"
            )
    if config.unit not in RUNS:
        return
    field, longest = f"max_{config.unit}", _longest(config)
    specials = 2 if config.count == "up" else 0  # [CLS] and [SEP] are left out
    tokens = segments.max_length - specials
    exact = config.mask_rate * tokens
    # (Python alone: a config is read before TensorFlow's devices are set up.)
    number = {"nearest": round, "up": math.ceil, "random": int}[config.count](exact)
    number = max(1, number)
    bound = f"{config.mask_rate:g} × {tokens} tokens = {exact:g}"
    raised = "mask_rate or max_length"
    if config.max_predictions < number:
        number = config.max_predictions
        bound, raised = f"max_predictions = {number}", "max_predictions"
    if longest > number:
        raise ValueError(
            f"{field}: {longest} words have at least {longest} tokens, and at most {number} are "
            f"predicted in a sequence ({bound}): lower {field} to {number}, or raise {raised}"
        )


def row_predictions(config: Config, length: int, parts: int) -> int:
    """P of a row that several sequences share, each with a number of its own.

    A sequence has at least three tokens and, by `count`, at most so much more than `mask_rate`
    times its tokens: half a token where it is rounded (but 1 is the least), less than one where it
    is the next whole number of what specials leave, or drawn. Where each unit is drawn, any number.

    Args:
      config: how much is hidden.
      length: tokens of a row.
      parts: the most sequences that share it.
    """
    if config.count == "each":
        return min(parts * config.max_predictions, length)
    rate = config.mask_rate
    more = {"nearest": max(0.5, 1 - 3 * rate), "up": max(0, 1 - 2 * rate), "random": 1.0}
    more = more[config.count]
    return min(parts * config.max_predictions, math.floor(rate * length + more * parts + 1e-6))


def corrupt(
    config: Config, vocabulary: Vocabulary, batch: dict[str, tf.Tensor], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Hides tokens of a batch; works the same eagerly and in a graph.

    Args:
      config: how much and how.
      vocabulary: of the tokens.
      batch: holds at least token_ids int32 [B, T] and padding_mask bool [B, T], and bool [B, T]
        for what it `needs`.
      seeds: one for each row, uint64 [B], from `official.utils.seeding.row_seeds`.

    Returns:
      The batch with token_ids replaced, and with masked_positions int32 [B, P] (ascending),
      masked_ids int32 [B, P] (what was there) and masked_weights float32 [B, P] (1 where there is
      a prediction, with `replacement` how often it was drawn; elsewhere all three are 0), and what
      `follows` from these.
    """
    token_ids = batch["token_ids"]
    taken, times = _take(config, vocabulary, batch, seeds)
    corrupted = {
        **batch,
        **targets.listed(times, token_ids, config.max_predictions),
        "token_ids": _replace(config, vocabulary, token_ids, taken, times, seeds),
    }
    return {**corrupted, **follows(config, vocabulary, corrupted)}


def follows(
    config: Config, vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """The fields that follow from a batch's tokens and masks, which may be static ones.

    Returns:
      Those of `spans.boundaries` if the unit is a span, and block_ids int32 [B, T] where there is a
      `block_size`.
    """
    fields = spans.boundaries(vocabulary, batch) if config.unit == "span" else {}
    if config.block_size is not None:
        fields["block_ids"] = blocks.numbers(batch["token_ids"], config.block_size)
    return fields


def run_lengths(config: Config, seeds: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Draws the lengths, in words, of n-grams or spans.

    Args:
      config: of the unit `ngram` or `span`.
      seeds: uint64 [B].
      number: R.

    Returns:
      int32 [B, R].
    """
    lengths = np.arange(1, _longest(config) + 1)
    if config.unit == "ngram":
        shares = 1.0 / lengths
    else:
        shares = config.span_prob * (1 - config.span_prob) ** (lengths - 1)
    bounds = np.cumsum(shares / shares.sum())[:-1].astype(np.float32)
    draws = seeding.uniforms(seeds, Stream.RUN_LENGTH, number)
    return 1 + tf.reduce_sum(tf.cast(draws[:, :, None] >= bounds, tf.int32), axis=2)


def _longest(config: Config) -> int:
    return config.max_ngram if config.unit == "ngram" else config.max_span


def _take(
    config: Config, vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor], seeds: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decides what is hidden.

    Returns:
      The number of the hidden unit that each token is in, int32 [B, T]; -1 = not hidden. Spans that
      touch are one unit. And how often each token is to be predicted, int32 [B, T].
    """
    numbered = WHOLE.get(config.unit, units.words)(vocabulary, batch)
    number = _number(config, numbered, batch, seeds)
    if config.replacement:
        times = selection.with_replacement(numbered, number, seeds)
        return tf.where(times > 0, numbered, -1), times
    if config.unit in RUNS:
        lengths = run_lengths(config, seeds, tf.shape(numbered)[1])
        taken = selection.runs(numbered, number, lengths, config.unit == "span", seeds)
    elif config.count == "each":
        chosen = selection.each_unit(numbered, config.mask_rate, seeds)
        taken = selection.whole_units(chosen, number, seeds)
    else:
        taken = selection.whole_units(numbered, number, seeds)
    taken = selection.or_part_of_one(taken, numbered, number, seeds)
    if config.unit == "span":
        taken = units.stretches(taken >= 0)
    return taken, tf.cast(taken >= 0, tf.int32)


def _number(
    config: Config, units: tf.Tensor, batch: Mapping[str, tf.Tensor], seeds: tf.Tensor
) -> tf.Tensor:
    """Returns how many tokens of each row to predict, int32 [B]; for `each` the most, P."""
    if config.count == "each":
        return tf.fill([tf.shape(units)[0]], config.max_predictions)
    counted = units >= 0 if config.count == "up" else batch["padding_mask"]
    exact = tf.reduce_sum(tf.cast(counted, tf.float64), axis=1)  # [B]
    exact *= tf.constant(config.mask_rate, tf.float64)
    if config.count == "nearest":
        number = tf.round(exact)
    elif config.count == "up":
        number = tf.math.ceil(exact)
    else:
        draws = seeding.uniforms(seeds, Stream.MASK_NUMBER, 1)[:, 0]
        number = tf.floor(exact + tf.cast(draws, tf.float64))
    return tf.clip_by_value(tf.cast(number, tf.int32), 1, config.max_predictions)


def _replace(
    config: Config,
    vocabulary: Vocabulary,
    token_ids: tf.Tensor,
    taken: tf.Tensor,
    times: tf.Tensor,
    seeds: tf.Tensor,
) -> tf.Tensor:
    """Returns the token ids with the hidden ones masked, randomised or kept."""
    places = tf.shape(token_ids)[1]
    action = seeding.uniforms(seeds, Stream.MASK_ACTION, places)
    if config.action == "unit":
        action = tf.gather(action, tf.maximum(taken, 0), batch_dims=1)
    if config.replacement:
        # A token becomes [MASK] if one of its draws says so: the least of so many uniform numbers.
        action = 1 - (1 - action) ** (1 / tf.cast(tf.maximum(times, 1), tf.float32))
    if config.random_tokens == "unigram":
        random_ids = seeding.weighted(seeds, Stream.MASK_TOKEN, places, vocabulary.counted)
    elif config.random_tokens == "non_special":
        ids = vocabulary.text_ids
        random_ids = tf.gather(ids, seeding.integers(seeds, Stream.MASK_TOKEN, places, len(ids)))
    else:
        random_ids = seeding.integers(seeds, Stream.MASK_TOKEN, places, vocabulary.size)
    replaced = tf.where(action < config.mask_prob + config.random_prob, random_ids, token_ids)
    replaced = tf.where(action < config.mask_prob, vocabulary.mask_id, replaced)
    return tf.where(taken >= 0, replaced, token_ids)
