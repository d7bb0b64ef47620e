"""Parses serialized examples by the table of features.

Shapes: B examples of a batch.
"""

from collections.abc import Iterable

import tensorflow as tf

from official.shards.features import FEATURES


def parse(serialized: tf.Tensor, names: Iterable[str]) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Parses a batch of serialized examples.

    Args:
      serialized: strings [B].
      names: the features to parse, which every example must have.

    Returns:
      An int32 RaggedTensor [B, None] for 'ints', int32 [B] for 'int', float32 [B] for 'float', and
      string [B] for 'bytes'. 'part' is as 'ints' if `part_lengths` is among the names, and as 'int'
      otherwise.
    """
    names = set(names)
    kinds = {
        "ints": tf.io.RaggedFeature(tf.int64),
        "int": tf.io.FixedLenFeature([], tf.int64),
        "float": tf.io.FixedLenFeature([], tf.float32),
        "bytes": tf.io.FixedLenFeature([], tf.string, ""),
    }
    kinds["part"] = kinds["ints" if "part_lengths" in names else "int"]
    parsed = tf.io.parse_example(
        serialized, {name: kinds[FEATURES[name].kind] for name in sorted(names)}
    )
    return {
        name: value if FEATURES[name].kind in ("float", "bytes") else tf.cast(value, tf.int32)
        for name, value in parsed.items()
    }
