"""The one seed rule: every draw is a function of counters, never of what was drawn before.

On the host, `numpy_rng(seed, document, ...)` gives a generator of its own to each piece of work.
In batches, `row_seeds(seed, epoch, index)` gives each example a 64-bit seed and `bits`, `uniforms`,
`integers` and `weighted` hash (row seed, stream, place) into numbers, so a row draws the same
whichever rows share its batch and however far it is padded. The hash is the finaliser of SplitMix64
(Steele, Lea and Flood, 2014), in wrapping 64-bit arithmetic.

Shapes: B rows, L numbers a row.
"""

import enum

import numpy as np
import tensorflow as tf

_STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: walks through all 64-bit numbers
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class Stream(enum.IntEnum):
    """The uses of `bits`, each of which draws on its own."""

    SHARD_ORDER = 0
    RECORD_ORDER = 1
    MASK_ORDER = 2
    MASK_ACTION = 3
    MASK_TOKEN = 4
    MASK_NUMBER = 5
    RUN_LENGTH = 6
    NETWORK = 7
    GENERATION = 8
    PERMUTATION = 9
    CONTEXT = 10
    PARTS = 11
    TASK = 12


def numpy_rng(*counters: int) -> np.random.Generator:
    """Returns the generator of these counters (seed first; each one 0 <= counter < 2^64).

    Unlike `SeedSequence` alone, (1,) and (1, 0) are different streams.
    """
    words = [len(counters)]
    for counter in counters:
        words += [counter & 0xFFFFFFFF, counter >> 32]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))


def row_seeds(seed: int, epoch: int | tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Returns the seed of each example in an epoch.

    Args:
      seed: the run's seed.
      epoch: how often the data was read before; scalar or [B].
      index: the example's number in the data, in the order of the manifest; integers [B].

    Returns:
      uint64 [B].
    """
    state = _mix(_uint64(seed))
    state = _mix(state + _uint64(_STEP) + _uint64(epoch))
    return _mix(state + _uint64(_STEP) + _uint64(index))


def bits(rows: tf.Tensor, stream: int, length: int | tf.Tensor) -> tf.Tensor:
    """Returns 64 random bits for each of `length` places of each row.

    Args:
      rows: uint64 [B] from `row_seeds`.
      stream: a `Stream`; draws of two streams are independent.
      length: L; the first places of a longer draw equal those of a shorter one.

    Returns:
      uint64 [B, L].
    """
    keys = _mix(rows ^ _mix(_uint64((stream + 1) * _STEP % 2**64)))  # [B]
    places = _uint64(tf.range(1, tf.cast(length, tf.int64) + 1)) * _uint64(_STEP)  # [L]
    return _mix(keys[:, None] + places)


def network_seeds(rows: tf.Tensor) -> tf.Tensor:
    """Returns a seed for the network's draws from each row's: int32 [B, 2].

    Args:
      rows: uint64 [B] from `row_seeds`.
    """
    return tf.bitcast(bits(rows, Stream.NETWORK, 1)[:, 0], tf.int32)


def uniforms(rows: tf.Tensor, stream: int, length: int | tf.Tensor) -> tf.Tensor:
    """Returns float32 [B, L] uniform in [0, 1), in steps of 2^-24; arguments as in `bits`."""
    high = tf.bitwise.right_shift(bits(rows, stream, length), _uint64(40))
    return tf.cast(high, tf.float32) * np.float32(2.0**-24)


def integers(rows: tf.Tensor, stream: int, length: int | tf.Tensor, limit: int) -> tf.Tensor:
    """Returns int32 [B, L] uniform in 0 … limit - 1 (limit < 2^31); arguments as in `bits`."""
    high = tf.bitwise.right_shift(bits(rows, stream, length), _uint64(32))
    return tf.cast(tf.bitwise.right_shift(high * _uint64(limit), _uint64(32)), tf.int32)


def weighted(
    rows: tf.Tensor, stream: int, length: int | tf.Tensor, cumulative: np.ndarray
) -> tf.Tensor:
    """Returns int32 [B, L]: i as often as `cumulative` [V] rises there; arguments as in `bits`.

    `cumulative` are whole numbers up to 2^53, the last of them above 0.
    """
    high = tf.bitwise.right_shift(bits(rows, stream, length), _uint64(11))
    draws = tf.cast(high, tf.float64) * (float(cumulative[-1]) * 2.0**-53)
    bounds = tf.constant(cumulative, tf.float64)
    found = tf.searchsorted(bounds, tf.reshape(tf.floor(draws), [-1]), side="right")
    return tf.reshape(found, tf.shape(draws))


def _mix(state: tf.Tensor) -> tf.Tensor:
    state = (state ^ tf.bitwise.right_shift(state, _uint64(30))) * _uint64(_FACTORS[0])
    state = (state ^ tf.bitwise.right_shift(state, _uint64(27))) * _uint64(_FACTORS[1])
    return state ^ tf.bitwise.right_shift(state, _uint64(31))


def _uint64(value: int | tf.Tensor) -> tf.Tensor:
    if isinstance(value, int):
        return tf.constant(value % 2**64, tf.uint64)
    return tf.cast(value, tf.uint64)
