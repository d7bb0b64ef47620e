"""Copies variables to arrays and back, by their paths."""

import hashlib
import json
from collections.abc import Mapping

import keras
import numpy as np

from official.utils import keras_private
from official.utils.errors import UserError

_ADVICE = (
    "the weights belong to another config: use the config.yaml of their model folder, or name "
    "another checkpoint"
)


def values(variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    """Copies variables to arrays on the host."""
    return {path: np.array(variable.numpy()) for path, variable in variables.items()}


def not_finite(arrays: Mapping[str, np.ndarray]) -> str | None:
    """Returns the path of the first array with a value that is infinite or no number, or None."""
    for path, array in arrays.items():
        if not np.issubdtype(array.dtype, np.integer) and not np.isfinite(array).all():
            return path
    return None


def assign(
    variables: Mapping[str, keras.Variable], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Copies arrays to the variables of the same paths. Every variable must have its array.

    Raises:
      UserError: an array is missing or has another shape. `source` says where the arrays are from.
    """
    check({path: tuple(variable.shape) for path, variable in variables.items()}, arrays, source)
    for path, variable in variables.items():
        variable.assign(arrays[path])


def initialize(
    variables: Mapping[str, keras.Variable], arrays: dict[str, np.ndarray], source: str
) -> None:
    """Like `assign`, for variables of `keras_private.uninitialized_variables`.

    The arrays are taken out of their dictionary, one after another: no weights are twice in memory.
    """
    check({path: tuple(variable.shape) for path, variable in variables.items()}, arrays, source)
    for path, variable in variables.items():
        keras_private.initialize(variable, arrays.pop(path))


def check(
    shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Checks that there is an array of each shape.

    Raises:
      UserError: an array is missing or has another shape. `source` says where the arrays are from.
    """
    if missing := [path for path in shapes if path not in arrays]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UserError(f"{source}: has no {', '.join(missing[:3])}{more}: {_ADVICE}")
    for path, shape in shapes.items():
        if shape != arrays[path].shape:
            raise UserError(
                f"{source}: {path} has shape {list(arrays[path].shape)} there and {list(shape)} "
                f"here: {_ADVICE}"
            )


def digest(arrays: Mapping[str, np.ndarray], rest: object) -> str:
    """Returns the SHA-256 of arrays by path and of a value that JSON can hold."""
    total = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for path, array in sorted(arrays.items()):
        total.update(f"{path} {array.dtype} {array.shape};".encode())
        total.update(np.ascontiguousarray(array).view(np.uint8).data)
    return total.hexdigest()
