"""The uses of Keras' private API, one function or class for each need.

Everything here is written for Keras 3.15, the version that requirements.txt names. Nothing else in
`official` uses names of Keras that begin with an underscore, or `keras.src`. After an upgrade of
Keras, `tests/official/utils/test_keras_private.py` says which of these needs another solution.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras.src import backend
from keras.src.backend.common import global_state

_UNINITIALIZED = "uninitialized_variables"


def sublayers(
    layer: keras.Layer, include_self: bool = True, recursive: bool = True
) -> list[keras.Layer]:
    """Returns the layers inside a layer, each once.

    `keras.Model.layers` exists for models only, and is not recursive. Serving looks for the affine
    maps of an encoder, and `official.commands.parameters` for the networks inside an objective.

    Args:
        layer: any layer.
        include_self: whether the layer itself comes first.
        recursive: whether the layers inside the sublayers are included.
    """
    return layer._flatten_layers(include_self=include_self, recursive=recursive)


def mask_of(tensor: Any) -> Any:
    """Returns the padding mask that Keras keeps with a tensor, or None.

    Keras passes such masks from layer to layer, and as arguments of `call` with names of its own.
    """
    return backend.get_keras_mask(tensor)


def set_mask(tensor: Any, mask: Any) -> None:
    """Keeps a padding mask with a tensor, for the Keras layers that read it.

    `Layer.compute_mask`, the public hook, does not see the arguments of `call`.
    """
    backend.set_keras_mask(tensor, mask)


@contextlib.contextmanager
def uninitialized_variables() -> Iterator[None]:
    """Creates variables without values inside the block: they have a shape and take no memory.

    Keras keeps a list of uninitialized variables and initializes them when the next
    `StatelessScope` of the process ends. It has no public way to remove them from that list.
    """
    before = list(global_state.get_global_attribute(_UNINITIALIZED, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(_UNINITIALIZED, before)


def initialize(variable: keras.Variable, value: np.ndarray) -> None:
    """Gives a variable of `uninitialized_variables` its first value.

    Keras can call an initializer later, but only the one that the variable was created with.
    """
    variable._initialize(keras.ops.cast(value, variable.dtype))
    variable._initializer = None


class JointUpdateOptimizer(keras.optimizers.Optimizer):
    """An optimizer that gets the gradients of all variables in one call.

    Keras' public hook, `update_step`, sees one variable at a time. Clipping by the global norm of
    gradients that are summed over replicas needs all of them, before Keras' own strategy code runs.
    """

    def update_all(self, grads, variables, learning_rate):
        """Updates variables.

        Args:
            grads: one gradient for each variable.
            variables: the variables to update.
            learning_rate: that of this step.
        """
        raise NotImplementedError

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        self.update_all(grads, trainable_variables, learning_rate)
