"""Converts Python texts to string tensors, some megabytes at a time."""

from collections.abc import Iterator, Sequence

import tensorflow as tf

_CHUNK_CHARACTERS = 1 << 20


def chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields texts in groups of about a megabyte."""
    start = size = 0
    for i, text in enumerate(texts):
        size += len(text)
        if size >= _CHUNK_CHARACTERS:
            yield texts[start : i + 1]
            start, size = i + 1, 0
    if start < len(texts):
        yield texts[start:]


def strings(texts: Sequence[str]) -> tf.Tensor:
    """Returns texts as a tensor of their UTF-8 bytes."""
    try:
        return tf.constant(texts, tf.string)
    except ValueError:  # a lone surrogate, whose bytes are not UTF-8
        return tf.constant([text.encode("utf-8", "surrogatepass") for text in texts], tf.string)


def characters(texts: Sequence[str]) -> tf.Tensor:
    """Returns texts as a tensor with the same characters; a lone surrogate becomes U+FFFD."""
    try:
        return tf.constant(texts, tf.string)
    except ValueError:
        plain = (
            text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
        )
        return tf.constant(list(plain), tf.string)
