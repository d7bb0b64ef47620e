"""Layers with 8-bit integers: affine maps y = x W + b, and tables.

W is quantized beforehand and x at run time, both symmetrically, as scale * integer. W has a scale
for each output channel. x has a scale for each row, with 127 for the largest magnitude of the row,
so the result for a row does not depend on other rows. The integer sums are exact. They are cast to
float32 and scaled, and the bias is added.

The integers of W are at most 64, a range of 7 bits. A CPU without VNNI (AVX2 alone) adds two
products of x + 128 and W in 16 bits: 2 * 255 * 64 fits, while 2 * 255 * 127 saturates silently.

The product is oneDNN's `_QuantizedMatMul`, which TensorFlow's wheels for x86 contain. It has no
Python wrapper, so it is added to a graph by its name. It packs a matrix on first use and keeps the
packed matrix, so the matrix must not change.

A table has a scale for each row. The rows that are looked up become float32, not the table.

Shapes: R rows, I input size, O output size, V vocabulary, E embedding size.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from official.modeling.layers.embeddings import Table, plus_bias, products
from official.modeling.layers.linear import Linear
from official.utils import keras_private
from official.utils.errors import UserError

LARGEST = 127
LARGEST_WEIGHT = 64
_OP = "_QuantizedMatMul"


def quantized(
    array: np.ndarray, axis: int, integer: int = LARGEST
) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes a matrix to 8-bit integers.

    Args:
      array: float32 [I, O].
      axis: the axis with a scale for each index: 0 for rows, -1 for columns.
      integer: the integer that the largest magnitude becomes.

    Returns:
      The integers, int8 [I, O], and the scales, float32 [I, 1] or [1, O].
    """
    largest = np.abs(array).max(axis=1 if axis == 0 else 0, keepdims=True)
    scale = np.where(largest > 0, largest / integer, 1).astype(np.float32)
    return np.rint(array / scale).astype(np.int8), scale


class Int8Linear(keras.Layer):
    """The affine map of a `Linear` layer, computed with integers.

    It has no Keras variables and is never trained. `swapped` puts it in the place of the layer.

    Attributes:
      integers: variable int8 [I, O].
      scale: variable float32 [O], the scale of each column.
      bias: variable or tensor float32 [O], or None.
    """

    fuses_activation = False

    def __init__(self, kernel: np.ndarray, bias: Any = None, name: str | None = None):
        """Quantizes a kernel.

        Args:
          kernel: float32 [I, O].
          bias: variable or tensor float32 [O], or None.
          name: the name of the layer.
        """
        super().__init__(name=name, dtype="float32", trainable=False)
        integers, scale = quantized(kernel, -1, LARGEST_WEIGHT)
        self.integers = tf.Variable(integers, trainable=False)
        self.scale = tf.Variable(scale[0], trainable=False)
        self.bias = bias
        self.built = True

    @classmethod
    def from_layer(cls, layer: Linear) -> "Int8Linear":
        """Returns the integer form of a layer; both share the bias."""
        bias = getattr(layer.bias, "value", layer.bias)  # not a variable where some maps lack one
        return cls(np.asarray(layer.kernel), bias, layer.name)

    @property
    def kernel(self) -> tf.Tensor:
        """The float32 matrix [I, O] that the integers stand for."""
        return tf.cast(self.integers, tf.float32) * self.scale

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Maps x float32 [..., I] to [..., O]."""
        map_rows = self._graph if tf.executing_eagerly() else self._map
        size, width = self.integers.shape
        if x.shape.rank == 2:
            return map_rows(x)
        y = map_rows(tf.reshape(x, [-1, size]))
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [width]], axis=0))

    @functools.cached_property
    def _graph(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """`_map` of any number of rows, traced once, where there is no graph: `product` needs one.

        Layers cannot share it, because the operation keeps the packed matrix.
        """
        rows = tf.TensorSpec([None, self.integers.shape[0]], tf.float32)
        return tf.function(self._map, autograph=False).get_concrete_function(rows)

    def by_columns(self, inputs: Sequence[tf.Tensor], sizes: Sequence[int]) -> list[tf.Tensor]:
        """See `Linear`. There is one product of all inputs: each product packs the whole matrix."""
        inputs = [tf.convert_to_tensor(x) for x in inputs]
        rows = [tf.reshape(x, [-1, self.integers.shape[0]]) for x in inputs]
        outputs = tf.split(self(tf.concat(rows, axis=0)), [tf.shape(x)[0] for x in rows])
        ends = np.cumsum(sizes).tolist()
        return [
            tf.reshape(y[:, end - size : end], tf.concat([tf.shape(x)[:-1], [size]], axis=0))
            for x, y, size, end in zip(inputs, outputs, sizes, ends, strict=False)
        ]

    def _map(self, rows: tf.Tensor) -> tf.Tensor:
        integers, largest = rounded(rows)
        y = product(integers, self.integers, self.scale) * largest
        return y if self.bias is None else y + self.bias


class Int8Table(keras.Layer):
    """A `Table` that is stored as integers.

    It has no Keras variables and is never trained. `swapped` puts it in the place of the layer.

    Attributes:
      num_rows: V.
      integers: variable int8 [V, E].
      scale: variable float32 [V, 1].
    """

    def __init__(self, table: Table, whole: Callable[[tf.Variable, tf.Variable], tf.Tensor]):
        """Quantizes a table.

        Args:
          table: the layer.
          whole: a function that returns the float32 table [V, E] from `integers` and `scale`. It is
            called in a graph that needs the whole table.
        """
        super().__init__(name=table.name, dtype="float32", trainable=False)
        self.num_rows = table.num_rows
        integers, scale = quantized(np.asarray(table.table), 0)
        self.integers = tf.Variable(integers, trainable=False)
        self.scale = tf.Variable(scale, trainable=False)
        self._whole = whole
        self.built = True

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Looks up ids of any shape: [..., E]."""
        rows = tf.gather(self.integers, ids)
        return tf.cast(rows, tf.float32) * tf.gather(self.scale, ids)

    def first(self, length: Any, offset: int = 0) -> tf.Tensor:
        """Returns `length` rows from `offset` on, without a look-up: [length, E]."""
        end = offset + length
        return tf.cast(self.integers[offset:end], tf.float32) * self.scale[offset:end]

    def rows(self, dtype: Any) -> tf.Tensor:
        """Returns all rows in a dtype, [V, E]."""
        return tf.cast(self._whole(self.integers, self.scale), dtype)

    def scores(self, x: tf.Tensor, bias: Any = None) -> tf.Tensor:
        """Returns the products of x [R, E] with every row, plus a bias [V]: [R, V]."""
        scores = products(x, self.rows(x.dtype))
        return scores if bias is None else plus_bias(scores, bias)


def linear_layers(layer: keras.Layer) -> list[Linear]:
    """Returns the `Linear` layers inside a layer."""
    return [part for part in keras_private.sublayers(layer) if isinstance(part, Linear)]


def swap(layer: keras.Layer, replacements: Mapping[keras.Layer, keras.Layer]) -> None:
    """Puts other layers in the place of layers, wherever an attribute holds these.

    The variables of a layer remain those that it was built with.

    Args:
      layer: the layer whose sublayers hold the attributes.
      replacements: the new layers, by the layer that is replaced.
    """
    for parent in keras_private.sublayers(layer):
        # `setattr` would make the new layer part of the parent's state, which is fixed by then.
        attributes = vars(parent)
        for name, value in attributes.items():
            if isinstance(value, keras.Layer) and value in replacements:
                attributes[name] = replacements[value]


@contextlib.contextmanager
def swapped(layer: keras.Layer, replacements: Mapping[keras.Layer, keras.Layer]) -> Iterator[None]:
    """Does what `swap` does, and undoes it at the end of the block."""
    swap(layer, replacements)
    try:
        yield
    finally:
        swap(layer, {new: old for old, new in replacements.items()})


def rounded(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Quantizes the rows of x.

    Args:
      x: float32 [R, I].

    Returns:
      The integers, int8 [R, I], and the number that 127 stands for in each row, float32 [R, 1].
    """
    # Maximum and minimum are read without writing a tensor of magnitudes to memory.
    largest = tf.maximum(
        tf.reduce_max(x, axis=1, keepdims=True), -tf.reduce_min(x, axis=1, keepdims=True)
    )
    largest = tf.maximum(largest, 1e-30)
    return tf.cast(tf.round(x * (LARGEST / largest)), tf.int8), largest


def product(rows: tf.Tensor, matrix: Any, largest: Any) -> tf.Tensor:
    """Adds a product of integer matrices to the current graph.

    Args:
      rows: int8 [R, I].
      matrix: int8 [I, O], constant, of magnitudes up to 64.
      largest: float32 [O], the number that 127 stands for in each column.

    Returns:
      float32 [R, O].
    """
    one = tf.constant(float(LARGEST))  # the integers of a row stand for themselves
    inputs = [tf.bitcast(rows, tf.qint8), tf.bitcast(matrix, tf.qint8), tf.zeros(largest.shape)]
    ranges = [one, one, *[tf.convert_to_tensor(largest)] * 2]  # only magnitudes matter
    operation = tf.compat.v1.get_default_graph().create_op(
        _OP,
        inputs + ranges,
        [tf.float32],
        name="product",
        attrs={
            "Tdevice_inputs": _types(inputs),
            "Thost_inputs": _types(ranges),
            "Tdevice_outputs": _types([one]),
            "Thost_outputs": _types([]),
            "T1": _type(tf.qint8),
            "T2": _type(tf.qint8),
            "Tbias": _type(tf.float32),
            "U": _type(tf.float32),
            "Tout": _type(tf.float32),
            "is_weight_const": tf.compat.v1.AttrValue(b=True),
            "is_bias_const": tf.compat.v1.AttrValue(b=False),
            "fused_ops": _list(s=[b"BiasAdd", b"Dequantize"]),
        },
    )
    (y,) = operation.outputs
    y.set_shape([rows.shape[0], largest.shape[0]])
    return y


def check() -> None:
    """Checks that this TensorFlow has products of 8-bit integers.

    Raises:
      UserError: it has none.
    """
    try:
        Int8Linear(np.ones((2, 3), np.float32))(tf.ones([1, 2]))
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise UserError(
            "--precision=int8: this TensorFlow has no products of 8-bit integers (oneDNN's, as the "
            "wheels for x86 have them): export with --precision=bfloat16"
        ) from error


def _type(kind: tf.DType) -> tf.compat.v1.AttrValue:
    return tf.compat.v1.AttrValue(type=kind.as_datatype_enum)


def _types(tensors: list[tf.Tensor]) -> tf.compat.v1.AttrValue:
    return _list(type=[tensor.dtype.as_datatype_enum for tensor in tensors])


def _list(**values: list) -> tf.compat.v1.AttrValue:
    return tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(**values))
