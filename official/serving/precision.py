"""The number types of an export.

`float32` leaves a model as it is. `bfloat16` stores the encoder's weights in bfloat16 and computes
its products there; norms, softmax and heads stay float32 (and the logits of a vocabulary are a
product as all others). `int8` stores the encoder's matrices as integers with a float32 scale for
each output channel (for each row of a table) and computes products with integers, rows rounded when
they come, and looks up integers (`official.serving.int8`). What is used for anything else becomes
float32 again: tables and matrices of other layers when the model is loaded. All else is float32.
"""

import contextlib
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from official.modeling.layers.embeddings import Table
from official.modeling.model import Model
from official.serving import int8
from official.utils import checksums, keras_private

# Last parts of the paths of variables that become integers, and the axis of their scales.
_AXES = {"kernel": -1, "table": 0}


class Restored(tf.saved_model.experimental.TrackableResource):
    """A float32 matrix that is made of its integers when a SavedModel is loaded."""

    def __init__(self, integers: tf.Variable, scale: tf.Variable):
        super().__init__()
        self.integers = integers
        self.scale = scale
        # Matrices with the same name are the same, in whichever models of a process.
        content = repr(integers.shape).encode() + b"".join(
            variable.numpy().tobytes() for variable in (integers, scale)
        )
        self._name = f"int8_{checksums.hash_bytes(content)}"
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
        """Takes the variables of the first layer, which may become integers, and of others.

        Raises:
          UserError: `precision` is not for this TensorFlow.
        """
        self._encoder = layers[0]
        self._twins: dict[keras.Layer, int8.Int8Linear | int8.Int8Table] = {}
        self._restored: list[tuple[keras.Variable, Restored]] = []
        gone: set[int] = set()
        if precision == "int8":
            int8.check()
            self._twins = _twins(self._encoder) | {
                table: int8.Int8Table(table, self._whole) for table in _tables(self._encoder)
            }
            gone |= {id(variable) for layer in self._twins for variable in _matrices(layer)}
            for variable in _matrices(self._encoder):
                if id(variable) not in gone:
                    integers, scale = int8.quantized(variable.numpy(), axis_of(variable))
                    variables = (tf.Variable(value, trainable=False) for value in (integers, scale))
                    self._restored.append((variable, Restored(*variables)))
            gone |= {id(variable) for variable, _ in self._restored}
        self.module = tf.Module()
        # The bare variables rather than the Keras object: each is stored once and nothing but
        # TensorFlow is needed to read them.
        self.module.plain = [
            variable.value
            for layer in layers
            for variable in layer.variables
            if id(variable) not in gone
        ]
        self.module.restored = [matrix for _, matrix in self._restored]
        integers = [matrix for _, matrix in self._restored] + list(self._twins.values())
        self.module.integers = [matrix.integers for matrix in integers]
        self.module.scales = [matrix.scale for matrix in integers]

    def _whole(self, integers: tf.Variable, scale: tf.Variable) -> tf.Tensor:
        """Returns a whole table in float32, and stores that a loaded model makes it."""
        for matrix in self.module.restored:
            if matrix.integers is integers:
                return matrix.read()
        with tf.init_scope():
            matrix = Restored(integers, scale)
        self.module.restored.append(matrix)
        return matrix.read()

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Makes the layers compute with these weights inside the block."""
        if not self._twins and not self._restored:
            yield
            return
        matrices = [(variable, matrix.read()) for variable, matrix in self._restored]
        with keras.StatelessScope(matrices), int8.swapped(self._encoder, self._twins):
            yield


def _twins(encoder: keras.Layer) -> dict[keras.Layer, int8.Int8Linear]:
    """Returns the integer form of each `Linear` layer of an encoder, by the layer."""
    return {layer: int8.Int8Linear.from_layer(layer) for layer in int8.linear_layers(encoder)}


def _tables(encoder: keras.Layer) -> list[Table]:
    """Returns the tables of an encoder."""
    return [layer for layer in keras_private.sublayers(encoder) if isinstance(layer, Table)]


def _matrices(layer: keras.Layer) -> list[keras.Variable]:
    """Returns the variables of a layer that `int8` stores as integers."""
    return [variable for variable in layer.variables if axis_of(variable) is not None]


def axis_of(variable: keras.Variable) -> int | None:
    """Returns the axis of the scales of a variable that `int8` stores as integers, or None."""
    return _AXES.get(variable.path.rsplit("/", 1)[-1]) if len(variable.shape) == 2 else None


def round_weights(model: Model) -> None:
    """Gives a model the weights and products that it would have after an export as `int8`."""
    int8.swap(model.encoder, _twins(model.encoder))
    for variable in _matrices(model.encoder):
        integers, scale = int8.quantized(np.asarray(variable), axis_of(variable))
        variable.assign(integers.astype(np.float32) * scale)
