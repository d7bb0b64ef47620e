"""Rows of an encoder and a decoder: tokens that are kept, moved to the left, with an end token.

Shapes: B rows, T tokens with padding, L tokens of the result.
"""

import tensorflow as tf

from official.corruption.vocabulary import Vocabulary


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
