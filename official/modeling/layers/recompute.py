"""Recomputation: results inside a layer are not kept for the gradient, but computed again.

Training then takes the memory of one layer and of the inputs of all, and one more forward pass
(Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
"""

from collections.abc import Callable

import keras

from official.modeling.layers.random import Draws
from official.modeling.types import Tensor


def recomputed(function: Callable[..., Tensor], rng: Draws, **tensors: Tensor | None) -> Tensor:
    """Returns what a function returns, and computes it again for its gradient.

    Args:
        function: returns a tensor. Its gradient is that of its arguments and of variables; it has
            none of other tensors that it reads.
        rng: what the function draws dropout from; both times it draws the same.
        **tensors: the arguments; some may be None.
    """
    given = {name: x for name, x in tensors.items() if x is not None}
    calls = rng.calls

    def run(*values):
        rng.calls = calls
        return function(**{**tensors, **dict(zip(given, values, strict=True))})

    return keras.remat(run)(*given.values())
