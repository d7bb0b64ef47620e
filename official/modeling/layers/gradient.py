"""Functions with their own gradient, on every backend.

Some gradients of this package are written by hand. The automatic ones make several passes over
memory where one is enough, or have a form that optimizers misread.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

_LEFT_OUT = contextvars.ContextVar("gradients_left_out", default=False)


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Leaves the gradients out inside the block, for graphs that are never trained.

    A backend does not fuse operations across a function with its own gradient, for example a
    product, its bias and the activation after it.
    """
    token = _LEFT_OUT.set(True)
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)


def is_left_out() -> bool:
    """Whether the code runs inside `left_out`."""
    return _LEFT_OUT.get()


def with_gradient(function):
    """Decorates a function of tensors that returns its value and its gradient.

    The function returns `(value, backward)`. `backward` takes the gradient of the value and returns
    a gradient for each positional argument, or None for an argument without a gradient. If the
    value is a tuple, `backward` takes a gradient for each of its tensors. Keyword arguments are
    constants.
    """

    @functools.wraps(function)
    def wrapped(*tensors, **constants):
        if is_left_out():
            return function(*[ops.convert_to_tensor(tensor) for tensor in tensors], **constants)[0]

        shapes = []

        @ops.custom_gradient
        def differentiable(*tensors):
            value, backward = function(*tensors, **constants)
            if _ONE_VALUE and isinstance(value, tuple):
                shapes[:] = [tuple(part.shape) for part in value]
                value, backward = _joined(value), _of_joined(backward, shapes)

            def gradient(*args, upstream=None):  # Backends pass it differently.
                if isinstance(value, tuple):
                    return backward(*(args if len(args) > 1 else args[0]))
                return backward(args[-1] if upstream is None else upstream)

            return value, gradient

        result = differentiable(*[_tensor(tensor) for tensor in tensors])
        return _split(result, shapes) if shapes else result

    return wrapped


# In Keras for PyTorch, a function with its own gradient has one value.
_ONE_VALUE = keras.backend.backend() == "torch"


def _joined(parts):
    """Joins tensors of one dtype in a line."""
    return ops.concatenate([ops.reshape(part, (-1,)) for part in parts])


def _split(line, shapes):
    """Returns the tensors of `_joined`, which have these shapes."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1].tolist()
    parts = zip(ops.split(line, ends), shapes, strict=True)
    return tuple(ops.reshape(part, shape) for part, shape in parts)


def _of_joined(backward, shapes):
    """Returns the gradient of joined values from that of the tensors."""
    return lambda upstream: backward(*_split(upstream, shapes))


def _tensor(x):
    """Returns the value of a variable; a differentiable function must not capture the variable."""
    return ops.reshape(x, x.shape) if isinstance(x, keras.Variable) else x


def sum_rows(x):
    """Sums x [R, O] over its rows: [O].

    The sum is a product with a row of ones. On a CPU this is several times faster than a reduction,
    and it sums bfloat16 in float32.
    """
    return ops.matmul(ops.ones((1, ops.shape(x)[0]), x.dtype), x)[0]
