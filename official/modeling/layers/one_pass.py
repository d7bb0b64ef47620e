"""Chains of elementwise operations, computed in one pass over memory.

TensorFlow computes one operation after the other, each in a pass of its own. XLA compiles a chain
to one loop. The products of matrices stay outside: for them a CPU has faster kernels than XLA's.
`official.distribution.numerics` names XLA as the compiler; this module knows no backend.
"""

import functools
import math
from collections.abc import Callable

from official.modeling.layers import gradient

# From this number of elements on, passes over memory cost more than the start of compiled code.
SMALLEST = 1 << 16
# The assumed size of a dynamic dimension. In training this is the length of a batch, one of
# `recipe.bucket_lengths`.
_DYNAMIC_SIZE = 32

_compilers: list[Callable] = []  # at most one


def compile_with(compiler: Callable) -> None:
    """Sets the function that compiles the chains, which takes and returns a function of tensors."""
    _compilers[:] = [compiler]


def one_pass(function):
    """Decorates a function of tensors whose large results a compiler computes in one pass.

    The decorated function is the same function. It is compiled where there is a compiler
    (`compile_with`) and the largest tensor has at least `SMALLEST` elements. It is not compiled in
    a graph without gradients, where the backend fuses its operations with a product.

    Shapes may have dynamic dimensions. The function is then compiled when the graph runs, once for
    each shape.

    Args:
        function: a pure function of tensors, and of constants by name. A constant `shape` is that
            of the result, where it is larger than the tensors.
    """
    compiled = functools.cache(lambda compiler: compiler(function))

    @functools.wraps(function)
    def run(*tensors, **constants):
        shapes = [tuple(tensor.shape) for tensor in tensors]
        shapes += [constants["shape"]] if "shape" in constants else []
        large = not gradient.is_left_out() and _largest(shapes) >= SMALLEST
        chosen = compiled(*_compilers) if large and _compilers else function
        return chosen(*tensors, **constants)

    return run


def _largest(shapes):
    """Returns the largest number of elements; a dynamic dimension counts as `_DYNAMIC_SIZE`."""
    known = (
        [size if isinstance(size, int) else _DYNAMIC_SIZE for size in shape] for shape in shapes
    )
    return max(map(math.prod, known))
