"""Vectors of words from their characters (Kim et al. 2016; Peters et al. 2018, section 3.2).

Shapes: W words, K characters of a word, E character size, F convolutions of all widths, P the size
of a word's vector.
"""

import keras
from keras import ops
from typing_extensions import override

from official.config.encoders import BilmConfig
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import take_rows
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.types import DType, Tensor

NUM_CHARACTERS = 261  # The ids are 1 to 261; 0 = no word.
_ACTIVATIONS = {"relu": ops.relu, "tanh": ops.tanh}


class CharacterCNN(Layer):
    """Convolutions over the characters of a word, highway layers, and a projection.

    The variable `table` [261, E] has the vectors of the characters.
    """

    config: BilmConfig

    def __init__(
        self, config: BilmConfig, *, rng: Draws, name: str | None = None, dtype: DType | None = None
    ):
        """Describes the layer.

        Args:
            config: `BilmConfig`.
            rng: `Draws` of the initial weights.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.config = config
        self.initializer = RandomWeights("uniform", 1.0, rng)
        size = sum(number for _, number in config.filters)
        self.convolutions = [
            Convolution(
                config.character_size,
                width,
                number,
                activation=config.activation,
                rng=rng,
                name=f"convolution_{width}",
                dtype=dtype,
            )
            for width, number in config.filters
        ]
        self.highways = [
            Highway(size, rng=rng, name=f"highway_{i}", dtype=dtype)
            for i in range(config.highway_layers)
        ]
        self.projection = Linear(
            size,
            config.projection_size,
            initializer=RandomWeights("normal", size**-0.5, rng),
            name="projection",
            dtype=dtype,
        )

    @override
    def build(self, input_shape=None):
        shape = NUM_CHARACTERS, self.config.character_size
        self.table = self.add_weight(shape, self.initializer, name="table", autocast=False)
        for layer in (*self.convolutions, *self.highways, self.projection):
            layer.build()

    def call(self, character_ids: Tensor) -> Tensor:
        """Maps character_ids int [..., K] to the vectors of words: [..., P].

        The id 0 has a zero vector.
        """
        leading = ops.shape(character_ids)[:-1]
        ids = ops.reshape(character_ids, (-1, character_ids.shape[-1]))  # [W, K]
        vectors = take_rows(self.table, ops.maximum(ids - 1, 0))
        vectors = ops.where(ids[:, :, None] > 0, vectors, 0)
        vectors = ops.cast(vectors, self.compute_dtype)  # [W, K, E]
        x = ops.concatenate([layer(vectors) for layer in self.convolutions], axis=-1)  # [W, F]
        for highway in self.highways:
            x = highway(x)
        return ops.reshape(self.projection(x), (*leading, self.config.projection_size))


class Convolution(Layer):
    """The convolutions of one width, max pooling over all positions, and an activation.

    The variables are `kernel` [width, E, number] and `bias` [number]. Padding takes part in the
    pooling.
    """

    def __init__(
        self,
        size: int,
        width: int,
        number: int,
        *,
        activation: str,
        rng: Draws,
        name: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.shape = (width, size, number)
        self.activation = _ACTIVATIONS[activation]
        if activation == "tanh":
            self.initializer = RandomWeights("normal", (width * size) ** -0.5, rng)
        else:
            self.initializer = RandomWeights("uniform", 0.05, rng)

    @override
    def build(self, input_shape=None):
        self.kernel = self.add_weight(self.shape, self.initializer, name="kernel")
        self.bias = self.add_weight((self.shape[-1],), "zeros", name="bias")

    def call(self, x: Tensor) -> Tensor:
        """Maps x [W, K, E] to [W, number]."""
        values = ops.conv(x, self.kernel, padding="valid", data_format="channels_last")
        return self.activation(ops.max(values, axis=1) + self.bias)


class Highway(Layer):
    """g relu(x W + b) + (1 - g) x, with the gate g = sigmoid(x V + c) (Srivastava et al. 2015).

    The bias of the gate is -2 at first, so that the layer almost copies its input. (The release
    names this gate `carry`, although it is the weight of the transformed input.)
    """

    def __init__(
        self, size: int, *, rng: Draws, name: str | None = None, dtype: DType | None = None
    ):
        super().__init__(name=name, dtype=dtype)
        normal = RandomWeights("normal", size**-0.5, rng)
        bias = keras.initializers.Constant(-2.0)
        self.gate = Linear(
            size, size, initializer=normal, bias_initializer=bias, name="gate", dtype=dtype
        )
        self.transform = Linear(size, size, initializer=normal, name="transform", dtype=dtype)

    @override
    def build(self, input_shape=None):
        self.gate.build()
        self.transform.build()

    def call(self, x: Tensor) -> Tensor:
        """Maps x [W, F] to [W, F]."""
        gate = ops.sigmoid(self.gate(x))
        return gate * ops.relu(self.transform(x)) + (1 - gate) * x
