"""Models whose variables are not initialized: they have a shape and take no memory."""

import contextlib
from collections.abc import Iterator

import keras
from keras.src.backend.common import global_state

_PENDING = "uninitialized_variables"


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """Creates variables without values inside the block.

    Keras keeps a list of uninitialized variables and initializes them when the next
    `StatelessScope` of the process ends. It has no public way to remove them from that list.
    """
    before = list(global_state.get_global_attribute(_PENDING, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(_PENDING, before)
