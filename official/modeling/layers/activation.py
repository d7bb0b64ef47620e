"""The activation functions that a config can name.

Each takes `x`; in training, the dropout mask of the result; and `fused`, whether a backend may
compute it together with the product before it. The GELUs and the SiLU compute their derivative in
the forward pass, in float32, and keep only the derivative. The backward pass is then one product.
Without gradients the derivative is not computed, and with `fused` the backend's function is used in
float32: LiteRT has a GELU, but no erf.
"""

import functools
import math

import keras
from keras import ops

from official.modeling.layers.kernels import accurate, context, one_pass, with_gradient


def _activation(formula):
    """Returns an activation.

    Args:
        formula: a function from z to the value and the derivative at z, elementwise.
    """

    @one_pass
    def value_and_slope(x, *kept, scale):
        both = formula(ops.cast(x, accurate(x.dtype)))
        if kept:
            both = [ops.where(kept[0], y * scale, 0) for y in both]
        return tuple(ops.cast(y, x.dtype) for y in both)

    @with_gradient
    def activation(x, *kept, scale):
        value, slope = value_and_slope(x, *kept, scale=scale)
        return value, lambda upstream: (_product(upstream, slope), *[None for _ in kept])

    @functools.wraps(formula)
    def activate(x, kept=None, rate=0.0, fused=True):
        if kept is not None:
            return activation(x, kept, scale=1 / (1 - rate))
        in_float32 = keras.backend.standardize_dtype(x.dtype) == "float32"
        if fused and in_float32 and not context().gradients:
            return PLAIN[formula.__name__](x)
        return activation(x, scale=1.0)

    return activate


@one_pass
def _product(x, y):
    """Returns x times y, computed in float32, because TensorFlow's bfloat16 products are slower."""
    return ops.cast(ops.cast(x, accurate(x.dtype)) * ops.cast(y, accurate(y.dtype)), x.dtype)


@_activation
def gelu_tanh(z):
    """`x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2` (Hendrycks and Gimpel 2016, section 2)."""
    a = math.sqrt(2 / math.pi)
    inner = z * (a + (a * 0.044715) * (z * z))
    gate = 0.5 * ops.tanh(inner) + 0.5
    # gate' = gate (1 - gate) 2 inner', and z inner' = 3 inner - 2 a z.
    return z * gate, gate + (gate - gate * gate) * (6.0 * inner - (4 * a) * z)


@_activation
def gelu(z):
    """`x Phi(x)`, where Phi is the standard normal distribution function (the erf form)."""
    gate = 0.5 * ops.erf(z * math.sqrt(0.5)) + 0.5
    density = ops.exp(-0.5 * (z * z)) * (1 / math.sqrt(2 * math.pi))
    return z * gate, gate + z * density


@_activation
def silu(z):
    """`x sigmoid(x)` (Hendrycks and Gimpel 2016, section 2)."""
    gate = ops.sigmoid(z)
    value = z * gate
    return value, gate + value * (1 - gate)


@_activation
def _relu(z):
    return ops.relu(z), ops.cast(z > 0, z.dtype)


def relu(x, kept=None, rate=0.0, fused=True):
    """`max(x, 0)`."""
    return ops.relu(x) if kept is None else _relu(x, kept, rate)


# The backend's functions, for inference: a backend may fuse them with the product before them.
# TensorFlow's SiLU has a gradient that a SavedModel keeps, and that names a constant of each call:
# after equal constants of a graph are merged, the named constant may be missing.
PLAIN = {
    "gelu_tanh": functools.partial(ops.gelu, approximate=True),
    "gelu": functools.partial(ops.gelu, approximate=False),
    "relu": ops.relu,
    "silu": lambda x: x * ops.sigmoid(x),
}

ACTIVATIONS = {
    # The releases of BERT, ALBERT and XLNet have the tanh form, the PyTorch ports the erf form.
    "gelu_tanh": gelu_tanh,
    "gelu": gelu,
    "relu": relu,
    "silu": silu,
}
# The activations of a pooler.
POOLER_ACTIVATIONS = {"tanh": ops.tanh, **ACTIVATIONS}
