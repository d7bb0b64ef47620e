"""Random draws of the network, each a pure function of (seed, step, replica, call site).

There are no variables. The state is a pair of integers from the caller, and call sites are counted
while the graph is traced.
"""

import math

import keras
import numpy as np
from keras import ops

# The number of call sites of `Draws.shared`, whose b is negative.
_SHARED_CALLS = 16


class Draws(keras.random.SeedGenerator):
    """Seeds for the random calls of one forward pass.

    Any `keras.random` function accepts it as `seed`. The training loop makes one for each replica
    and step. The same pair gives the same draws in the same order. With `rng=None`, which is
    inference, a layer draws nothing.
    """

    def __init__(self, pair):
        """Makes the draws of a pair.

        Args:
            pair: two integers (a, b) or an integer tensor [2], modulo 2**32. Call site n draws
                from (a, b + n), so the values of b of two users must differ by more than their
                number of calls.
        """
        # No super().__init__(): it would create a variable.
        if isinstance(pair, tuple | list) and all(isinstance(x, int | np.integer) for x in pair):
            pair = np.asarray([int(x) % 2**32 for x in pair], "uint32").view("int32")
        elif isinstance(pair, tuple | list):
            pair = ops.stack([ops.cast(x, "int32") for x in pair])
        self.pair = ops.cast(pair, "int32")
        self.calls = 0

    def next(self, ordered=True):
        """Returns the seed of the next call site: int32 [2]."""
        del ordered
        site = np.asarray([0, self.calls], "int32")
        self.calls += 1
        return self.pair + site

    def shared(self):
        """Returns draws that are equal on all replicas: a function of a and of the call site."""
        first = -_SHARED_CALLS * (self.calls + 1)
        self.calls += 1
        return Draws((self.pair[0], first))

    def keep(self, shape, rate):
        """Returns what dropout keeps: bool of `shape`, False with probability `rate`.

        The rate is accurate to 1/65536: each random integer is read as two integers of 16 bits,
        which halves the cost of the draws.
        """
        size = math.prod(shape)
        integers = keras.random.randint(
            ((size + 1) // 2, 1), -(2**31), 2**31 - 1, "int32", seed=self
        )
        halves = ops.reshape(ops.view(integers, "int16"), (-1,))[:size]
        threshold = round(rate * 2**16) - 2**15
        return ops.reshape(halves >= threshold, shape)


# The laws of initial weights. `truncated_normal` draws values beyond two `stddev` again, so that
# the standard deviation of the weights is 0.88 `stddev`.
INITIALIZERS = {
    "normal": keras.random.normal,
    "truncated_normal": keras.random.truncated_normal,
}


def initializer(law, stddev, rng):
    """Returns an initialiser with mean 0; each of its calls is another draw of `rng`.

    The law `fan_in` is the normal law with the standard deviation I ** -0.5 for a kernel [I, O],
    whatever `stddev` is (T5).
    """

    def initialize(shape, dtype=None):
        if law == "fan_in":
            return keras.random.normal(shape, stddev=shape[0] ** -0.5, dtype=dtype, seed=rng)
        return INITIALIZERS[law](shape, stddev=stddev, dtype=dtype, seed=rng)

    return initialize
