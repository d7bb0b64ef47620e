"""Products of integers of 8 bits: y = x W + b, with W as it is stored and x rounded when it comes.

Both are symmetric. W is scale * integer with a scale for each output channel, and so is x with one
for each row: 127 stands for the largest number of the row, so that what is found for a row depends
on no other. The sums of the products are exact; they become float32, are scaled and get the bias.

The integers of W are at most 64, a range of 7 bits. A CPU without VNNI (AVX2 alone) adds two
products in 16 bits, of x + 128 and W: 2 * 255 * 64 fits, 2 * 255 * 127 is cut off without a word.

The product is oneDNN's, `_QuantizedMatMul`, which TensorFlow's wheels for x86 have. It has no
wrapper in Python, so it is put into a graph by its name. It packs a matrix when it is first used,
and keeps it: the matrix must not change.

Shapes: R rows, I input size, O output size.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from official.utils.errors import UserError

LARGEST = 127
LARGEST_WEIGHT = 64
_OP = "_QuantizedMatMul"


def quantised(
    array: np.ndarray, axis: int, integer: int = LARGEST
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds a matrix to integers of 8 bits.

    Args:
      array: float32 [I, O].
      axis: what has a scale of its own each.
      integer: what the largest number becomes.

    Returns:
      int8 [I, O], and float32 [1, O] or [I, 1].
    """
    largest = np.abs(array).max(axis=1 if axis == 0 else 0, keepdims=True)
    scale = np.where(largest > 0, largest / integer, 1).astype(np.float32)
    return np.rint(array / scale).astype(np.int8), scale


class Linear:
    """An affine map with the weights of a layer, whose place it can take (`Linear.int8_linear`).

    Attributes:
      integers: variable int8 [I, O].
      largest: variable float32 [O], what 127 stands for in each column.
    """

    def __init__(self, kernel: np.ndarray, bias: Any = None):
        """Rounds a kernel [I, O].

        Args:
          kernel: float32 [I, O].
          bias: variable float32 [O]; None = there is none.
        """
        integers, scale = quantised(kernel, -1, LARGEST_WEIGHT)
        self.integers = tf.Variable(integers, trainable=False)
        self.largest = tf.Variable(scale[0] * LARGEST, trainable=False)
        self._bias = bias
        self._graph = tf.function(self._map, autograph=False)  # of which the product is

    def matrix(self) -> tf.Tensor:
        """What the integers stand for: float32 [I, O]."""
        return tf.cast(self.integers, tf.float32) * (self.largest / LARGEST)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Maps x float32 [..., I] to [..., O]."""
        return self._graph(x) if tf.executing_eagerly() else self._map(x)

    def _map(self, x: tf.Tensor) -> tf.Tensor:
        size, width = self.integers.shape
        rows = tf.reshape(x, [-1, size])
        integers, scale = rounded(rows)
        y = product(integers, self.integers, self.largest) * scale
        if self._bias is not None:
            y += self._bias
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [width]], axis=0))


def rounded(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Rounds rows: x float32 [R, I] to int8 [R, I], and the scale of each row, float32 [R, 1]."""
    # No pass over the magnitudes is written to memory.
    largest = tf.maximum(
        tf.reduce_max(x, axis=1, keepdims=True), -tf.reduce_min(x, axis=1, keepdims=True)
    )
    scale = tf.maximum(largest, 1e-30) / LARGEST
    return tf.cast(tf.round(x * (1 / scale)), tf.int8), scale


def product(rows: tf.Tensor, matrix: Any, largest: Any) -> tf.Tensor:
    """The product of integers, in a graph.

    Args:
      rows: int8 [R, I].
      matrix: int8 [I, O], always the same, of magnitudes up to 64.
      largest: float32 [O], what 127 stands for in each column.

    Returns:
      float32 [R, O].
    """
    one = tf.constant(float(LARGEST))  # 127 of a row is 127
    given = [tf.bitcast(rows, tf.qint8), tf.bitcast(matrix, tf.qint8), tf.zeros(largest.shape)]
    ranges = [one, one, *[tf.convert_to_tensor(largest)] * 2]  # only magnitudes matter
    made = tf.compat.v1.get_default_graph().create_op(
        _OP,
        given + ranges,
        [tf.float32],
        name="product",
        attrs={
            "Tdevice_inputs": _types(given),
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
    (y,) = made.outputs
    y.set_shape([rows.shape[0], largest.shape[0]])
    return y


def check() -> None:
    """Computes a small product.

    Raises:
      UserError: this TensorFlow cannot.
    """
    try:
        Linear(np.ones((2, 3), np.float32))(tf.ones([1, 2]))
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
