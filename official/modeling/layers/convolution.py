"""A convolution of the embeddings parallel to the first layer (DeBERTa-v2; He et al. 2021).

Shapes: B batch, T length, N heads, D hidden, W kernel size.
"""

from keras import ops
from typing_extensions import override

from official.modeling.layers.activation import POOLER_ACTIVATIONS
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import dropout
from official.modeling.layers.linear import Linear
from official.modeling.layers.norm import LayerNorm
from official.modeling.layers.random import Draws
from official.modeling.types import DType, Initializer, Tensor


class TokenConvolution(Layer):
    """Adds the convolution of x to y: norm(y + activation(dropout(convolution(x)))).

    The convolution of a token reads neighboring tokens that it may attend to, and 0 in place of
    others. It is one product; the rows of its kernel [W D, D] begin with the leftmost neighbor.
    """

    def __init__(
        self,
        size: int,
        kernel_size: int,
        *,
        activation: str,
        dropout: float,
        epsilon: float,
        initializer: Initializer,
        name: str | None = None,
        dtype: DType | None = None,
    ):
        """Describes the layer.

        Args:
            size: D.
            kernel_size: W, odd.
            activation: the name of the activation, one of `POOLER_ACTIVATIONS`.
            dropout: dropout rate of the convolution.
            epsilon: epsilon of the norm.
            initializer: initializer of the kernel.
            name: last part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.kernel_size = kernel_size
        self.activation = POOLER_ACTIVATIONS[activation]
        self.dropout = dropout
        self.taps = Linear(
            kernel_size * size, size, initializer=initializer, name="taps", dtype=dtype
        )
        self.norm = LayerNorm(size, epsilon=epsilon, name="norm", dtype=dtype)

    @override
    def build(self, input_shape=None):
        self.taps.build()
        self.norm.build()

    def call(
        self,
        x: Tensor,
        y: Tensor,
        attention_mask: Tensor | None = None,
        rng: Draws | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Adds the convolution of x [B, T, D] to y [B, T, D].

        Args:
            x: [B, T, D].
            y: [B, T, D].
            attention_mask: bool [B or 1, 1, 1 or T, T], True = may attend; None = all.
            rng: `Draws`, or None for inference.
            training: whether Keras trains; see `Layer.draws`.
        """
        rng = self.draws(rng, training)
        reach = self.kernel_size // 2
        batch, length, size = ops.shape(x)
        padded = ops.pad(x, ((0, 0), (reach, reach), (0, 0)))
        taps = []
        for offset in range(-reach, reach + 1):
            tap = ops.slice(padded, (0, reach + offset, 0), (batch, length, size))
            if attention_mask is not None:
                tap = ops.where(_sees(attention_mask, offset, length), tap, 0)
            taps.append(tap)
        added = self.taps(ops.concatenate(taps, axis=-1))
        return self.norm(y + self.activation(dropout(added, self.dropout, rng)))


def _sees(attention_mask: Tensor, offset: int, length) -> Tensor:
    """Returns whether each token may attend to the token `offset` later: bool [B or 1, T, 1].

    If there is no such token, the value is arbitrary.
    """
    mask = attention_mask[:, 0]  # [B or 1, 1 or T, T]
    others = ops.clip(ops.arange(length, dtype="int32") + offset, 0, length - 1)
    if mask.shape[1] == 1:
        return ops.expand_dims(ops.take(mask[:, 0], others, axis=1), 2)
    return ops.take_along_axis(mask, ops.expand_dims(others, (0, 2)), axis=2)
