"""Random draws that are functions of counters, never of earlier draws.

`row_seeds(seed, epoch, index)` returns a 64-bit seed for each example, and `bits`, `uniforms`,
`integers` and `weighted` hash (row seed, stream, position) to numbers. The draws of a row therefore
do not depend on the other rows of the batch or on padding. The hash is the finalizer of SplitMix64
(Steele, Lea and Flood, 2014), in wrapping 64-bit arithmetic. `official.utils.host_seeding` has the
draws outside batches.

Shapes: B rows, L numbers of a row.
"""

import enum

import numpy as np
import tensorflow as tf

from official.utils.host_seeding import FACTORS, STEP


class Stream(enum.IntEnum):
    """The uses of `bits`, whose draws are independent."""

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
    BATCH_ORDER = 13
    ROW_ORDER = 14


def row_seeds(seed: int, epoch: int | tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Returns the seed of each example in an epoch.

    Args:
      seed: the seed of the run.
      epoch: the number of earlier passes over the data; scalar or [B].
      index: the number of the example, in the order of the manifest; integers [B].

    Returns:
      uint64 [B].
    """
    state = mix(_uint64(seed))
    state = mix(state + _uint64(STEP) + _uint64(epoch))
    return mix(state + _uint64(STEP) + _uint64(index))


def bits(rows: tf.Tensor, stream: int, positions: int | tf.Tensor) -> tf.Tensor:
    """Returns 64 random bits for some positions of each row.

    Args:
      rows: the result of `row_seeds`, uint64 [B].
      stream: a `Stream`; the draws of two streams are independent.
      positions: L, for the positions from 0 to L - 1; or L positions of each row, int32 [B, L]. The
        bits of a position do not depend on the others.

    Returns:
      uint64 [B, L].
    """
    keys = mix(rows ^ mix(_uint64((stream + 1) * STEP % 2**64)))  # [B]
    positions = tf.cast(positions, tf.int64)
    if positions.shape.rank == 0:
        positions = tf.range(positions)
    return mix(keys[:, None] + _uint64(positions + 1) * _uint64(STEP))


def network_seeds(rows: tf.Tensor) -> tf.Tensor:
    """Returns the seeds of the network's draws for each row: int32 [B, 2].

    Args:
      rows: the result of `row_seeds`, uint64 [B].
    """
    return tf.bitcast(bits(rows, Stream.NETWORK, 1)[:, 0], tf.int32)


def uniforms(rows: tf.Tensor, stream: int, positions: int | tf.Tensor) -> tf.Tensor:
    """Returns float32 [B, L] uniform in [0, 1), in steps of 2^-24; arguments as in `bits`."""
    high = tf.bitwise.right_shift(bits(rows, stream, positions), _uint64(40))
    return tf.cast(high, tf.float32) * np.float32(2.0**-24)


def integers(rows: tf.Tensor, stream: int, positions: int | tf.Tensor, limit: int) -> tf.Tensor:
    """Returns int32 [B, L] uniform in 0 … limit - 1 (limit < 2^31); arguments as in `bits`."""
    high = tf.bitwise.right_shift(bits(rows, stream, positions), _uint64(32))
    return tf.cast(tf.bitwise.right_shift(high * _uint64(limit), _uint64(32)), tf.int32)


def weighted(
    rows: tf.Tensor, stream: int, positions: int | tf.Tensor, cumulative: np.ndarray
) -> tf.Tensor:
    """Returns int32 [B, L] with the cumulative frequencies `cumulative` [V].

    `cumulative` has ascending whole numbers up to 2^53, and the last one is above 0. The other
    arguments are those of `bits`.
    """
    high = tf.bitwise.right_shift(bits(rows, stream, positions), _uint64(11))
    draws = tf.cast(high, tf.float64) * (float(cumulative[-1]) * 2.0**-53)
    bounds = tf.constant(cumulative, tf.float64)
    indices = tf.searchsorted(bounds, tf.reshape(tf.floor(draws), [-1]), side="right")
    return tf.reshape(indices, tf.shape(draws))


def mix(state: tf.Tensor) -> tf.Tensor:
    """Returns the output function of SplitMix64 of each state, uint64."""
    state = (state ^ tf.bitwise.right_shift(state, _uint64(30))) * _uint64(FACTORS[0])
    state = (state ^ tf.bitwise.right_shift(state, _uint64(27))) * _uint64(FACTORS[1])
    return state ^ tf.bitwise.right_shift(state, _uint64(31))


def _uint64(value: int | tf.Tensor) -> tf.Tensor:
    if isinstance(value, int):
        return tf.constant(value % 2**64, tf.uint64)
    return tf.cast(value, tf.uint64)
