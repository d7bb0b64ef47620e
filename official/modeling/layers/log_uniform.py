"""Draws classes by a log-uniform law, without replacement, for a sampled softmax.

The law suits classes in the order of descending counts: p(k) = log((k + 2) / (k + 1)) / log(V + 1).
Tries are draws with replacement, and go on until there are enough different classes. After t tries,
class k is among them with the probability 1 - (1 - p)^t, its expected count (the sampler of ELMo's
release).

Here t is a real number, the time, and a class comes at a time of its own, which is exponential with
the rate -log(1 - p). It is there at the time t with the same probability, the classes are
independent, and no loop is needed. The tries of N classes are the time at which class N + 1 comes,
which is then left out. A class that is drawn and weighted with 1 / its expected count has then
exactly the expectation 1 (bottom-k sampling with exponential ranks: Cohen and Kaplan, 2007). With
the whole number of tries up to class N, the weights are too large, by about the share 1 / 2N.

Shapes: V classes, N classes that are drawn.
"""

import math

from keras import ops

from official.modeling.layers.random import Draws, uniforms
from official.modeling.types import Tensor

_DTYPE = "float32"


def probabilities(classes: Tensor, size: int) -> Tensor:
    """Returns the probability of classes, int [...], in one try: [...].

    `size` is V.
    """
    classes = ops.cast(classes, _DTYPE)
    return ops.log1p(1 / (classes + 1)) / math.log(size + 1)


def log_expected_counts(classes: Tensor, tries: Tensor, size: int) -> Tensor:
    """Returns the logarithm of the probability that classes are drawn in some tries: [...].

    Args:
        classes: int [...].
        tries: scalar, the number of tries.
        size: V.
    """
    return ops.log(-ops.expm1(tries * ops.log1p(-probabilities(classes, size))))


def sample(count: int, size: int, rng: Draws):
    """Draws different classes.

    Args:
        count: N, at most V.
        size: V.
        rng: `official.modeling.layers.random.Draws`.

    Returns:
        The classes in the order in which they come, int32 [N], and the tries, a scalar. The tries
        of all V classes are infinite.
    """
    rates = -ops.log1p(-probabilities(ops.arange(size, dtype="int32"), size))
    times = -ops.log1p(-uniforms(rng.next_pair(), size)) / rates
    if count == size:
        return ops.argsort(times), ops.convert_to_tensor(math.inf, _DTYPE)
    first, classes = ops.top_k(-times, count + 1)
    return ops.cast(classes[:count], "int32"), -first[count]
