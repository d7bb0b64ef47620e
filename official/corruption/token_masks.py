"""BERT's masks: some units of the text are hidden, and are what masked LM has to find.

A unit is a token or a whole word. The units of a sequence are taken in random order, each one if
it fits into what is left of the number to predict (BERT, section 3.1 and appendix A.1, and the
whole-word masks of its release). Each hidden token becomes [MASK] (80%), any token of the
vocabulary (10%), or stays as it is (10%).

A row's draws depend on its seed alone, neither on its neighbours nor on its padding.

Shapes: B rows, T tokens with padding, V pieces of the vocabulary, P predictions (padded).
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from official import seeding
from official.corruption.vocabulary import Vocabulary
from official.seeding import Stream

GIVES = frozenset({"masked_positions", "masked_ids", "masked_weights"})


@dataclasses.dataclass(frozen=True)
class Config:
    """How much is hidden, and how.

    Attributes:
      unit: what is hidden as a whole: 'token' or 'word'.
      mask_rate: share of a sequence's tokens, specials counted, that is to be predicted.
      max_predictions: P, the most tokens predicted in a sequence.
      mask_prob: share of the predicted tokens that become [MASK].
      random_prob: share of them that become a random token; the rest stay.
    """

    unit: str = "token"
    mask_rate: float = 0.15
    max_predictions: int = 20
    mask_prob: float = 0.8
    random_prob: float = 0.1

    def __post_init__(self):
        if self.unit not in UNITS:
            raise ValueError(f"unit: {self.unit!r} is not one of {', '.join(UNITS)}")
        if not 0 < self.mask_rate <= 1:
            raise ValueError(f"mask_rate: {self.mask_rate} is not above 0 and at most 1")
        if self.max_predictions < 1:
            raise ValueError(f"max_predictions: {self.max_predictions} is less than 1")
        for name in ("mask_prob", "random_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not between 0 and 1")
        if self.mask_prob + self.random_prob > 1 + 1e-9:
            raise ValueError(
                f"mask_prob: {self.mask_prob} and random_prob {self.random_prob} exceed 1 together"
            )


def corrupt(
    config: Config, vocabulary: Vocabulary, batch: dict[str, tf.Tensor], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Hides tokens of a batch; works the same eagerly and in a graph.

    Args:
      config: how much and how.
      vocabulary: of the tokens.
      batch: holds at least token_ids int32 [B, T] and padding_mask bool [B, T].
      seeds: one for each row, uint64 [B], from `official.seeding.row_seeds`.

    Returns:
      The batch with token_ids replaced, and with masked_positions int32 [B, P] (ascending),
      masked_ids int32 [B, P] (what was there) and masked_weights float32 [B, P] (1 where there is
      a prediction; elsewhere all three are 0).
    """
    token_ids, padding_mask = batch["token_ids"], batch["padding_mask"]
    units = UNITS[config.unit](vocabulary, token_ids, padding_mask)
    hidden = _choose(units, _number(config, padding_mask), seeds)
    predictions = _predictions(hidden, token_ids, config.max_predictions)
    return {
        **batch,
        **predictions,
        "token_ids": _replace(config, vocabulary, token_ids, hidden, seeds),
    }


def _tokens(vocabulary: Vocabulary, token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Each token is a unit."""
    starts = tf.gather(vocabulary.maskable, token_ids) & padding_mask
    return _numbered(starts, starts)


def _words(vocabulary: Vocabulary, token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Each word is a unit; none reaches over a special token."""
    maskable = tf.gather(vocabulary.maskable, token_ids) & padding_mask
    after_gap = ~tf.pad(maskable[:, :-1], [[0, 0], [1, 0]])
    return _numbered(
        maskable & (tf.gather(vocabulary.word_starts, token_ids) | after_gap), maskable
    )


# A unit function maps (vocabulary, token_ids, padding_mask) to the number of each token's unit,
# int32 [B, T]: units are runs of tokens, counted from 0 in each row; -1 = never hidden.
UNITS: dict[str, Callable[[Vocabulary, tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "token": _tokens,
    "word": _words,
}


def _numbered(starts: tf.Tensor, maskable: tf.Tensor) -> tf.Tensor:
    """Numbers the units that begin where `starts` is true."""
    return tf.where(maskable, tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, -1)


def _number(config: Config, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns how many tokens of each row to predict, int32 [B]; halves go to the even number."""
    lengths = tf.reduce_sum(tf.cast(padding_mask, tf.float64), axis=1)
    number = tf.cast(tf.round(lengths * tf.constant(config.mask_rate, tf.float64)), tf.int32)
    return tf.minimum(config.max_predictions, tf.maximum(1, number))


def _choose(units: tf.Tensor, number: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Takes units in random order, each if it fits into what is left of `number`.

    Done in rounds over whole rows rather than unit by unit: a round takes all units before the
    first one that does not fit. That one is larger than what is then left, so the largest unit
    that can still be taken shrinks in each round, and few rounds are needed.

    Args:
      units: int32 [B, T].
      number: tokens to take, int32 [B].
      seeds: uint64 [B].

    Returns:
      bool [B, T], true where a token's unit was taken.
    """
    places = tf.shape(units)[1]
    sizes = _sum_at(units, tf.ones_like(units))  # [B, T]: of each unit; 0 past the last one
    draws = tf.bitcast(seeding.bits(seeds, Stream.MASK_ORDER, places), tf.int64)
    order = tf.argsort(draws, axis=1)
    sizes = tf.gather(sizes, order, batch_dims=1)

    def take(left, waiting, taken):
        total = tf.cumsum(tf.where(waiting, sizes, 0), axis=1)
        taken |= waiting & (total <= left[:, None])
        left = number - tf.reduce_sum(tf.where(taken, sizes, 0), axis=1)
        return left, waiting & ~taken & (sizes <= left[:, None]), taken

    _, _, taken = tf.while_loop(
        lambda left, waiting, taken: tf.reduce_any(waiting),
        take,
        (number, (sizes > 0) & (sizes <= number[:, None]), tf.zeros_like(order, tf.bool)),
        shape_invariants=(tf.TensorShape([None]), *[tf.TensorShape([None, None])] * 2),
    )
    taken = _sum_at(order, tf.cast(taken, tf.int32)) > 0  # [B, T]: of each unit
    return (units >= 0) & tf.gather(taken, tf.maximum(units, 0), batch_dims=1)


def _sum_at(columns: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Sums each row's values [B, T] by the columns they belong to [B, T]; -1 = to none."""
    rows, places = tf.unstack(tf.shape(columns))
    cells = tf.where(columns < 0, -1, columns + tf.range(rows)[:, None] * places)
    return tf.reshape(tf.math.unsorted_segment_sum(values, cells, rows * places), [rows, places])


def _replace(
    config: Config,
    vocabulary: Vocabulary,
    token_ids: tf.Tensor,
    hidden: tf.Tensor,
    seeds: tf.Tensor,
) -> tf.Tensor:
    """Returns the token ids with the hidden ones masked, randomised or kept, each on its own."""
    places = tf.shape(token_ids)[1]
    action = seeding.uniforms(seeds, Stream.MASK_ACTION, places)
    random_ids = seeding.integers(seeds, Stream.MASK_TOKEN, places, vocabulary.size)
    replaced = tf.where(action < config.mask_prob + config.random_prob, random_ids, token_ids)
    replaced = tf.where(action < config.mask_prob, vocabulary.mask_id, replaced)
    return tf.where(hidden, replaced, token_ids)


def _predictions(
    hidden: tf.Tensor, token_ids: tf.Tensor, max_predictions: int
) -> dict[str, tf.Tensor]:
    """Lists the hidden positions of each row."""
    cells = tf.where(hidden)  # [hidden tokens, 2], row by row
    rows, positions = cells[:, 0], tf.cast(cells[:, 1], tf.int32)
    shape = [hidden.shape[0], max_predictions]

    def listed(values):
        return tf.RaggedTensor.from_value_rowids(
            values, rows, tf.shape(hidden, tf.int64)[0], validate=False
        ).to_tensor(shape=shape)

    return {
        "masked_positions": listed(positions),
        "masked_ids": listed(tf.gather_nd(token_ids, cells)),
        "masked_weights": listed(tf.ones_like(positions, tf.float32)),
    }
