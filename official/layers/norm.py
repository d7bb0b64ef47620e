"""Layer normalisation.

Shapes: D the normalised size.
"""

import keras
from keras import ops

from official.layers.precision import accurate


class LayerNorm(keras.Layer):
    """Mean 0 and variance 1 over the last axis, then `scale` [D] and `offset` [D].

    Statistics are taken in float32 whatever the type of the input, which the output keeps.
    """

    def __init__(self, size, *, epsilon, name, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.size = size
        self.epsilon = epsilon

    def build(self, input_shape=None):
        """Makes the variables."""
        self.scale = self.add_weight((self.size,), "ones", name="scale", autocast=False)
        self.offset = self.add_weight((self.size,), "zeros", name="offset", autocast=False)

    def call(self, x):
        """Normalises x [..., D]."""
        y = ops.cast(x, accurate(self.compute_dtype))
        y = y - ops.mean(y, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(y), axis=-1, keepdims=True)
        y = y * ops.rsqrt(variance + self.epsilon) * self.scale + self.offset
        return ops.cast(y, self.compute_dtype)
