"""The number types of an export.

`float32` leaves a model as it is. `bfloat16` stores the encoder's weights in bfloat16 and computes
its products there; norms, softmax and heads stay float32 (and the logits of a vocabulary are a
product as all others). `int8` stores the encoder's matrices as integers with a float32 scale for
each output channel (for each row of a table), w = scale * integer with |integer| <= 127; they
become float32 again when the model is loaded, so that the files are a quarter of the size, and
loaded it is neither faster nor smaller. TensorFlow has no products of int8 rows on a CPU that every
server would have.

Shapes: I input size, O output size.
"""

import contextlib
import hashlib

import keras
import numpy as np
import tensorflow as tf

from official.model import Model

PRECISIONS = ("float32", "bfloat16", "int8")
# Last parts of the paths of variables that become integers, and the axis of their scales.
_AXES = {"kernel": -1, "table": 0}


def quantised(array: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds a matrix to integers of 8 bits.

    Args:
      array: float32 [I, O].
      axis: what has a scale of its own each.

    Returns:
      int8 [I, O], and float32 [1, O] or [I, 1].
    """
    largest = np.abs(array).max(axis=1 if axis == 0 else 0, keepdims=True)
    scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.rint(array / scale).astype(np.int8), scale


class Restored(tf.saved_model.experimental.TrackableResource):
    """A float32 matrix that is made of its integers when a SavedModel is loaded."""

    def __init__(self, array: np.ndarray, axis: int):
        super().__init__()
        integers, scale = quantised(array, axis)
        # Matrices with the same name are the same, in whichever models of a process.
        found = hashlib.sha256(repr(array.shape).encode() + integers.tobytes() + scale.tobytes())
        self._name = f"int8_{found.hexdigest()}"
        self.integers = tf.Variable(integers, trainable=False)
        self.scale = tf.Variable(scale, trainable=False)
        self._initialize()

    def _create_resource(self) -> tf.Tensor:
        shape = self.integers.shape
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape, shared_name=self._name)

    def _initialize(self) -> None:
        value = tf.cast(self.integers, tf.float32) * self.scale
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)

    def read(self) -> tf.Tensor:
        """The matrix."""
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=tf.float32)
        return tf.ensure_shape(value, self.integers.shape)


class Weights:
    """The weights of a model as an export stores them.

    Attributes:
      module: what is stored.
    """

    def __init__(self, layers: list[keras.Layer], precision: str = "float32"):
        """Takes the variables of the first layer, which may become integers, and of others."""
        self._replaced = [
            (variable, Restored(variable.numpy(), axis_of(variable)))
            for variable in layers[0].variables
            if precision == "int8" and axis_of(variable) is not None
        ]
        gone = {id(variable) for variable, _ in self._replaced}
        self.module = tf.Module()
        # The bare variables rather than the Keras object: each is stored once and nothing but
        # TensorFlow is needed to read them.
        self.module.plain = [
            variable.value
            for layer in layers
            for variable in layer.variables
            if id(variable) not in gone
        ]
        self.module.restored = [matrix for _, matrix in self._replaced]
        self.module.integers = [matrix.integers for _, matrix in self._replaced]
        self.module.scales = [matrix.scale for _, matrix in self._replaced]

    def read(self) -> contextlib.AbstractContextManager:
        """Within it, layers find these weights."""
        if not self._replaced:
            return contextlib.nullcontext()
        pairs = [(variable, matrix.read()) for variable, matrix in self._replaced]
        return keras.StatelessScope(pairs)


def axis_of(variable: keras.Variable) -> int | None:
    """The axis of the scales of a variable that `int8` stores as integers; None = it does not."""
    return _AXES.get(variable.path.rsplit("/", 1)[-1]) if len(variable.shape) == 2 else None


def round_weights(model: Model) -> None:
    """Gives a model the weights that it would have after an export as `int8`."""
    for variable in model.encoder.variables:
        if (axis := axis_of(variable)) is not None:
            integers, scale = quantised(np.asarray(variable), axis)
            variable.assign(integers.astype(np.float32) * scale)
