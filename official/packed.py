"""Rows that hold several examples, their parts: fields that keep the parts apart.

Positions and segment numbers begin anew in each part, attention stays within it, and there is a
label and a pooled output for each (RoBERTa's and others' "packing" of full sentences is something
else: it lets them attend to one another). A row of two parts, one of two segments and one of a
single one, where K is 3:

  token_ids    [CLS] a  [SEP] b  [SEP] [CLS] c  [SEP] [PAD]
  part_ids       0   0    0   0    0     1   1    1     3
  positions      0   1    2   3    4     0   1    2     0
  segment_ids    0   0    0   1    1     0   0    0     0
  part_starts    0 5 0        part_weights  1 1 0        labels of the parts  1 0 0

Masks are drawn for the row as a whole, so `mask_rate` and `max_predictions` are of a row.

Shapes: B rows, T tokens with padding, S segments of a row, K parts of a row at most.
"""

from collections.abc import Mapping

import tensorflow as tf

from official.features import FEATURES


def fields(
    parsed: Mapping[str, tf.RaggedTensor],
    segment_numbers: tf.Tensor,
    weights: tf.Tensor,
    most: int,
) -> dict[str, tf.Tensor]:
    """Returns what tells the parts of each row apart.

    Args:
      parsed: `part_lengths` and the labels of the parts, from `features.parse`.
      segment_numbers: how many segments of the row ended before each token, int32 [B, T].
      weights: of the rows, float32 [B].
      most: K.

    Returns:
      part_ids int32 [B, T] (K for padding), positions and segment_ids int32 [B, T] (0 for padding),
      part_starts int32 [B, K] (0 where there is no part), part_weights float32 [B, K] (0 there, and
      in rows of weight 0), and each label as int32 [B, K].
    """
    size, places = weights.shape[0], segment_numbers.shape[1]
    shape = [size, most]
    columns = tf.range(tf.shape(segment_numbers)[1])
    lengths = parsed["part_lengths"].to_tensor(shape=shape)  # [B, K]
    ends = tf.cumsum(lengths, axis=1)
    real = lengths > 0
    starts = tf.where(real, ends - lengths, 0)
    part_ids = tf.reduce_sum(tf.cast(columns >= ends[:, :, None], tf.int32), axis=1)
    part_ids = tf.ensure_shape(part_ids, [size, places])

    def within(values, firsts):
        """Values [B, T] less that of their part [B, K]; 0 for padding."""
        less = tf.gather(firsts, tf.minimum(part_ids, most - 1), batch_dims=1)
        return tf.where(part_ids < most, values - less, 0)

    made = {
        "part_ids": part_ids,
        "positions": within(columns, starts),
        "segment_ids": within(segment_numbers, tf.gather(segment_numbers, starts, batch_dims=1)),
        "part_starts": starts,
        "part_weights": tf.cast(real, tf.float32) * weights[:, None],
    }
    labels = [name for name in parsed if FEATURES[name].kind == "part"]
    return made | {name: parsed[name].to_tensor(shape=shape) for name in labels}
