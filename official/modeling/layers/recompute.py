"""Recomputation: results inside a layer are not kept for the gradient, but computed again.

Training then takes the memory of one layer and of the inputs of all, and one more forward pass
(Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
"""

from collections.abc import Callable
from typing import Any

import keras

from official.modeling.layers.random import Draws
from official.modeling.types import Tensor


def recomputed(function: Callable[..., Tensor], rng: Draws, **tensors: Any) -> Tensor:
    """Returns what a function returns, and computes it again for its gradient.

    Args:
        function: returns a tensor. Its gradient is that of its arguments and of variables; it has
            none of other tensors that it reads.
        rng: what the function draws dropout from; both times it draws the same.
        **tensors: the arguments: tensors, None, or tuples of these. Integers have no gradient.
    """
    leaves, calls = keras.tree.flatten(tensors), rng.calls
    learned = [n for n, x in enumerate(leaves) if x is not None and _is_float(x)]

    def run(*values):
        rng.calls = calls
        given = dict(zip(learned, values, strict=True))
        filled = [given.get(n, x) for n, x in enumerate(leaves)]
        return function(**keras.tree.pack_sequence_as(tensors, filled))

    return keras.remat(run)(*(leaves[n] for n in learned))


def _is_float(x: Tensor) -> bool:
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))
