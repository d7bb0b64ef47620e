"""Permutation: every token stays in its place, and an order says which ones each may see.

Permutation language modelling predicts some tokens, the targets, one after the other in a random
order, each from those before it in the order wherever they stand (Yang et al. 2019, sections 2.2
and 2.3). Here targets and special tokens have a place in the order; all other tokens are visible to
everyone and see one another. Whether a position also sees itself is the encoder's affair: in the
content stream it does, in the query stream it does not (section 2.3).

A row is taken in blocks of `perm_size` tokens (XLNet's release: the tokens that the next row goes
on after, then the rest): each has an order of its own and sees all of the blocks before it, and
nothing of those behind it. One block, targets New and York in the order York, New, [SEP]:

  may attend      New   York  is    a     city  [SEP]
    New            .     x    x     x     x     .
    York           .     .    x     x     x     .
    is, a, city    .     .    x     x     x     .
    [SEP]          x     x    x     x     x     .

A row's draws depend on its seed alone, neither on its neighbours nor on its padding. Padding has a
place in the order as special tokens have; that nobody sees it is said by the padding mask.

Shapes: B rows, T tokens with padding, N blocks of a row, P predictions (padded).
"""

import dataclasses
from typing import TYPE_CHECKING

import tensorflow as tf

from official.corruption import blocks, partial_prediction, targets, units
from official.corruption.vocabulary import Vocabulary
from official.tokenizers.word_starts import RULES
from official.utils import seeding
from official.utils.names import one_of
from official.utils.seeding import Stream

if TYPE_CHECKING:
    from official.config import Segments

UNITS = ("token", "token_span", "word_span")
STATIC = False  # an order is drawn each time a row is read
_ORDER_BITS = 47  # blocks are counted in the bits above


@dataclasses.dataclass(frozen=True)
class Config:
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

    unit: str = "word_span"
    k: int = 6
    num_predict: int = 85
    max_span: int = 5
    word_starts: str = RULES[0]
    perm_size: int | None = None

    def __post_init__(self):
        one_of("unit", self.unit, UNITS)
        one_of("word_starts", self.word_starts, RULES)
        for name in ("k", "num_predict", "max_span"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is less than 1")
        if self.perm_size is not None and self.perm_size < 1:
            raise ValueError(f"perm_size: {self.perm_size} is less than 1")


def needs(config: Config) -> frozenset[str]:
    """The fields of a batch that `corrupt` reads, beyond token_ids and padding_mask."""
    del config
    return frozenset()


def gives(config: Config) -> frozenset[str]:
    """The fields that `corrupt` adds to a batch."""
    del config
    return targets.GIVES | {"permutation_mask"}


def check(config: Config, segments: "Segments") -> None:
    """Refuses targets that a row has no room for, and blocks that do not fill it.

    Args:
      config: what is predicted.
      segments: `official.config.sections.Segments`.

    Raises:
      ValueError: with the arithmetic.
    """
    length = segments.max_length
    size = config.perm_size or length
    blocks.check("perm_size", size, segments)
    if config.num_predict * config.k > length:
        raise ValueError(
            f"num_predict: {config.num_predict} targets with {config.k} tokens for each "
            f"(k) need {config.num_predict} × {config.k} = {config.num_predict * config.k} tokens, "
            f"and max_length is {length}: predict at most {length} // {config.k} = "
            f"{length // config.k}, or lower k"
        )
    longest = config.max_span * (1 + config.k)
    if config.unit != "token" and longest > size:
        raise ValueError(
            f"max_span: a span of {config.max_span} in its context needs {config.max_span} × "
            f"(1 + {config.k}) = {longest} tokens, and a block has {size}: lower max_span to at "
            f"most {size // (1 + config.k)}, or take unit: token"
        )


def corrupt(
    config: Config, vocabulary: Vocabulary, batch: dict[str, tf.Tensor], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Draws targets and an order for each row; works the same eagerly and in a graph.

    Args:
      config: what is predicted.
      vocabulary: of the tokens.
      batch: holds at least token_ids int32 [B, T] and padding_mask bool [B, T], and may hold
        backward bool [B], true for rows of reversed text.
      seeds: one for each row, uint64 [B], from `official.utils.seeding.row_seeds`.

    Returns:
      The batch with permutation_mask bool [B, T, T], and the targets as masked_positions,
      masked_ids and masked_weights [B, P], see `official.corruption.targets`.
    """
    token_ids = batch["token_ids"]
    places = tf.shape(token_ids)[1]
    number = units.words if config.unit != "token" else units.tokens
    numbered = number(vocabulary, batch)  # [B, T]
    text = numbered >= 0
    is_target = partial_prediction.choose(
        numbered,
        _numbers(config, text, batch["padding_mask"]),
        seeds,
        size=config.perm_size or places,
        most=config.num_predict,
        k=config.k,
        max_span=0 if config.unit == "token" else config.max_span,
        whole=config.unit == "word_span",
        backward=batch.get("backward"),
    )
    is_target = tf.ensure_shape(is_target, token_ids.shape)
    mask = may_attend(orders(seeds, places), is_target | ~text, config.perm_size)
    return {
        **batch,
        **targets.listed(is_target, token_ids, config.num_predict),
        "permutation_mask": mask,
    }


def orders(seeds: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
    """Draws each token's place in the order: int64 [B, length], 1 and above, but not ranks."""
    draws = seeding.bits(seeds, Stream.PERMUTATION, length)
    shift = tf.constant(64 - _ORDER_BITS, tf.uint64)
    return 1 + tf.cast(tf.bitwise.right_shift(draws, shift), tf.int64)


def may_attend(order: tf.Tensor, ordered: tf.Tensor, perm_size: int | None = None) -> tf.Tensor:
    """Says which tokens each position may see, itself left out if it has a place in the order.

    Args:
      order: 1 ... 2^47, different within a block; integers [B, T].
      ordered: who has a place in the order, bool [B, T]; all others are visible.
      perm_size: tokens of a block; None = there is one.

    Returns:
      bool [B, T, T], True where the row's position may attend to the column's.
    """
    order = tf.cast(order, tf.int64)
    seen = tf.where(ordered, order, 0)  # before everyone ...
    sees = tf.where(ordered, order, 1)  # ... and behind the visible alone
    if perm_size is not None:
        block = tf.range(tf.shape(order)[1], dtype=tf.int64) // perm_size
        above = block * 2 ** (_ORDER_BITS + 1)
        seen, sees = seen + above, sees + above
    return seen[:, None, :] < sees[:, :, None]


def _numbers(config: Config, text: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """How many targets each block of a row has, int32 [B, N]: in proportion to its text."""
    length = tf.shape(text)[1]
    size = config.perm_size or length
    count = -(-length // size)
    padded = tf.pad(tf.cast(text, tf.int32), [[0, 0], [0, count * size - length]])
    up_to = tf.cumsum(tf.reduce_sum(tf.reshape(padded, [-1, count, size]), axis=2), axis=1)
    total = up_to[:, -1:]  # [B, 1]
    real = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1, keepdims=True)
    number = tf.clip_by_value(real // config.k, 1, config.num_predict)
    number = tf.minimum(number, total)
    up_to = -(-number * up_to // tf.maximum(total, 1))  # rounded up
    return up_to - tf.pad(up_to[:, :-1], [[0, 0], [1, 0]])
