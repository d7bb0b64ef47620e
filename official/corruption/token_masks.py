"""Token masks: hides some units of the text, which masked LM predicts.

A unit is a token or a whole word (BERT, section 3.1 and appendix A.1, and the whole-word masks of
its release), a phrase or an entity (ERNIE), an n-gram of words (ALBERT, section 4.1), or a span of
words (SpanBERT, section 3.1). `official.corruption.units` finds the units and selects those to
hide. Each hidden token becomes [MASK] (80%) or any token of the vocabulary (10%), or is kept (10%).

With `block_size` a row is read in blocks that do not attend to later blocks, as in permutations.
This is for rows of which only the first tokens are reused: the next row of a stream continues them,
and the other tokens are a block of their own, so the memory of the reused tokens contains nothing
of what the next row predicts.

The draws of a row depend only on its seed, not on other rows or on padding. Special tokens are
never hidden, except the unknown token. (RoBERTa's release hides them like other tokens.) Every row
with another token has a prediction, whatever the unit and the count are: if nothing is drawn, one
unit is taken, or a part of it with as many tokens as the row should have.

Shapes: B rows, T tokens with padding, V pieces of the vocabulary, P predictions (padded).
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from official.config.corruptions import RUNS, RareTokenMasksConfig, TokenMasksConfig
from official.corruption import units
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.seeding import Stream

# Units that are taken whole, and the functions that number them.
WHOLE = {
    "token": units.tokens,
    "word": units.words,
    "phrase": units.phrases,
    "entity": units.entities,
}


def corrupt(
    config: TokenMasksConfig, vocabulary: Vocabulary, batch: dict[str, tf.Tensor], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Hides tokens of a batch, eagerly or in a graph.

    Args:
      config: the config of the corruption.
      vocabulary: the vocabulary of the tokens.
      batch: has at least token_ids int32 [B, T] and padding_mask bool [B, T], and bool [B, T] for
        the other fields that the config `needs`.
      seeds: a seed for each row, uint64 [B], from `official.utils.seeding.row_seeds`.

    Returns:
      The batch with masked token_ids, and with masked_positions int32 [B, P] (ascending),
      masked_ids int32 [B, P] (the original tokens), masked_weights float32 [B, P] (1, or with
      `replacement` how often the token was drawn), and the fields of `follows`. After the last
      prediction of a row all three are 0.
    """
    token_ids = batch["token_ids"]
    taken, times = select(config, vocabulary, batch, seeds)
    listed = units.list_targets(times, token_ids, config.max_predictions)
    corrupted = {
        **batch,
        **listed,
        "token_ids": replaced(config, vocabulary, token_ids, taken, listed, seeds),
    }
    return {**corrupted, **follows(config, vocabulary, corrupted)}


def follows(
    config: TokenMasksConfig, vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns the fields that follow from the tokens and masks of a batch, also static ones.

    Returns:
      The fields of `boundaries` if the unit is a span, and block_ids int32 [B, T] if the
      config has a `block_size`.
    """
    fields = boundaries(vocabulary, batch) if config.unit == "span" else {}
    if config.block_size is not None:
        fields["block_ids"] = block_numbers(batch["token_ids"], config.block_size)
    return fields


def run_lengths(config: TokenMasksConfig, seeds: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Draws the lengths, in words, of n-grams or spans.

    Args:
      config: a config with the unit `ngram` or `span`.
      seeds: uint64 [B].
      number: R.

    Returns:
      int32 [B, R].
    """
    lengths = np.arange(1, config.longest_run + 1)
    if config.unit == "ngram":
        shares: np.ndarray = 1.0 / lengths
    else:
        shares = config.span_prob * (1 - config.span_prob) ** (lengths - 1)
    return units.draw_lengths(shares, seeds, number)


def select(
    config: TokenMasksConfig,
    vocabulary: Vocabulary,
    batch: Mapping[str, tf.Tensor],
    seeds: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Selects the tokens to hide.

    Returns:
      The number of the hidden unit that each token is in, int32 [B, T], -1 = not hidden; adjacent
      spans are one unit. And how often each token is predicted, int32 [B, T].
    """
    numbered = WHOLE.get(config.unit, units.words)(vocabulary, batch)
    number = _number(config, numbered, batch, seeds)
    if config.replacement:
        times = units.with_replacement(numbered, number, seeds)
        return tf.where(times > 0, numbered, -1), times
    if config.windows:
        width = int(1 / config.mask_rate)
        windows = tf.shape(numbered)[1] // width + 1
        if config.unit == "token":
            lengths = tf.ones([tf.shape(numbered)[0], windows], tf.int32)
        else:
            lengths = run_lengths(config, seeds, windows)
        most = config.max_predictions
        taken = units.runs_of_windows(numbered, width, lengths, number, most, seeds)
        if config.unit != "token":
            taken = units.or_part_of_one(taken, numbered, number, seeds)
        return taken, tf.cast(taken >= 0, tf.int32)
    if config.unit == "token" and config.count != "each":
        taken = units.choose_tokens(numbered, number, config.max_predictions, seeds)
        return taken, tf.cast(taken >= 0, tf.int32)
    if config.unit in RUNS:
        lengths = run_lengths(config, seeds, tf.shape(numbered)[1])
        taken = units.runs(numbered, number, lengths, config.unit == "span", seeds)
    elif config.count == "each":
        chosen = units.each_unit(numbered, config.mask_rate, seeds)
        taken = units.whole_units(chosen, number, seeds)
    else:
        taken = units.whole_units(numbered, number, seeds)
    taken = units.or_part_of_one(taken, numbered, number, seeds)
    if config.unit == "span":
        taken = units.sequences(taken >= 0)
    return taken, tf.cast(taken >= 0, tf.int32)


def _number(
    config: TokenMasksConfig, numbered: tf.Tensor, batch: Mapping[str, tf.Tensor], seeds: tf.Tensor
) -> tf.Tensor:
    """Returns the number of tokens to predict in each row, int32 [B]; for `each` the maximum, P."""
    if config.count == "each":
        return tf.fill([tf.shape(numbered)[0]], config.max_predictions)
    counted = numbered >= 0 if config.count == "up" else batch["padding_mask"]
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


def replaced(
    config: TokenMasksConfig | RareTokenMasksConfig,
    vocabulary: Vocabulary,
    token_ids: tf.Tensor,
    taken: tf.Tensor,
    listed: Mapping[str, tf.Tensor],
    seeds: tf.Tensor,
) -> tf.Tensor:
    """Returns the token ids, with the hidden ones masked, randomized or kept.

    Args:
      config: the config of the corruption.
      vocabulary: the vocabulary of the tokens.
      token_ids: int32 [B, T].
      taken: the number of the hidden unit that each token is in, int32 [B, T], -1 = not hidden.
      listed: the hidden tokens, as `units.list_targets` returns them.
      seeds: uint64 [B].
    """
    positions, originals, times = (listed[name] for name in units.TARGETS)  # [B, P]
    drawn_by = positions
    if config.action == "unit":
        drawn_by = tf.maximum(tf.gather(taken, positions, batch_dims=1), 0)
    action = seeding.uniforms(seeds, Stream.MASK_ACTION, drawn_by)
    if config.replacement:
        # A token becomes [MASK] if one of its draws does: the minimum of several uniform numbers.
        action = 1 - (1 - action) ** (1 / tf.maximum(times, 1))
    if config.random_tokens == "unigram":
        random_ids = seeding.weighted(seeds, Stream.MASK_TOKEN, positions, vocabulary.counted)
    elif config.random_tokens == "non_special":
        ids = vocabulary.text_ids
        drawn = seeding.integers(seeds, Stream.MASK_TOKEN, positions, len(ids))
        random_ids = tf.gather(ids, drawn)
    else:
        random_ids = seeding.integers(seeds, Stream.MASK_TOKEN, positions, vocabulary.size)
    result = tf.where(action < config.mask_prob + config.random_prob, random_ids, originals)
    result = tf.where(action < config.mask_prob, vocabulary.mask_id, result)
    changes = units.sum_at(
        tf.where(times > 0, positions, -1), result - originals, tf.shape(token_ids)[1]
    )
    return token_ids + changes


def boundaries(vocabulary: Vocabulary, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Finds the tokens beside each hidden span (SpanBERT, section 3.2).

    A span is a maximal sequence of hidden tokens, so its neighbors are not hidden. If a neighbor
    is a special token or missing, the span has the weight 0.

        tokens            [CLS] an  [M] [M] red [M] [SEP]
        masked_positions         2   3       5
        span_left                1   1       4
        span_right               4   4       6
        span_offset              0   1       0
        span_weights             1   1       0

    Args:
      vocabulary: the vocabulary of the tokens.
      batch: has token_ids int32 [B, T], before or after masking, padding_mask bool [B, T],
        masked_positions int32 [B, P] ascending, and masked_weights float32 [B, P].

    Returns:
      span_left and span_right int32 [B, P], the positions of the neighbors; span_offset int32
      [B, P], the offset in the span from 0; span_weights float32 [B, P]. The first three are 0
      where the weight is 0.
    """
    positions, real = batch["masked_positions"], batch["masked_weights"] > 0
    before = tf.pad(positions[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    begins = real & (positions != before + 1)
    begins |= real & (tf.range(tf.shape(positions)[1]) == 0)
    spans = units.numbered(begins, real)  # [B, P]
    starts = units.sum_at(spans, tf.where(begins, positions, 0))  # [B, P], by span
    sizes = units.sum_at(spans, tf.ones_like(spans))
    start = tf.gather(starts, tf.maximum(spans, 0), batch_dims=1)  # [B, P], by prediction
    left = start - 1
    right = start + tf.gather(sizes, tf.maximum(spans, 0), batch_dims=1)
    text = units.maskable_tokens(vocabulary, batch)  # [B, T]
    last = tf.shape(text)[1] - 1
    inner = real & (left >= 0) & (right <= last)
    inner &= tf.gather(text, tf.maximum(left, 0), batch_dims=1)
    inner &= tf.gather(text, tf.minimum(right, last), batch_dims=1)
    return {
        "span_left": tf.where(inner, left, 0),
        "span_right": tf.where(inner, right, 0),
        "span_offset": tf.where(inner, positions - start, 0),
        "span_weights": tf.cast(inner, tf.float32),
    }


def block_numbers(token_ids: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the block number of each token [B, T], for blocks of `size` tokens: int32 [B, T].

    Tokens attend to their own block and to earlier ones.
    """
    shape = tf.shape(token_ids)
    ids = tf.broadcast_to(tf.range(shape[1]) // size, shape)
    return tf.ensure_shape(ids, token_ids.shape)
