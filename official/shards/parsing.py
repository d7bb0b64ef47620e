"""Parses serialized examples by the table of features.

Shapes: B examples of a batch.
"""

from collections.abc import Iterable

import tensorflow as tf

from official.shards import ranges
from official.shards.features import FEATURES, TF_MODELS_FEATURES


def parse(
    serialized: tf.Tensor, names: Iterable[str], limits: ranges.Limits | None = None
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Parses a batch of serialized examples.

    Args:
      serialized: strings [B].
      names: the features to parse, which every example must have.
      limits: what the numbers are limited to. Examples that break a rule stop the graph with an
        error that `ranges.reported` says in words. None = nothing is checked.

    Returns:
      An int32 RaggedTensor [B, None] for 'ints', int32 [B] for 'int', float32 [B] for 'float', and
      string [B] for 'bytes'. 'part' is as 'ints' if `part_lengths` is among the names, and as 'int'
      otherwise.
    """
    parsed = parse_wide(serialized, names)
    if limits is not None:
        parsed = ranges.checked(parsed, limits)
    return {
        name: value if FEATURES[name].kind in ("float", "bytes") else tf.cast(value, tf.int32)
        for name, value in parsed.items()
    }


def parse_wide(
    serialized: tf.Tensor, names: Iterable[str]
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Does what `parse` does, with whole numbers as they are stored: int64."""
    names = set(names)
    kinds = {
        "ints": tf.io.RaggedFeature(tf.int64),
        "int": tf.io.FixedLenFeature([], tf.int64),
        "float": tf.io.FixedLenFeature([], tf.float32),
        "bytes": tf.io.FixedLenFeature([], tf.string, ""),
    }
    kinds["part"] = kinds["ints" if "part_lengths" in names else "int"]
    table = TF_MODELS_FEATURES | FEATURES
    return tf.io.parse_example(
        serialized, {name: kinds[table[name].kind] for name in sorted(names)}
    )
