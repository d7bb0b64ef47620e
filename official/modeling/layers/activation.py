"""The activation functions that a config can name.

The two GELUs work out their slope on the way forward, in float32, and keep only that: under
bfloat16 a pass over float32 numbers is the faster one on a CPU, and the way back is one product.
Where nothing asks for the gradient the slope is never computed.
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
    """`x Phi(x)`, Phi the normal distribution (the erf form)."""
    z = ops.cast(x, accurate(x.dtype))
    gate = 0.5 * ops.erf(z * math.sqrt(0.5)) + 0.5
    density = ops.exp(-0.5 * (z * z)) * (1 / math.sqrt(2 * math.pi))
    slope = ops.cast(gate + z * density, x.dtype)
    return ops.cast(z * gate, x.dtype), lambda upstream: upstream * slope


# What a config's name stands for, also where nothing is learned: the backend's own function, which
# it may compute together with the product before it.
PLAIN = {
    "gelu_tanh": functools.partial(ops.gelu, approximate=True),
    "gelu": functools.partial(ops.gelu, approximate=False),
    "relu": ops.relu,
}

ACTIVATIONS = {
    # The tanh form of the releases of BERT, ALBERT and XLNet; the erf form of the PyTorch ports.
    "gelu_tanh": gelu_tanh,
    "gelu": gelu,
    "relu": ops.relu,
}
# What a pooler may have.
POOLER_ACTIVATIONS = {"tanh": ops.tanh, **ACTIVATIONS}
