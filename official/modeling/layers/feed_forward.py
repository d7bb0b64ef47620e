"""The position-wise feed-forward network.

Shapes: B batch, T length, D hidden, F intermediate.
"""

from keras import ops

from official.modeling.layers.activation import ACTIVATIONS, PLAIN
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import draw, dropout
from official.modeling.layers.linear import Linear


class FeedForward(Layer):
    """Two affine maps with an activation between them: D to F and back to D.

    `dropout` is the rate for the activations. Transformer-XL uses it, BERT does not. With
    `share_dropout` all positions of a sequence share its mask. With `gated`
    the activation is that of a gate, another map of D to F, and the product of gate and inner map
    is mapped back (Shazeer 2020, section 2; T5 1.1).
    """

    def __init__(
        self,
        size,
        intermediate_size,
        *,
        activation,
        initializer,
        name=None,
        output_initializer=None,
        dropout=0.0,
        share_dropout=False,
        use_bias=True,
        gated=False,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.dropout = dropout
        self.dropout_axis = 1 if share_dropout else None
        self.activation = ACTIVATIONS[activation]
        # The backend's own activations are accurate to float32 only.
        exact = self.compute_dtype == "float64"
        self.plain_activation = (ACTIVATIONS if exact else PLAIN)[activation]
        options = {"use_bias": use_bias, "dtype": dtype}
        self.inner = Linear(
            size, intermediate_size, initializer=initializer, name="inner", **options
        )
        self.gate = None
        if gated:
            self.gate = Linear(
                size, intermediate_size, initializer=initializer, name="gate", **options
            )
        self.outer = Linear(
            intermediate_size,
            size,
            initializer=output_initializer or initializer,
            name="outer",
            **options,
        )

    def build(self, input_shape=None):
        """Creates the variables."""
        for layer in (self.inner, self.gate, self.outer):
            if layer is not None:
                layer.build()

    def call(self, x, rng=None, training=None):
        """Maps x [B, T, D] to [B, T, D]; see `Layer.draws`."""
        rng = self.draws(rng, training)
        if self.gate is not None:
            inner = self.activation(self.gate(x)) * self.inner(x)
            return self.outer(dropout(inner, self.dropout, rng, self.dropout_axis))
        if rng is None:
            # Two-dimensional rows leave no reshape between product, bias and activation, so that a
            # backend can fuse them. Where it cannot, our formula makes fewer passes over memory.
            rows = ops.reshape(x, (-1, x.shape[-1]))
            fused = self.inner.fuses_activation
            activation = self.plain_activation if fused else self.activation
            rows = self.outer(activation(self.inner(rows)))
            return ops.reshape(rows, ops.shape(x))
        inner = self.inner(x)
        kept = draw(ops.shape(inner), self.dropout, rng, self.dropout_axis)
        return self.outer(self.activation(inner, kept, self.dropout))
