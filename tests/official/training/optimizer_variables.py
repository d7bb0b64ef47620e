"""Variables for tests of optimizers."""

import contextlib

import keras
import numpy as np


def named(path: str, value: np.ndarray, dtype: str) -> keras.Variable:
    """A variable whose path is `path`."""
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        variable = keras.Variable(value, name=name, dtype=dtype)
    assert variable.path == path
    return variable
