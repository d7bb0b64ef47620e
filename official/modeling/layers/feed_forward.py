"""The position-wise feed-forward network.

Shapes: B batch, T length, D hidden, F intermediate.
"""

import keras
from keras import ops

from official.modeling.layers.activation import ACTIVATIONS, PLAIN
from official.modeling.layers.dropout import dropout
from official.modeling.layers.linear import Linear


class FeedForward(keras.Layer):
    """Two affine maps with an activation between them: D to F and back to D.

    `dropout` is that of the activations, which Transformer-XL has and BERT has not.
    """

    def __init__(
        self,
        size,
        intermediate_size,
        *,
        activation,
        initializer,
        name,
        output_initializer=None,
        dropout=0.0,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.dropout = dropout
        self.activation = ACTIVATIONS[activation]
        # TensorFlow's own are exact to float32.
        exact = self.compute_dtype == "float64"
        self.plain_activation = (ACTIVATIONS if exact else PLAIN)[activation]
        self.inner = Linear(
            size, intermediate_size, initializer=initializer, name="inner", dtype=dtype
        )
        self.outer = Linear(
            intermediate_size,
            size,
            initializer=output_initializer or initializer,
            name="outer",
            dtype=dtype,
        )

    def build(self, input_shape=None):
        """Makes the variables."""
        self.inner.build()
        self.outer.build()

    def call(self, x, rng=None):
        """Maps x [B, T, D] to [B, T, D]."""
        if rng is None:
            # Nothing stands between product, bias and activation: a backend may do them at once.
            rows = ops.reshape(x, (-1, x.shape[-1]))
            # Not so where something else computes the product: our formula has fewer passes then.
            activation = (
                self.plain_activation if self.inner.int8_linear is None else self.activation
            )
            rows = self.outer(activation(self.inner(rows)))
            return ops.reshape(rows, ops.shape(x))
        return self.outer(dropout(self.activation(self.inner(x)), self.dropout, rng))
