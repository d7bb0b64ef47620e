"""Distances between queries and keys, and scores by distance as scores by key.

The reference is Dai et al. 2019, section 3.3 and appendix B.

Shapes: B batch, T content rows, P query rows, M memory, S = M + T keys or slots of a cache,
R distances, N heads, H head size, D hidden.
"""

import numpy as np
from keras import ops

from official.modeling.layers.gradient import with_gradient
from official.modeling.layers.precision import accurate


def distance_vectors(length, keys, size, *, bidirectional, clamp=0, backward=False, dtype):
    """The sinusoids of all distances from a query to a key (Dai et al. 2019, section 3.3).

    Column c stands for the distance S - c, "the key is so far before the query". Distance S has no
    key and is there for `shift`.

    Args:
        length: T.
        keys: S.
        size: D, even.
        bidirectional: whether there are keys after a query; then R is S + T, otherwise S + 1.
        clamp: distances beyond it are taken as it; 0 = they are not.
        backward: whether the vectors of the reversed distances are wanted too.
        dtype: of the result.

    Returns:
        [1, R, D], or [2, R, D] with the reversed ones second.
    """
    steps = ops.arange(keys + (length if bidirectional else 1))
    exact = accurate(dtype)
    distances = ops.cast(keys - steps, exact)
    if clamp:
        distances = ops.clip(distances, -clamp, clamp)
    frequencies = 10000.0 ** (-np.arange(0, size, 2) / size)
    angles = distances[:, None] * ops.convert_to_tensor(frequencies, exact)
    sine, cosine = ops.sin(angles), ops.cos(angles)
    vectors = [ops.concatenate([sine, cosine], axis=-1)]
    if backward:
        vectors.append(ops.concatenate([-sine, cosine], axis=-1))
    return ops.cast(ops.stack(vectors), dtype)


def shift(scores, keys):
    """Scores by distance to scores by key, for the rows of the content in order.

    Row i has its key j at column T - i + j. Read as one line, row i begins at i * R, so that key j
    is at i * (R - 1) + T + j: without the first T numbers these are rows of R - 1.

    Args:
        scores: [B, N, T, R] of the distances of `distance_vectors`.
        keys: S.

    Returns:
        [B, N, T, S]; with one-sided distances, keys after the query have whatever number is there.
    """
    batch, heads, length, distances = ops.shape(scores)
    line = ops.reshape(scores, (batch, heads, length * distances))
    line = ops.slice(line, (0, 0, length), (batch, heads, length * (distances - 1)))
    rows = ops.reshape(line, (batch, heads, length, distances - 1))
    return ops.slice(rows, (0, 0, 0, 0), (batch, heads, length, keys))


@with_gradient
def shift_to(scores, first, *, keys):
    """The same for rows that stand anywhere in the content.

    Args:
        scores: [B, N, P, R].
        first: int [B, P], the column of key 0: see `Stream`.
        keys: S.

    Returns:
        [B, N, P, S].
    """
    distances = ops.shape(scores)[3]

    def backward(upstream):
        # Each column was read at most once: so this is no sum, but the same look-up reversed.
        columns = ops.arange(distances, dtype="int32") - first[:, :, None]
        there = ops.logical_and(columns >= 0, columns < keys)
        return ops.where(there[:, None], _columns(upstream, columns, keys), 0), None

    wanted = first[:, :, None] + ops.arange(keys, dtype="int32")
    return _columns(scores, wanted, distances), backward


def from_slot(distance_key, slot, length):
    """The keys of the distances that `shift` wants for rows in slots from number `slot` on.

    Args:
        distance_key: [1, N, H, 2 S], from distance S down.
        slot: int, of the first of the rows.
        length: T, how many rows there are.

    Returns:
        [1, N, H, S + T], from distance `slot` + T down, as if no slot came after these rows.
    """
    *sizes, count = ops.shape(distance_key)
    last = count // 2
    return ops.slice(distance_key, (0, 0, 0, last - slot - length), (*sizes, last + length))


def _columns(x, columns, most):
    """Takes columns [B, P, C], those outside cut to what is there, of x [B, N, P, `most`]."""
    columns = ops.clip(columns, 0, most - 1)
    return ops.take_along_axis(x, columns[:, None], axis=3)
