"""Draws classes by a log-uniform law, without replacement, for a sampled softmax.

The law suits classes in the order of descending counts: p(k) = log((k + 2) / (k + 1)) / log(V + 1).
It is the law of ELMo's release, whose sampler draws with replacement until it has enough different
classes. The number of draws, the tries, decides how often each class is expected among them.

`sample` gives classes and tries of the same joint law without a loop. The order in which different
classes first appear is that of an exponential race with the rates p. While the classes so far have
the share s, each try gives a new class with the probability 1 - s, so the number of tries up to
the next new class is geometric.

Shapes: V classes, N classes that are drawn.
"""

import math

import keras
from keras import ops

_DTYPE = "float32"
_LARGEST_SHARE = 1 - 2.0**-23  # of the classes so far: a new class is always possible


def probabilities(classes, size):
    """Returns the probability of classes, int [...], in one try: [...].

    `size` is V.
    """
    classes = ops.cast(classes, _DTYPE)
    return ops.log1p(1 / (classes + 1)) / math.log(size + 1)


def log_expected_counts(classes, tries, size):
    """Returns the logarithm of the probability that classes are drawn in some tries: [...].

    Args:
        classes: int [...].
        tries: scalar, the number of tries.
        size: V.
    """
    return ops.log(-ops.expm1(tries * ops.log1p(-probabilities(classes, size))))


def sample(count, size, rng):
    """Draws different classes.

    Args:
        count: N, at most V.
        size: V.
        rng: `official.modeling.layers.random.Draws`.

    Returns:
        The classes in the order in which they were drawn, int32 [N], and the number of tries, a
        scalar.
    """
    p = probabilities(ops.arange(size, dtype="int32"), size)
    times = -ops.log1p(-keras.random.uniform((size,), dtype=_DTYPE, seed=rng)) / p
    early, classes = ops.top_k(-times, count)
    del early
    drawn = ops.take(p, classes)
    share = ops.clip(ops.cumsum(drawn) - drawn, 0, _LARGEST_SHARE)  # of the classes before
    uniform = 1 - keras.random.uniform((count,), dtype=_DTYPE, seed=rng)  # in (0, 1]
    failures = ops.floor(ops.log(uniform) / ops.log(share))
    return ops.cast(classes, "int32"), count + ops.sum(failures)
