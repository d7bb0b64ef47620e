"""The activation functions that a config can name.

The two GELUs compute their slope in the forward pass, in float32, and keep only the slope. The
backward pass is then one product. With bfloat16, a pass over float32 numbers is faster on a CPU.
The slope is not computed where no gradient is needed.
"""

import functools
import math

from keras import ops

from official.modeling.layers.gradient import with_gradient
from official.modeling.layers.precision import accurate


@with_gradient
def gelu_tanh(x):
    """`x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2` (Hendrycks and Gimpel 2016, section 2)."""
    z = ops.cast(x, accurate(x.dtype))
    a = math.sqrt(2 / math.pi)
    inner = z * (a + (a * 0.044715) * (z * z))
    gate = 0.5 * ops.tanh(inner) + 0.5
    # gate' = gate (1 - gate) 2 inner', and z inner' = 3 inner - 2 a z.
    slope = ops.cast(gate + (gate - gate * gate) * (6.0 * inner - (4 * a) * z), x.dtype)
    return ops.cast(z * gate, x.dtype), lambda upstream: upstream * slope


@with_gradient
def gelu(x):
    """`x Phi(x)`, where Phi is the distribution function of the normal law (the erf form)."""
    z = ops.cast(x, accurate(x.dtype))
    gate = 0.5 * ops.erf(z * math.sqrt(0.5)) + 0.5
    density = ops.exp(-0.5 * (z * z)) * (1 / math.sqrt(2 * math.pi))
    slope = ops.cast(gate + z * density, x.dtype)
    return ops.cast(z * gate, x.dtype), lambda upstream: upstream * slope


# The backend's own functions, for inference: a backend may fuse them with the product before them.
PLAIN = {
    "gelu_tanh": functools.partial(ops.gelu, approximate=True),
    "gelu": functools.partial(ops.gelu, approximate=False),
    "relu": ops.relu,
}

ACTIVATIONS = {
    # The releases of BERT, ALBERT and XLNet have the tanh form, the PyTorch ports the erf form.
    "gelu_tanh": gelu_tanh,
    "gelu": gelu,
    "relu": ops.relu,
}
# The activations of a pooler.
POOLER_ACTIVATIONS = {"tanh": ops.tanh, **ACTIVATIONS}
