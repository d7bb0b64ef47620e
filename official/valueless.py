"""Models whose variables have a shape and no value, whatever their size."""

import contextlib
from collections.abc import Iterator

import keras
from keras.src.backend.common import global_state

_NOTED = "uninitialized_variables"


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """Within it, layers make variables that take no memory.

    Keras notes them, and would give them values when the next `StatelessScope` of the process ends.
    It has no public way to take such a note back.
    """
    before = list(global_state.get_global_attribute(_NOTED, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(_NOTED, before)
