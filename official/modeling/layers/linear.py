"""The affine map of the last axis.

Shapes: I input size, O output size, R rows.
"""

import keras
from keras import ops

from official.modeling.layers.gradient import sum_rows, with_gradient


def linear(x, kernel, bias=None):
    """`x @ kernel + bias` as one two-dimensional product, in the number type of `x`.

    Args:
        x: [..., I].
        kernel: [I, O].
        bias: [O]; None = there is none.

    Returns:
        [..., O].
    """
    flat = len(x.shape) == 2
    rows = x if flat else ops.reshape(x, (-1, kernel.shape[0]))  # [R, I]
    kernel = ops.cast(kernel, x.dtype)
    if bias is None:
        y = ops.matmul(rows, kernel)  # [R, O]
    else:
        y = _affine(rows, kernel, ops.cast(bias, x.dtype))
    return y if flat else ops.reshape(y, (*ops.shape(x)[:-1], kernel.shape[1]))


@with_gradient
def _affine(x, kernel, bias):
    def backward(upstream):
        return (
            ops.matmul(upstream, ops.transpose(kernel)),
            ops.matmul(ops.transpose(x), upstream),
            sum_rows(upstream),
        )

    # `ops.add` and not `+`: TensorFlow knows the sum with a bias as an operation of its own, which
    # it computes with the product, and an activation after it too.
    return ops.add(ops.matmul(x, kernel), bias), backward


class Linear(keras.Layer):
    """`linear` with its variables `kernel` [I, O] and, with `use_bias`, `bias` [O].

    `int8_linear` computes it where nothing is learned, a function from [..., I] to [..., O]; None =
    the layer computes it.
    """

    def __init__(self, input_size, output_size, *, initializer, name, use_bias=True, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.input_size = input_size
        self.output_size = output_size
        self.initializer = initializer
        self.use_bias = use_bias
        self.bias = None
        self.int8_linear = None

    def build(self, input_shape=None):
        """Makes the variables."""
        self.kernel = self.add_weight(
            (self.input_size, self.output_size), self.initializer, name="kernel"
        )
        if self.use_bias:
            self.bias = self.add_weight((self.output_size,), "zeros", name="bias")

    def call(self, x):
        """Maps x [..., I] to [..., O]."""
        if self.int8_linear is not None:
            return self.int8_linear(x)
        return linear(x, self.kernel, self.bias)
