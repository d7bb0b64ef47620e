"""Random draws of the network, each a pure function of (seed, step, replica, call site).

There are no variables. The state is a pair of integers from the caller, and call sites are counted
while the graph is traced.
"""

import math

import keras
import numpy as np
from keras import ops

from official.modeling.layers.one_pass import one_pass

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

        Two integers are drawn from the backend's generator. They are the keys of a hash of the
        number of each element, which is one pass over memory.
        """
        keys = keras.random.randint((2,), -(2**31), 2**31 - 1, "int32", seed=self)
        return _hashes_from(keys, shape=tuple(shape), least=round(rate * 2**32) - 2**31)


@one_pass
def _hashes_from(keys, *, shape, least):
    """Returns whether the hash of each element is at least `least`: bool of `shape`.

    The hash of a number n is mix(mix(n + first key) ^ second key).
    """
    numbers = ops.reshape(ops.arange(math.prod(shape), dtype="int32"), shape)
    return _mix(ops.bitwise_xor(_mix(numbers + keys[0]), keys[1])) >= least


def _mix(x):
    """Mixes the bits of integers: the finalizer of MurmurHash3 (Appleby, 2011), modulo 2**32."""
    for shift, factor in ((16, -0x7A143595), (13, -0x3D4D51CB), (16, None)):
        # The sign is shifted in, and cleared.
        shifted = ops.bitwise_and(ops.right_shift(x, shift), (1 << 32 - shift) - 1)
        x = ops.bitwise_xor(x, shifted)
        x = x if factor is None else x * factor
    return x


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
