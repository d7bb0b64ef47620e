"""Functions that bring their gradient with them, on every backend.

Some gradients are written out by hand in this package: automatic ones make several passes over
memory where one will do, or come in a form that optimizers read wrongly.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator

import keras
from keras import ops

_LEFT_OUT = contextvars.ContextVar("gradients_left_out", default=False)


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Within it these functions are their values alone, as in a graph that is never learned from.

    A function with its gradient is a border in the graph, across which a backend computes nothing
    at once: not a product with its bias and the activation after it, either.
    """
    token = _LEFT_OUT.set(True)
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)


def with_gradient(function):
    """Decorates a function of tensors that returns its value and its gradient.

    The function returns `(value, backward)`. `backward` takes the gradient of the value and
    returns one gradient for each argument given by position, None where an argument has none.
    Constants are given by keyword.
    """

    @functools.wraps(function)
    def wrapped(*tensors, **constants):
        if _LEFT_OUT.get():
            return function(*[ops.convert_to_tensor(tensor) for tensor in tensors], **constants)[0]

        @ops.custom_gradient
        def differentiable(*tensors):
            value, backward = function(*tensors, **constants)

            def gradient(*args, upstream=None):  # Backends differ in how they hand it over.
                return backward(args[-1] if upstream is None else upstream)

            return value, gradient

        return differentiable(*[_tensor(tensor) for tensor in tensors])

    return wrapped


def _tensor(x):
    """The value of a variable, which a differentiable function must not capture."""
    return ops.reshape(x, x.shape) if isinstance(x, keras.Variable) else x


def sum_rows(x):
    """Sums x [R, O] over its rows: [O].

    As a product with a row of ones, which is several times faster than a reduction on a CPU and
    sums bfloat16 in float32.
    """
    return ops.matmul(ops.ones((1, ops.shape(x)[0]), x.dtype), x)[0]
