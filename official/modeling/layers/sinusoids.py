"""Positions as sines and cosines.

Shapes: B batch, T length, D hidden.
"""

import numpy as np
from keras import ops

from official.modeling.layers.kernels import accurate


def sinusoids(positions, size, dtype):
    """Returns the vectors of positions (Vaswani et al. 2017, section 3.5).

    The sines come first and then the cosines, as in the release. The paper alternates them, which
    is the same up to a permutation of the columns.

    Args:
        positions: numbers [B or 1, T].
        size: D, even.
        dtype: dtype of the result.

    Returns:
        [B or 1, T, D].
    """
    frequencies = 10000.0 ** (-np.arange(0, size, 2) / size)
    exact = accurate(dtype)
    angles = ops.cast(positions, exact)[..., None] * ops.convert_to_tensor(frequencies, exact)
    return ops.cast(ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1), dtype)
