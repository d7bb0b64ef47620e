"""An affine map of the last axis.

Shapes: I input size, O output size, R rows.
"""

import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops
from typing_extensions import override

from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import (
    missing_bias,
    sum_rows,
    times_transposed,
    transposed_times,
    with_gradient,
)
from official.modeling.types import DType, Initializer, Tensor


def linear(x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes `x @ kernel + bias` as one two-dimensional product, in the dtype of `x`.

    Args:
        x: [..., I].
        kernel: [I, O].
        bias: [O], or None.

    Returns:
        [..., O].
    """
    flat = len(x.shape) == 2
    rows = x if flat else ops.reshape(x, (-1, kernel.shape[0]))  # [R, I]
    kernel = ops.cast(kernel, x.dtype)
    if bias is None:
        bias = missing_bias(kernel.shape[1], x.dtype)
    if bias is None:
        y = ops.matmul(rows, kernel)  # [R, O]
    else:
        y = affine(rows, kernel, ops.cast(bias, x.dtype))
    return y if flat else ops.reshape(y, (*ops.shape(x)[:-1], kernel.shape[1]))


@with_gradient
def affine(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Returns x [R, I] times kernel [I, O] plus bias [O], with its gradient: [R, O]."""

    def backward(upstream):
        return (
            times_transposed(upstream, kernel),
            transposed_times(x, upstream),
            sum_rows(upstream),
        )

    # `ops.add` becomes TensorFlow's `BiasAdd`, which is fused with the product before it and the
    # activation after it. The operator `+` is not fused.
    return ops.add(ops.matmul(x, kernel), bias), backward


class Linear(Layer):
    """An affine map with the variables `kernel` [I, O] and, with `use_bias`, `bias` [O].

    Several maps of one input may be joined by column, so that one product computes them all. The
    variables have their number as `column_blocks`, so that optimizers that use norms of variables
    compute one norm for each map. The name of the layer contains the names of all maps (see
    `block_names`).

    Attributes:
        fuses_activation: whether a backend may compute the product, the bias and an activation
            after them in one pass. False for replacements of this layer that cannot.
        updates: {index of a column block: its `LowRank`, which is added to the kernel in training};
            see `official.modeling.layers.low_rank`.
    """

    fuses_activation = True
    updates: Mapping[int, Any] = types.MappingProxyType({})

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        initializer: Initializer,
        name: str | None = None,
        use_bias: bool = True,
        bias_initializer: Initializer = "zeros",
        column_blocks: int = 1,
        bias_blocks: Sequence[int] | None = None,
        dtype: DType | None = None,
    ):
        """Describes the layer.

        Args:
            input_size: I.
            output_size: O.
            initializer: initializer of the kernel.
            name: last part of the variables' paths.
            use_bias: whether there is a bias.
            bias_initializer: initializer of the bias.
            column_blocks: the number of maps of the same size that are joined; divides O.
            bias_blocks: with `use_bias`, the indices of the maps that have a bias; None = all.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.input_size = input_size
        self.output_size = output_size
        self.initializer = initializer
        self.use_bias = use_bias
        self.bias_initializer = bias_initializer
        self.column_blocks = column_blocks
        self.bias_blocks = None if bias_blocks is None else tuple(bias_blocks)
        self._bias: Any = None

    @override
    def build(self, input_shape=None):
        self._kernel = self.add_weight(
            (self.input_size, self.output_size), self.initializer, name="kernel"
        )
        self._kernel.column_blocks = self.column_blocks
        if self.use_bias:
            count = self.column_blocks if self.bias_blocks is None else len(self.bias_blocks)
            size = self.output_size // self.column_blocks * count
            self._bias = self.add_weight((size,), self.bias_initializer, name="bias")
            self._bias.column_blocks = count
        for update in self.updates.values():
            update.build()

    @property
    def kernel(self):
        """The kernel [I, O]: the variable, or its sum with the updates."""
        if not self.updates:
            return self._kernel
        blocks = ops.split(ops.convert_to_tensor(self._kernel), self.column_blocks, axis=1)
        for number, update in self.updates.items():
            blocks[number] = blocks[number] + update.product()
        return ops.concatenate(blocks, axis=1)

    @property
    def bias(self):
        """The bias [O], with zeros for maps without a bias; None = there is no bias."""
        if self._bias is None or self.bias_blocks is None:
            return self._bias
        known = ops.split(ops.convert_to_tensor(self._bias), len(self.bias_blocks))
        blocks = [ops.zeros_like(known[0])] * self.column_blocks
        for number, block in zip(self.bias_blocks, known, strict=True):
            blocks[number] = block
        return ops.concatenate(blocks)

    def call(self, x: Tensor) -> Tensor:
        """Maps x [..., I] to [..., O]."""
        return linear(x, self.kernel, self.bias)

    def by_columns(self, inputs, sizes):
        """Maps several inputs, each to its own columns of the output.

        Args:
            inputs: tensors [..., I] for the first blocks of columns; further columns are not
              computed.
            sizes: the number of columns of every block, O in sum.

        Returns:
            A tensor [..., size] for each input.
        """
        kernel = ops.cast(self.kernel, inputs[0].dtype)
        kernels = ops.split(kernel, np.cumsum(sizes[:-1]).tolist(), axis=1)
        biases = [None] * len(sizes)
        if self.bias is not None:
            biases = ops.split(self.bias, np.cumsum(sizes[:-1]).tolist())
        return [linear(*each) for each in zip(inputs, kernels, biases, strict=False)]


def block_names(name: str, count: int) -> Sequence[str]:
    """Returns the names of the `count` maps that a layer of this name joins by column."""
    return name.split("_") if count > 1 else [name]
