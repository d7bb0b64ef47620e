"""Recomputation (gradient checkpointing): results inside a layer are computed again for gradients.

Training then needs memory for the inputs of all layers and the inside of one layer, and time for
one more forward pass (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
"""

from collections.abc import Callable
from typing import Any

import keras

from official.modeling.layers.random import Draws
from official.modeling.types import Tensor


def recomputed(function: Callable[..., Tensor], rng: Draws, **tensors: Any) -> Tensor:
    """Calls a function, and calls it again to compute its gradient.

    Args:
        function: returns a tensor. Its arguments and variables get gradients; other tensors that it
            reads do not.
        rng: the `Draws` of the function's dropout; both calls draw the same numbers.
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
