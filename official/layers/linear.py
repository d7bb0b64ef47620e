"""The affine map of the last axis.

Shapes: I input size, O output size.
"""

import keras
from keras import ops


def linear(x, kernel, bias=None):
    """`x @ kernel + bias` as one two-dimensional product, in the number type of `x`.

    Args:
        x: [..., I].
        kernel: [I, O].
        bias: [O] or None.

    Returns:
        [..., O].
    """
    input_size, output_size = kernel.shape
    y = ops.matmul(ops.reshape(x, (-1, input_size)), ops.cast(kernel, x.dtype))  # [rows, O]
    if bias is not None:
        y = y + ops.cast(bias, x.dtype)
    return ops.reshape(y, (*ops.shape(x)[:-1], output_size))


class Linear(keras.Layer):
    """`linear` with its variables `kernel` [I, O] and `bias` [O]."""

    def __init__(self, input_size, output_size, *, initializer, name, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.input_size = input_size
        self.output_size = output_size
        self.initializer = initializer

    def build(self, input_shape=None):
        """Makes the variables."""
        self.kernel = self.add_weight(
            (self.input_size, self.output_size), self.initializer, name="kernel"
        )
        self.bias = self.add_weight((self.output_size,), "zeros", name="bias")

    def call(self, x):
        """Maps x [..., I] to [..., O]."""
        return linear(x, self.kernel, self.bias)
