"""Span corruption: removed spans become sentinels, and the targets are the spans (T5).

Raffel et al. 2020, sections 3.1.4 and 3.3. For the text `a b c d e f` with the spans `b c` and `f`:

  inputs    a <0> d e <1> END
  targets   <0> b c <1> f END

The draws of a row depend only on its seed. Nothing is removed from a row of one token.

`compact` and `batch_of` make the rows of an encoder and a decoder of what stays.

Shapes: B rows, T tokens with padding, S spans of a full row, L tokens of a resulting row, U tokens
of a target.
"""

import tensorflow as tf

from official.config.corruptions import SentinelsConfig
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding
from official.utils.seeding import Stream


def corrupt(
    config: SentinelsConfig, vocabulary: Vocabulary, batch: dict[str, tf.Tensor], seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Makes inputs and targets of the texts of a batch, eagerly or in a graph.

    Args:
      config: the config of the corruption.
      vocabulary: the vocabulary of the tokens, with sentinels.
      batch: has token_ids int32 [B, T] and padding_mask bool [B, T]. T is the number of raw tokens
        of a row and static.
      seeds: a seed for each row, uint64 [B], from `official.utils.seeding.row_seeds`.

    Returns:
      The batch of `batch_of`.
    """
    ids, real = batch["token_ids"], batch["padding_mask"]
    removed = noise(config, real, seeds)
    lengths = config.lengths_of_row(ids.shape[1])
    inputs, targets = split(config, vocabulary, ids, real, removed)
    return batch_of(
        batch,
        compact(*inputs, lengths.inputs, vocabulary),
        compact(*targets, lengths.targets, vocabulary),
    )


def noise(config: SentinelsConfig, real: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Draws the tokens to remove.

    Args:
      config: the config of the corruption.
      real: bool [B, T], False for padding.
      seeds: uint64 [B].

    Returns:
      bool [B, T].
    """
    width = real.shape[1]
    if config.masks == "tokens":
        draws = seeding.uniforms(seeds, Stream.MASK_ORDER, width)
        return real & (draws < config.noise_density)
    length = tf.reduce_sum(tf.cast(real, tf.int32), axis=1)  # [B]
    number = tf.cast(tf.round(tf.cast(length, tf.float32) * config.noise_density), tf.int32)
    number = tf.clip_by_value(number, 1, tf.maximum(length - 1, 1))
    spans = tf.round(tf.cast(number, tf.float32) / config.mean_span_length)
    spans = tf.maximum(1, tf.cast(spans, tf.int32))
    spans = tf.minimum(spans, tf.minimum(number, length - number))  # [B], 0 for one token
    most = config.counts(width)[1]
    removed = _pieces(number, spans, seeds, Stream.MASK_NUMBER, width, most)  # [B, S]
    kept = _pieces(length - number, spans, seeds, Stream.MASK_ORDER, width, most)
    pieces = tf.reshape(tf.stack([kept, removed], axis=2), [-1, 2 * most])
    ends = tf.cumsum(pieces, axis=1)
    positions = tf.broadcast_to(tf.range(width), tf.shape(real))
    piece = tf.searchsorted(ends, positions, side="right")
    return real & (piece % 2 == 1) & (spans > 0)[:, None]


def _pieces(
    total: tf.Tensor, count: tf.Tensor, seeds: tf.Tensor, stream: Stream, width: int, most: int
) -> tf.Tensor:
    """Cuts totals into random parts; all ways of cutting them are equally likely.

    Args:
      total: int32 [B], the sum of the parts.
      count: int32 [B], the number of parts.
      seeds: uint64 [B].
      stream: the stream of the draws.
      width: at least the largest total.
      most: S.

    Returns:
      int32 [B, S], at least 1 each, and 0 after the last part.
    """
    draws = seeding.uniforms(seeds, stream, width)
    # `count - 1` of the `total - 1` places between two items are cuts: those of the lowest draws.
    places = tf.range(width)
    draws = tf.where(places < total[:, None] - 1, draws, 2.0)
    ranks = tf.argsort(tf.argsort(draws, axis=1, stable=True), axis=1)
    cuts = (ranks < count[:, None] - 1) & (places < total[:, None] - 1)
    part = tf.cumsum(tf.cast(cuts, tf.int32), axis=1, exclusive=True)  # of each item
    part = tf.where(places < total[:, None], part, most)
    sizes = tf.reduce_sum(tf.one_hot(part, most, dtype=tf.int32), axis=1)
    return tf.where(tf.range(most) < count[:, None], sizes, 0)


def split(
    config: SentinelsConfig,
    vocabulary: Vocabulary,
    ids: tf.Tensor,
    real: tf.Tensor,
    removed: tf.Tensor,
) -> tuple[tuple[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Separates the tokens of inputs and targets, with sentinels and not yet moved together.

    Args:
      config: the config of the corruption.
      vocabulary: the vocabulary of the tokens.
      ids: int32 [B, T].
      real: bool [B, T], False for padding.
      removed: bool [B, T], the tokens that are removed from the inputs.

    Returns:
      For the inputs, ids [B, T] and the ones that stay, bool [B, T]. For the targets the same, with
      two places for each token and one at the end: [B, 2 T + 2].
    """
    if not config.replace:
        return (ids, real & ~removed), (ids, removed)
    sentinel = lambda starts: tf.gather(  # noqa: E731
        vocabulary.sentinel_ids,
        tf.clip_by_value(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0, config.sentinels - 1),
    )
    starts = removed & ~_shifted(removed)
    inputs = tf.where(removed, sentinel(starts), ids), (real & ~removed) | starts
    if config.targets == "released":
        kept = real & ~removed
        starts = kept & ~_shifted(kept)
        return inputs, (tf.where(removed, ids, sentinel(starts)), removed | starts)
    # One more place, for the sentinel after the last token.
    more = lambda x: tf.pad(x, [[0, 0], [0, 1]])  # noqa: E731
    behind = lambda x: tf.pad(x, [[0, 0], [1, 0]])  # noqa: E731
    closing = ~more(real) & behind(real & ~removed)
    begins = more(starts) | closing
    marks = sentinel(begins)
    pairs = tf.stack([marks, more(ids)], axis=2), tf.stack([begins, more(removed)], axis=2)
    width = 2 * (ids.shape[1] + 1)
    return inputs, tuple(tf.reshape(x, [-1, width]) for x in pairs)


def _shifted(flags: tf.Tensor) -> tf.Tensor:
    """Returns the flags of the token before each token: bool [B, T]."""
    return tf.pad(flags[:, :-1], [[0, 0], [1, 0]])


def compact(
    ids: tf.Tensor, kept: tf.Tensor, length: int, vocabulary: Vocabulary
) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves some tokens of each row together, cuts them to `length - 1`, and adds the end token.

    Args:
      ids: int32 [B, T].
      kept: bool [B, T], the tokens that stay.
      length: L.
      vocabulary: has the ids of padding and of the end token.

    Returns:
      The ids, int32 [B, L], and their mask, bool [B, L], False for padding.
    """
    rows = ids.shape[0] if ids.shape[0] is not None else tf.shape(ids)[0]
    ranks = tf.cumsum(tf.cast(kept, tf.int32), axis=1)  # from 1
    taken = kept & (ranks < length)
    counts = tf.reduce_sum(tf.cast(taken, tf.int32), axis=1)  # [B]
    columns = tf.range(length)
    # A column takes the first token with its rank. The ranks of a row rise.
    wanted = tf.broadcast_to(columns + 1, [rows, length])
    before = tf.searchsorted(ranks, wanted, side="left")
    moved = tf.gather(ids, tf.minimum(before, tf.shape(ids)[1] - 1), batch_dims=1)
    mask = columns <= counts[:, None]
    moved = tf.where(columns < counts[:, None], moved, vocabulary.pad_id)
    moved = tf.where(columns == counts[:, None], vocabulary.end_id, moved)
    return tf.ensure_shape(moved, [ids.shape[0], length]), mask


def batch_of(
    batch: dict[str, tf.Tensor],
    inputs: tuple[tf.Tensor, tf.Tensor],
    targets: tuple[tf.Tensor, tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Returns a batch with ids and masks of inputs and of targets in the place of its tokens.

    Returns:
      The batch with token_ids and segment_ids int32 [B, L], padding_mask bool [B, L], target_ids
      int32 [B, U] and target_mask bool [B, U].
    """
    token_ids, padding_mask = inputs
    target_ids, target_mask = targets
    return {
        **batch,
        "token_ids": token_ids,
        "segment_ids": tf.zeros_like(token_ids),
        "padding_mask": padding_mask,
        "target_ids": target_ids,
        "target_mask": target_mask,
    }
