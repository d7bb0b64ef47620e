"""UTF-8 in graphs."""

import tensorflow as tf


def valid(texts: tf.Tensor) -> tf.Tensor:
    """Replaces bytes of strings that are not UTF-8 by U+FFFD; any shape."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
