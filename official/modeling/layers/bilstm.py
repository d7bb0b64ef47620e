"""A bidirectional long short-term memory (Graves and Schmidhuber, 2005), without a projection.

Shapes: B batch, T length, I input size, C cells of each direction.
"""

from keras import ops

from official.modeling.layers.base import Layer
from official.modeling.layers.lstm import ProjectedLSTM
from official.modeling.layers.random import RandomWeights
from official.utils import keras_private


class BiLSTM(Layer):
    """Two LSTMs, with the variables `forward/...` and `backward/...`; see `lstm`.

    The initial weights are uniform (Glorot and Bengio, 2010), and the forget gates have the bias 1.

    Args:
        input_size: I.
        cell_size: C.
        seed: `Draws` of the initial weights.
        name: first part of the variables' paths.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(self, input_size, cell_size, *, seed, name="bilstm", dtype=None):
        super().__init__(name=name, dtype=dtype)
        glorot = RandomWeights("glorot", None, seed)
        self.directions = [
            ProjectedLSTM(
                input_size,
                cell_size,
                None,
                cell_clip=0.0,
                projection_clip=0.0,
                initializer=glorot,
                name=direction,
                dtype=self.dtype_policy,
            )
            for direction in ("forward", "backward")
        ]

    def build(self, input_shape=None):
        """Creates the variables."""
        for lstm in self.directions:
            lstm.build()

    def call(self, x, real=None):
        """Reads each row in both directions.

        Args:
            x: [B, T, I].
            real: bool [B, T], False for padding, which leaves the states as they are and has the
                output 0; None = the mask that Keras keeps with `x`, or there is none.

        Returns:
            The outputs of the forward direction, then those of the backward one: [B, T, 2 C].
        """
        forward, backward = self.directions
        real = keras_private.mask_of(x) if real is None else real
        outputs, _ = forward(x, real)
        reversed_real = None if real is None else ops.flip(real, axis=1)
        reversed_outputs, _ = backward(ops.flip(x, axis=1), reversed_real)
        return ops.concatenate([outputs, ops.flip(reversed_outputs, axis=1)], axis=-1)
