"""The words and tags of the positions of a tagging task.

Shapes: B rows, T tokens of a row.
"""

from collections.abc import Mapping

import tensorflow as tf

from official.tokenizers import pair_packing

FEATURES = ("word_ids", "tag_ids")
NONE = -1


def fields(
    parsed: Mapping[str, tf.RaggedTensor], padding_mask: tf.Tensor, layout: str
) -> dict[str, tf.Tensor]:
    """Pads `word_ids` and `tag_ids` with -1, and moves them as `packing.arrange` moves tokens.

    Args:
      parsed: one or both of them, int32 [B, None].
      padding_mask: bool [B, T], of the rows after they are arranged.
      layout: one of `packing.LAYOUTS`.

    Returns:
      int32 [B, T] each.
    """
    shape = padding_mask.shape
    if not shape.is_fully_defined():
        shape = tf.shape(padding_mask)
    rows = {name: parsed[name].to_tensor(NONE, shape=shape) for name in FEATURES if name in parsed}
    if layout == pair_packing.LAYOUTS[0]:
        return rows
    width = tf.shape(padding_mask)[1]
    lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1, keepdims=True)  # [B, 1]
    # [CLS] has no word, so the texts move without it; the last position takes its -1.
    origin = tf.range(width)[None, :] - (width - lengths) + 1
    inside = (origin >= 1) & (origin < lengths)
    origin = tf.clip_by_value(origin, 0, width - 1)
    return {
        name: tf.where(inside, tf.gather(values, origin, batch_dims=1), NONE)
        for name, values in rows.items()
    }
