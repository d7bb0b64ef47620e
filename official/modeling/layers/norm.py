"""Layer normalization, with or without an offset, and RMS normalization.

Shapes: D the normalized size, R rows.
"""

from keras import ops
from typing_extensions import override

from official.config.blocks import Norm
from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import accurate, one_pass, sum_rows, with_gradient
from official.modeling.types import DType, Tensor


class LayerNorm(Layer):
    """Normalizes the last axis to mean 0 and variance 1, then applies a scale and an offset.

    The variables are `scale` [D] and, with `use_offset`, `offset` [D]. Statistics are computed in
    float32 or float64. The output has the compute dtype of the layer.
    """

    def __init__(
        self,
        size: int,
        *,
        epsilon: float,
        use_offset: bool = True,
        name: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.size = size
        self.epsilon = epsilon
        self.use_offset = use_offset

    @override
    def build(self, input_shape=None):
        options = {"autocast": False, "dtype": accurate(self.compute_dtype)}
        self.scale = self.add_weight((self.size,), "ones", name="scale", **options)
        self.offsets = []
        if self.use_offset:
            self.offset = self.add_weight((self.size,), "zeros", name="offset", **options)
            self.offsets = [self.offset]

    def call(self, x: Tensor) -> Tensor:
        """Normalizes x [..., D]."""
        rows = ops.cast(ops.reshape(x, (-1, self.size)), self.compute_dtype)
        y = normalize(rows, self.scale, *self.offsets, epsilon=self.epsilon)
        return ops.reshape(y, ops.shape(x))


@with_gradient
def normalize(x: Tensor, scale: Tensor, *offset: Tensor, epsilon: float) -> Tensor:
    """Returns the layer norm of x [R, D] in the dtype of x, with its gradient."""
    y, mean, factor = _normalized(x, scale, *offset, epsilon=epsilon)

    def backward(upstream):
        of_x, aligned = _norm_gradient(upstream, x, mean, factor, scale)
        of_offset = [ops.cast(sum_rows(upstream), each.dtype) for each in offset]
        return of_x, sum_rows(aligned), *of_offset

    return y, backward


@one_pass
def _normalized(x: Tensor, scale: Tensor, *offset: Tensor, epsilon: float):
    """Returns the layer norm of x [R, D], and the mean and the factor of each row [R, 1]."""
    rows = ops.cast(x, scale.dtype)
    mean = ops.mean(rows, axis=-1, keepdims=True)
    centered = rows - mean
    factor = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
    y = centered * factor * scale
    return ops.cast(y + offset[0] if offset else y, x.dtype), mean, factor


@one_pass
def _norm_gradient(upstream: Tensor, x: Tensor, mean: Tensor, factor: Tensor, scale: Tensor):
    """Returns the gradients of x [R, D], and of the scale before the sum over rows [R, D]."""
    normal = (ops.cast(x, scale.dtype) - mean) * factor
    upstream = ops.cast(upstream, scale.dtype)
    scaled, aligned = upstream * scale, upstream * normal
    # A change of x also changes the mean and the variance of its row.
    of_x = (scaled - _row_means(scaled) - normal * _row_means(aligned * scale)) * factor
    return ops.cast(of_x, x.dtype), aligned


def _row_means(x: Tensor) -> Tensor:
    """Returns the means of the rows of x [R, D]: [R, 1].

    They are products with a column of ones, which a CPU computes faster than a compiled reduction.
    They are only for gradients, because a device may round the operands of products
    (TensorFloat-32).
    """
    size = x.shape[1]
    return ops.matmul(x, ops.full((size, 1), 1 / size, x.dtype))


class RMSNorm(Layer):
    """Divides the last axis by its root mean square, then applies a scale.

    There is no mean and no offset (Zhang and Sennrich 2019, section 4; T5). The variable is `scale`
    [D]. The mean square is computed in float32 or float64. The output has the compute dtype of the
    layer.
    """

    def __init__(
        self, size: int, *, epsilon: float, name: str | None = None, dtype: DType | None = None
    ):
        super().__init__(name=name, dtype=dtype)
        self.size = size
        self.epsilon = epsilon

    @override
    def build(self, input_shape=None):
        self.scale = self.add_weight(
            (self.size,),
            "ones",
            name="scale",
            autocast=False,
            dtype=accurate(self.compute_dtype),
        )

    def call(self, x: Tensor) -> Tensor:
        """Normalizes x [..., D]."""
        rows = ops.cast(ops.reshape(x, (-1, self.size)), self.compute_dtype)
        y = divide_by_rms(rows, self.scale, epsilon=self.epsilon)
        return ops.reshape(y, ops.shape(x))


@with_gradient
def divide_by_rms(x: Tensor, scale: Tensor, *, epsilon: float) -> Tensor:
    """Returns the RMS norm of x [R, D] in the dtype of x, with its gradient."""
    y, factor = _divided(x, scale, epsilon=epsilon)

    def backward(upstream):
        of_x, aligned = _division_gradient(upstream, x, factor, scale)
        return of_x, sum_rows(aligned)

    return y, backward


@one_pass
def _divided(x: Tensor, scale: Tensor, *, epsilon: float):
    """Returns the RMS norm of x [R, D], and the factor of each row [R, 1]."""
    rows = ops.cast(x, scale.dtype)
    factor = ops.rsqrt(ops.mean(ops.square(rows), axis=-1, keepdims=True) + epsilon)
    return ops.cast(rows * factor * scale, x.dtype), factor


@one_pass
def _division_gradient(upstream: Tensor, x: Tensor, factor: Tensor, scale: Tensor):
    """Returns the gradients of x [R, D], and of the scale before the sum over rows [R, D]."""
    normal = ops.cast(x, scale.dtype) * factor
    upstream = ops.cast(upstream, scale.dtype)
    aligned = upstream * normal
    # A change of x also changes the mean square of its row.
    of_x = (upstream * scale - normal * _row_means(aligned * scale)) * factor
    return ops.cast(of_x, x.dtype), aligned


# The norms that a config can name.
NORMS = {"layer": LayerNorm, "rms": RMSNorm}


def make_norm(
    norm: Norm, size: int, *, name: str | None = None, dtype: DType | None = None
) -> LayerNorm | RMSNorm:
    """Makes the norm that a part describes, for an axis of `size`."""
    options = {"use_offset": norm.bias} if norm.type == "layer" else {}
    return NORMS[norm.type](size, epsilon=norm.epsilon, name=name, dtype=dtype, **options)
