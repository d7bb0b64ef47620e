"""Matrix products with a transposed operand.

Shapes: R and O rows, I inner size; any number of leading axes, the same for both operands.
"""

import keras
from keras import ops

from official.modeling.layers import gradient

# With an option, Keras passes `einsum` on to TensorFlow, whose kernel reads an operand transposed.
# Without one, and in `matmul` of a transposed operand, the transposed operand is written to memory
# first: `official.distribution.numerics` turns off the rewrite that would avoid it.
_OPTIONS = {"optimize": "greedy"} if keras.backend.backend() == "tensorflow" else {}


def times_transposed(x, y):
    """Returns `x` times the transpose of `y`: [..., R, I] and [..., O, I] to [..., R, O]."""
    if gradient.is_left_out():
        # Here the rewrites are on, and the product is fused with the operations after it. If `x` is
        # a scaled output of `unstack` or `split`, it has to be the first one, as a query is: the
        # rewrite takes it for that.
        axes = list(range(len(y.shape)))
        return ops.matmul(x, ops.transpose(y, (*axes[:-2], axes[-1], axes[-2])))
    leading = "abcd"[: len(x.shape) - 2]
    return ops.einsum(f"{leading}ri,{leading}oi->{leading}ro", x, y, **_OPTIONS)


def transposed_times(x, y):
    """Returns the transpose of `x` times `y`: [..., I, R] and [..., I, O] to [..., R, O]."""
    leading = "abcd"[: len(x.shape) - 2]
    return ops.einsum(f"{leading}ir,{leading}io->{leading}ro", x, y, **_OPTIONS)
