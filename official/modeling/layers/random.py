"""Random numbers of the network, each a pure function of (seed, step, call site, row, position).

There are no variables. The state is a pair of integers from the caller, and call sites are counted
while the graph is traced. The dropout mask of a row depends on the index of the row in the batch of
all replicas, and not on the other rows. The draws are hashes, computed in integers modulo 2**32, so
they are equal on all backends and compilers.

Shapes: B rows of a tensor, N numbers.
"""

import dataclasses
import math
import zlib
from typing import Any

import keras
import numpy as np
from keras import ops

from official.modeling.layers.kernels import one_pass
from official.modeling.types import DType, Initializer, Tensor

PACKAGE = "encoder_garden"  # the package of layers and initializers in models that Keras saves
_GOLDEN = 0x9E3779B1 - 2**32  # 2^32 / golden ratio, odd


@keras.saving.register_keras_serializable(PACKAGE)
class Draws(keras.random.SeedGenerator):
    """The random numbers of one forward pass.

    The training loop makes one for each step. The same pair gives the same draws in the same order.
    With `rng=None`, which is inference, a layer draws nothing. As a `SeedGenerator` it is also the
    `seed` of `keras.random` functions, which draw initial weights.
    """

    def __init__(self, pair: Tensor, first: Tensor = 0, examples: Tensor | None = None):
        """Makes the draws of a pair.

        Args:
            pair: two integers (a, b) or an integer tensor [2], modulo 2**32. Call site n draws
                from (a, b + n), so the values of b of two users must differ by more than their
                number of calls.
            first: the index, in the batch of all replicas, of the first example here; an integer or
                a scalar.
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

    @classmethod
    def of_name(cls, seed: int, name: str) -> "Draws":
        """Returns the draws of initial weights, a function of a seed and the name of a layer."""
        return cls((seed, zlib.crc32(name.encode())))

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the seed of the next call site for `keras.random`: [2]."""
        del ordered
        pair = self.next_pair()
        return ops.cast(pair, "uint32") if keras.backend.backend() == "jax" else pair

    def next_pair(self) -> Tensor:
        """Returns the pair of the next call site: int32 [2]."""
        site = np.asarray([0, self.calls], "int32")
        self.calls += 1
        return self.pair + site

    def get_config(self):
        """Returns the pair, if it is known."""
        return {"pair": ops.convert_to_numpy(self.pair).tolist()}

    def shared(self) -> "Draws":
        """Returns draws that are equal for all rows, such as those of distances or of a vocabulary.

        They are a function of the pair and of the call site.
        """
        return Draws(_keys(self.next_pair()))

    def keep(self, shape, rate: float) -> Tensor:
        """Returns a dropout mask: bool of `shape`, False with probability `rate`.

        `shape` begins with B. The draws of a row are hashes of its index and of the positions in
        it, in one pass over memory.
        """
        rows = 1 if self.examples is None else shape[0] // self.examples  # rows for each example
        first = ops.cast(self.first * rows, "int32")
        least = round(rate * 2**32) - 2**31
        return _rows_kept(self.next_pair(), first, shape=tuple(shape), least=least)


def uniforms(pairs: Tensor, count: int) -> Tensor:
    """Returns random numbers in [0, 1) in steps of 2^-24: float32 [..., N].

    Args:
        pairs: int32 [..., 2]; each pair gives N numbers.
        count: N.
    """
    keys = _keys(pairs)
    bits = _hashes(ops.arange(count, dtype="int32"), keys[..., :1], keys[..., 1:])
    high = ops.bitwise_and(ops.right_shift(bits, 8), 2**24 - 1)
    return ops.cast(high, "float32") * 2.0**-24


@one_pass
def _rows_kept(pair: Tensor, first: Tensor, *, shape, least) -> Tensor:
    """Returns whether the hash of each element is at least `least`: bool of `shape`."""
    rows = ops.arange(shape[0], dtype="int32") + first
    one, other = ops.unstack(_keys(pair), 2)
    keys = [_hashes(rows, one, other), _hashes(rows, other, one)]  # [B] each
    positions = ops.arange(math.prod(shape[1:]), dtype="int32")
    bits = _hashes(positions, keys[0][:, None], keys[1][:, None])
    return ops.reshape(bits >= least, shape)


def _keys(pair: Tensor) -> Tensor:
    """Returns two random integers, a function of a pair: int32 [..., 2]."""
    different = np.asarray([0, _GOLDEN], "int32")
    return _mix(_mix(pair[..., :1] + different) + pair[..., 1:])


def _hashes(numbers: Tensor, one, other) -> Tensor:
    """Returns the hash of each number with two keys."""
    return _mix(ops.bitwise_xor(_mix(numbers + one), other))


def _mix(x: Tensor) -> Tensor:
    """Mixes the bits of integers: the finalizer of MurmurHash3 (Appleby, 2011), modulo 2**32."""
    for shift, factor in ((16, -0x7A143595), (13, -0x3D4D51CB), (16, None)):
        # A logical shift: the sign bits that are shifted in are cleared.
        shifted = ops.bitwise_and(ops.right_shift(x, shift), (1 << 32 - shift) - 1)
        x = ops.bitwise_xor(x, shifted)
        x = x if factor is None else x * factor
    return x


def _by_size(draw):
    """Returns the law of a `keras.random` function whose scale is its standard deviation."""
    return lambda shape, scale, **options: draw(shape, stddev=scale, **options)


def _fan_in(shape, scale: float, **options):
    del scale
    return keras.random.normal(shape, stddev=shape[0] ** -0.5, **options)


def _uniform(shape, scale: float, **options):
    return keras.random.uniform(shape, -scale, scale, **options)


def _glorot(shape, scale: float, **options):
    del scale
    return _uniform(shape, (6 / sum(shape)) ** 0.5, **options)


# The distributions of initial weights, all with mean 0. The scale of `normal` is the standard
# deviation. The scale of `truncated_normal` is the standard deviation before truncation at two of
# it; that of the weights is 0.88 times the scale. The scale of `uniform` is the largest absolute
# value. `fan_in` (T5), normal with standard deviation I ** -0.5 for a kernel [I, O], and `glorot`,
# the uniform distribution of Glorot and Bengio (2010) for a matrix, have no scale.
INITIALIZERS = {
    "normal": _by_size(keras.random.normal),
    "truncated_normal": _by_size(keras.random.truncated_normal),
    "fan_in": _fan_in,
    "uniform": _uniform,
    "glorot": _glorot,
}


@keras.saving.register_keras_serializable(PACKAGE)
class RandomWeights(keras.initializers.Initializer):
    """An initializer; each call takes the next draw of `rng`."""

    def __init__(self, law: str, scale: float | None, rng: Draws):
        """Describes the weights.

        Args:
            law: one of `INITIALIZERS`.
            scale: the scale of the law.
            rng: `Draws`.
        """
        self.law = law
        self.scale = scale
        self.rng = rng

    def __call__(self, shape, dtype: DType | None = None) -> Tensor:
        """Returns weights of a shape."""
        return INITIALIZERS[self.law](shape, self.scale, dtype=dtype, seed=self.rng)

    def get_config(self):
        """Returns the arguments of the constructor; a copy starts at the first draw."""
        return {"law": self.law, "scale": self.scale, "rng": self.rng.get_config()["pair"]}

    @classmethod
    def from_config(cls, config):
        """Makes an initializer from the result of `get_config`."""
        return cls(**{**config, "rng": Draws(config["rng"])})


@dataclasses.dataclass(frozen=True)
class Initializers:
    """The initializers of a layer of several kinds of weights; None = `kernel`.

    Attributes:
        kernel: the initializer of kernels and tables.
        residual: the initializer of kernels whose products are added to the residual sum.
        position: the initializer of the position table.
        adapter: the initializer of the kernels of adapters.
    """

    kernel: Any
    residual: Any = None
    position: Any = None
    adapter: Any = None


@keras.saving.register_keras_serializable(PACKAGE)
class Scaled(keras.initializers.Initializer):
    """An initializer that multiplies the columns of another initializer by factors."""

    def __init__(self, initializer: Initializer, factors):
        """Describes the weights.

        Args:
            initializer: draws matrices [I, O].
            factors: O numbers.
        """
        self.initializer = keras.initializers.get(initializer)
        self.factors = list(factors)

    def __call__(self, shape, dtype: DType | None = None) -> Tensor:
        """Returns a matrix of a shape."""
        return self.initializer(shape, dtype) * ops.convert_to_tensor(self.factors, dtype)

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {
            "initializer": keras.initializers.serialize(self.initializer),
            "factors": [float(factor) for factor in self.factors],
        }
