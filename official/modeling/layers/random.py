"""Random draws of the network, each a pure function of (seed, step, call site, row, position).

There are no variables. The state is a pair of integers from the caller, and call sites are counted
while the graph is traced. What dropout keeps of a row depends on the number of the row in the batch
of all replicas, and not on the other rows. The draws are hashes in integers modulo 2**32, so they
are equal on all backends and compilers.

Shapes: B rows of a tensor, N numbers.
"""

import math

import keras
import numpy as np
from keras import ops

from official.modeling.layers.one_pass import one_pass

_GOLDEN = 0x9E3779B1 - 2**32  # 2^32 / golden ratio, odd


class Draws(keras.random.SeedGenerator):
    """The random numbers of one forward pass.

    The training loop makes one for each step. The same pair gives the same draws in the same order.
    With `rng=None`, which is inference, a layer draws nothing. As a `SeedGenerator` it is also the
    `seed` of `keras.random` functions, which draw initial weights.
    """

    def __init__(self, pair, first=0, examples=None):
        """Makes the draws of a pair.

        Args:
            pair: two integers (a, b) or an integer tensor [2], modulo 2**32. Call site n draws
                from (a, b + n), so the values of b of two users must differ by more than their
                number of calls.
            first: the number of the first example in the batch of all replicas, an integer or a
                scalar.
            examples: the number of examples here. A tensor may have several rows for each of them,
                one example after the other. None = an example for each row.
        """
        # No super().__init__(): it would create a variable.
        if isinstance(pair, tuple | list) and all(isinstance(x, int | np.integer) for x in pair):
            pair = np.asarray([int(x) % 2**32 for x in pair], "uint32").view("int32")
        elif isinstance(pair, tuple | list):
            pair = ops.stack([ops.cast(x, "int32") for x in pair])
        self.pair = ops.cast(pair, "int32")
        self.first = first
        self.examples = examples
        self.calls = 0

    def next(self, ordered=True):
        """Returns the seed of the next call site: int32 [2]."""
        del ordered
        site = np.asarray([0, self.calls], "int32")
        self.calls += 1
        return self.pair + site

    def shared(self):
        """Returns draws that are equal for all rows, such as those of distances or of a vocabulary.

        They are a function of the pair and of the call site.
        """
        return Draws(_keys(self.next()))

    def keep(self, shape, rate):
        """Returns what dropout keeps: bool of `shape`, False with probability `rate`.

        `shape` begins with B. The draws of a row are hashes of its number and of the positions in
        it, which is one pass over memory.
        """
        rows = 1 if self.examples is None else shape[0] // self.examples  # of an example
        first = ops.cast(self.first * rows, "int32")
        least = round(rate * 2**32) - 2**31
        return _rows_kept(self.next(), first, shape=tuple(shape), least=least)


def uniforms(pairs, count):
    """Returns random numbers in [0, 1) in steps of 2^-24: float32 [..., N].

    Args:
        pairs: int32 [..., 2]; each of them gives N numbers.
        count: N.
    """
    keys = _keys(pairs)
    bits = _hashes(ops.arange(count, dtype="int32"), keys[..., :1], keys[..., 1:])
    high = ops.bitwise_and(ops.right_shift(bits, 8), 2**24 - 1)
    return ops.cast(high, "float32") * 2.0**-24


@one_pass
def _rows_kept(pair, first, *, shape, least):
    """Returns whether the hash of each element is at least `least`: bool of `shape`."""
    rows = ops.arange(shape[0], dtype="int32") + first
    one, other = ops.unstack(_keys(pair), 2)
    keys = [_hashes(rows, one, other), _hashes(rows, other, one)]  # [B] each
    positions = ops.arange(math.prod(shape[1:]), dtype="int32")
    bits = _hashes(positions, keys[0][:, None], keys[1][:, None])
    return ops.reshape(bits >= least, shape)


def _keys(pair):
    """Returns two random integers, a function of a pair: int32 [..., 2]."""
    different = np.asarray([0, _GOLDEN], "int32")
    return _mix(_mix(pair[..., :1] + different) + pair[..., 1:])


def _hashes(numbers, one, other):
    """Returns the hash of each number with two keys."""
    return _mix(ops.bitwise_xor(_mix(numbers + one), other))


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
