"""A learned weighted sum of the layers of an encoder.

The formula of ELMo (Peters et al., 2018, section 3.3, equation 1): mix = gamma * sum over k of
softmax(w)[k] * h[k], over the token layer and all other layers. At the start w = 0 and gamma = 1,
so it is the mean of the layers.

Shapes: B batch, T length, D hidden, K layers with the token layer (L + 1 for an encoder of L
layers).
"""

from collections.abc import Sequence

from keras import ops
from typing_extensions import override

from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import accurate
from official.modeling.types import DType, Tensor
from official.utils.errors import UserError

_EPSILON = 1e-12  # added to variances, as in the release of ELMo


class LayerMix(Layer):
    """The weighted sum of K layers, with the variables `weights` [K] and `gamma` [].

    With `norm` 'layer' or 'token', each layer is normalized before the sum, without scale and
    offset:

    * 'layer' = one mean and one variance over all real positions, rows and features of the layer,
      as in the release of ELMo. The vectors of a text then depend on the batch;
    * 'token' = a mean and a variance for each position;
    * 'none' = no norm.
    """

    def __init__(
        self, count: int, *, norm: str = "none", name: str = "mix", dtype: DType | None = None
    ):
        """Describes a mix; `build()` creates its variables.

        Args:
            count: K.
            norm: 'none', 'layer' or 'token'.
            name: first part of the variables' paths.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.count = count
        self.norm = norm

    @override
    def build(self, input_shape=None):
        options = {"autocast": False, "dtype": accurate(self.compute_dtype)}
        self.layer_weights = self.add_weight((self.count,), "zeros", name="weights", **options)
        self.gamma = self.add_weight((), "ones", name="gamma", **options)

    def call(self, states: Sequence[Tensor], padding_mask: Tensor | None = None) -> Tensor:
        """Returns the weighted sum of the layers: [B, T, D].

        Args:
            states: K tensors [B, T, D], the token layer first.
            padding_mask: bool [B, T], False for padding; None = there is no padding.

        Raises:
            UserError: the number of layers is not K.
        """
        if len(states) != self.count:
            raise UserError(f"{self.name}: expected {self.count} layers, got {len(states)}")
        factors = self.gamma * ops.softmax(self.layer_weights)  # [K]
        states = [self._normalized(ops.cast(x, factors.dtype), padding_mask) for x in states]
        total = states[0] * factors[0]
        for k in range(1, self.count):
            total = total + states[k] * factors[k]
        return ops.cast(total, self.compute_dtype)

    def squared_weights(self) -> Tensor:
        """Returns the squared norm of the weights before the softmax, for a penalty: a scalar."""
        return ops.sum(ops.square(self.layer_weights))

    def _normalized(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        """Normalizes a layer [B, T, D] to mean 0 and variance 1, by `norm`."""
        if self.norm == "none":
            return x
        if self.norm == "token":
            centered = x - ops.mean(x, axis=-1, keepdims=True)
            variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
            return centered * ops.rsqrt(variance + _EPSILON)
        if padding_mask is None:
            padding_mask = ops.ones(ops.shape(x)[:2], "bool")
        real = ops.cast(padding_mask, x.dtype)[:, :, None]  # [B, T, 1]
        count = ops.maximum(ops.sum(real), 1) * x.shape[-1]
        centered = x - ops.sum(x * real) / count
        variance = ops.sum(ops.square(centered) * real) / count
        return centered * ops.rsqrt(variance + _EPSILON)
