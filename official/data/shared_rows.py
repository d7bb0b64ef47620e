"""Packed rows: the batch fields that keep the examples of a row, its parts, separate.

Positions and segment ids start again in each part, attention stays within a part, and every part
has a label and a pooled output. (RoBERTa's packing of full sentences is different: they attend to
each other.) A row of two parts, one with two segments and one with a single segment, where K is 3:

  token_ids    [CLS] a  [SEP] b  [SEP] [CLS] c  [SEP] [PAD]
  part_ids       0   0    0   0    0     1   1    1     3
  positions      0   1    2   3    4     0   1    2     0
  segment_ids    0   0    0   1    1     0   0    0     0
  part_starts    0 5 0        part_weights  1 1 0        labels of the parts  1 0 0

Masks are drawn for each part separately: `mask_rate` and `max_predictions` apply to a part, and no
hidden word or span crosses the border of two parts.

Shapes: B rows, T tokens with padding, S segments of a row, at most K parts of a row, N parts of all
rows.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from official import config as configs
from official.corruption.vocabulary import Vocabulary
from official.shards.features import FEATURES
from official.utils import seeding


def fields(
    parsed: Mapping[str, tf.RaggedTensor],
    segment_numbers: tf.Tensor,
    weights: tf.Tensor,
    max_parts: int,
) -> dict[str, tf.Tensor]:
    """Returns the batch fields of the parts of each row.

    Args:
      parsed: `part_lengths` and the labels of the parts, from `parsing.parse`.
      segment_numbers: the number of segments of the row that end before each token, int32 [B, T].
      weights: the weights of the rows, float32 [B].
      max_parts: K.

    Returns:
      part_ids int32 [B, T] (K for padding), positions and segment_ids int32 [B, T] (0 for padding),
      part_starts int32 [B, K] (0 if there is no part), part_weights float32 [B, K] (0 there, and in
      rows of weight 0), and each label as int32 [B, K].
    """
    size, length = weights.shape[0], segment_numbers.shape[1]
    shape = [size, max_parts]
    columns = tf.range(tf.shape(segment_numbers)[1])
    lengths = parsed["part_lengths"].to_tensor(shape=shape)  # [B, K]
    ends = tf.cumsum(lengths, axis=1)
    real = lengths > 0
    starts = tf.where(real, ends - lengths, 0)
    part_ids = tf.reduce_sum(tf.cast(columns >= ends[:, :, None], tf.int32), axis=1)
    part_ids = tf.ensure_shape(part_ids, [size, length])

    def within(values, firsts):
        """Returns values [B, T] minus the value of their part [B, K]; 0 for padding."""
        less = tf.gather(firsts, tf.minimum(part_ids, max_parts - 1), batch_dims=1)
        return tf.where(part_ids < max_parts, values - less, 0)

    fields_of_parts = {
        "part_ids": part_ids,
        "positions": within(columns, starts),
        "segment_ids": within(segment_numbers, tf.gather(segment_numbers, starts, batch_dims=1)),
        "part_starts": starts,
        "part_weights": tf.cast(real, tf.float32) * weights[:, None],
    }
    labels = [name for name in parsed if FEATURES[name].kind == "part"]
    return fields_of_parts | {name: parsed[name].to_tensor(shape=shape) for name in labels}


def corrupted(
    corruption: Any,
    vocabulary: Vocabulary,
    parsed: Mapping[str, tf.RaggedTensor],
    flags: Mapping[str, tf.RaggedTensor],
    seeds: tf.Tensor,
    max_parts: int,
) -> dict[str, tf.RaggedTensor]:
    """Hides tokens of each part as if it were a row.

    Args:
      corruption: the config of the corruption.
      vocabulary: the vocabulary of the tokens.
      parsed: `token_ids` and `part_lengths`, from `parsing.parse`.
      flags: the features that the corruption reads, a flag for each token, bool [B, None].
      seeds: the seeds of the rows, uint64 [B]. The seed of a part is a function of its row's seed
        and its index.
      max_parts: K.

    Returns:
      token_ids, and masked_positions and masked_ids of the whole row in the form of static masks:
      int32 [B, None].
    """
    token_ids, lengths = parsed["token_ids"], parsed["part_lengths"]
    sizes = lengths.flat_values  # [N]

    def by_part(values):
        """Returns values [B, None] of rows by part: [N, longest part]; 0 for padding."""
        return tf.RaggedTensor.from_row_lengths(values.flat_values, sizes).to_tensor()

    padding_mask = tf.sequence_mask(sizes)
    is_part = tf.sequence_mask(lengths.row_lengths(), max_parts)  # [B, K]
    batch = {name: by_part(values) for name, values in {**flags, "token_ids": token_ids}.items()}
    batch = configs.module_of(corruption).corrupt(
        corruption,
        vocabulary,
        {**batch, "padding_mask": padding_mask},
        tf.boolean_mask(seeding.bits(seeds, seeding.Stream.PARTS, max_parts), is_part),
    )
    times = tf.cast(batch["masked_weights"], tf.int32)  # [N, P]: how often each one is listed
    counts = lengths.with_flat_values(tf.reduce_sum(times, axis=1))
    counts = tf.reduce_sum(counts, axis=1)  # [B]
    starts = tf.cumsum(sizes, exclusive=True)  # [N]: in all rows, then in the part's own
    starts -= tf.cast(tf.gather(token_ids.row_starts(), lengths.value_rowids()), tf.int32)

    def listed(values):
        """Returns values [N, P] of the hidden tokens by row: [B, None]."""
        values = tf.repeat(tf.reshape(values, [-1]), tf.reshape(times, [-1]))
        return tf.RaggedTensor.from_row_lengths(values, counts)

    return {
        "token_ids": token_ids.with_flat_values(tf.boolean_mask(batch["token_ids"], padding_mask)),
        "masked_positions": listed(batch["masked_positions"] + starts[:, None]),
        "masked_ids": listed(batch["masked_ids"]),
    }
