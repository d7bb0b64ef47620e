"""Fast implementations of common operations, with gradients written by hand.

| here                                | plain equivalent                                           |
|-------------------------------------|------------------------------------------------------------|
| `times_transposed(x, y)`            | `x @ transpose(y)`                                         |
| `transposed_times(x, y)`            | `transpose(x) @ y`                                         |
| `sum_rows(x)`                       | `ops.sum(x, axis=0)`                                       |
| `softmax(x, dtype, kept, rate, b)`  | `ops.softmax(x + b)`, then dropout, then a cast            |
| `cross_entropy(logits, targets)`    | the loss of each row, its log Z, and whether it is a hit   |
| `dropout(x, rate, rng)`             | dropout with the mask `dropout_mask(shape, rate, rng)`     |
| `scan(step, state, sequences)`      | `ops.scan(step, state, sequences)`                         |
| `take_rows(matrix, ids)`            | `ops.take(matrix, ids, axis=0)`                            |
| `take_positions(sequence, ids)`     | `ops.take_along_axis(sequence, ids[..., None], axis=1)`    |
| `flat_positions(sequence, ids)`     | the same, with the positions of all sequences in one axis  |
| `add_at_positions(values, ids, n)`  | zeros of n positions, and `values` added at `ids`          |
| `write_slots(slots, new, first)`    | `ops.slice_update(slots, (0, 0, first, 0), new)`           |
| `missing_bias(size, dtype)`         | None                                                       |
| `@one_pass`                         | the decorated function                                     |
| `@with_gradient`                    | the first result of the decorated function                 |

The results are the same; the implementations are faster. Automatic gradients make several passes
over memory where one is enough, or have a form that optimizers misread: `with_gradient` defines the
gradient of a function by hand. TensorFlow makes one pass over memory for each elementwise operation
of a chain: `one_pass` compiles the chain to one loop. Matrix products are not compiled, because
CPUs have faster kernels for them than XLA's.

`Context` has options that change how the functions compute, but not their results, such as whether
there are gradients. `configure` sets them for the process, and `using` inside a `with` block.

Shapes: R and O rows, I inner size, V classes, S keys or slots, B batch, N heads, T length, P
positions, H head size, D size of a row.
"""

import contextlib
import contextvars
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from official.modeling.types import Size, Tensor

# From this number of elements on, passes over memory cost more than starting compiled code.
SMALLEST = 1 << 16
# The assumed size of a dynamic dimension. In training this is the length of a batch, one of
# `recipe.bucket_lengths`.
_DYNAMIC_SIZE = 32
# With this option, Keras passes `einsum` on to TensorFlow, whose kernel can read an operand
# transposed. Without it, and in `matmul` of a transposed operand, the transposed operand is first
# written to memory, because `official.distribution` turns off the graph rewrite that would avoid
# this.
_EINSUM = {"optimize": "greedy"} if keras.backend.backend() == "tensorflow" else {}
# In Keras for PyTorch, a function with a custom gradient returns one value.
_ONE_VALUE = keras.backend.backend() == "torch"


@dataclasses.dataclass(frozen=True)
class Context:
    """How the functions of this module compute.

    Attributes:
        gradients: whether functions have custom gradients. False is for graphs that are never
            trained: a backend does not fuse operations across a function with a custom gradient,
            for example a product, its bias and an activation.
        compiler: compiles functions of `one_pass`; takes and returns a function of tensors. None =
            no compilation.
        write_slots: replaces the function `write_slots`, which copies all slots on TensorFlow; the
            one of `official.serving.generation.token_choice` does not. None = not replaced.
        missing_bias: replaces the function `missing_bias`, for example by the one of
            `official.serving.export.saved_model`, which returns zeros. None = not replaced.
    """

    gradients: bool = True
    compiler: Callable | None = None
    write_slots: Callable | None = None
    missing_bias: Callable | None = None


_process = Context()
_block: contextvars.ContextVar[Context | None] = contextvars.ContextVar("kernels", default=None)


def context() -> Context:
    """Returns the context of the running code."""
    return _block.get() or _process


def configure(**attributes: Any) -> None:
    """Sets attributes of the `Context` of the process, in all its threads."""
    global _process
    _process = dataclasses.replace(_process, **attributes)


@contextlib.contextmanager
def using(**attributes: Any) -> Iterator[None]:
    """Sets attributes of the `Context` inside the block, in this thread."""
    token = _block.set(dataclasses.replace(context(), **attributes))
    try:
        yield
    finally:
        _block.reset(token)


def with_gradient(function):
    """Decorates a function of tensors that returns its value and its gradient.

    The function returns `(value, backward)`. `backward` takes the gradient of the value and returns
    a gradient for each positional argument, or None for an argument without a gradient. If the
    value is a tuple, `backward` takes a gradient for each of its tensors. Keyword arguments are
    constants.
    """

    @functools.wraps(function)
    def wrapped(*tensors, **constants):
        if not context().gradients:
            return function(*[ops.convert_to_tensor(tensor) for tensor in tensors], **constants)[0]

        shapes: list[tuple[int | None, ...]] = []

        @ops.custom_gradient
        def differentiable(*tensors):
            value, backward = function(*tensors, **constants)
            if _ONE_VALUE and isinstance(value, tuple):
                shapes[:] = [tuple(part.shape) for part in value]
                value, backward = _joined(value), _of_joined(backward, shapes)

            def gradient(*args, upstream=None):  # backends pass the upstream gradient differently
                if isinstance(value, tuple):
                    return backward(*(args if len(args) > 1 else args[0]))
                return backward(args[-1] if upstream is None else upstream)

            return value, gradient

        result = differentiable(*[_tensor(tensor) for tensor in tensors])
        return _split(result, shapes) if shapes else result

    return wrapped


def one_pass(function):
    """Decorates a function of tensors: a compiler computes large results in one pass.

    The results are unchanged. The function is compiled if the context has a compiler and gradients,
    and the largest tensor has at least `SMALLEST` elements. (In a graph without gradients, the
    backend fuses its operations with a product instead.)

    Shapes may have dynamic dimensions. The function is then compiled when the graph runs, once for
    each shape.

    Args:
        function: a pure function of tensors, and of constants by name. A constant `shape` is the
            shape of the result, if that is larger than the tensors.
    """
    compiled = functools.cache(lambda compiler: compiler(function))

    @functools.wraps(function)
    def run(*tensors, **constants):
        how = context()
        shapes = [tuple(tensor.shape) for tensor in tensors]
        shapes += [constants["shape"]] if "shape" in constants else []
        if how.compiler is None or not how.gradients or _largest(shapes) < SMALLEST:
            return function(*tensors, **constants)
        return compiled(how.compiler)(*tensors, **constants)

    return run


def accurate(dtype):
    """Returns the dtype of sums, softmax, norms and losses: float64 for float64, else float32."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


def times_transposed(x, y):
    """Returns `x` times the transpose of `y`: [..., R, I] and [..., O, I] to [..., R, O]."""
    if not context().gradients:
        # Here graph rewrites are on, and the product is fused with the operations after it. If `x`
        # is a scaled output of `unstack` or `split`, it must be the first output, as a query is,
        # because the rewrite assumes that.
        axes = list(range(len(y.shape)))
        return ops.matmul(x, ops.transpose(y, (*axes[:-2], axes[-1], axes[-2])))
    leading = "abcd"[: len(x.shape) - 2]
    return ops.einsum(f"{leading}ri,{leading}oi->{leading}ro", x, y, **_EINSUM)


def transposed_times(x, y):
    """Returns the transpose of `x` times `y`: [..., I, R] and [..., I, O] to [..., R, O]."""
    leading = "abcd"[: len(x.shape) - 2]
    return ops.einsum(f"{leading}ir,{leading}io->{leading}ro", x, y, **_EINSUM)


def sum_rows(x):
    """Sums x [R, O] over its rows: [O].

    The sum is a product with a row of ones. On a CPU this is several times faster than a reduction,
    and it sums bfloat16 in float32.
    """
    return ops.matmul(ops.ones((1, ops.shape(x)[0]), x.dtype), x)[0]


def softmax(scores, dtype=None, kept=None, rate=0.0, mask_bias=None):
    """Returns the softmax over the last axis, [..., S], computed in the dtype `accurate`.

    Args:
        scores: [..., S].
        dtype: the dtype of the result; None = `accurate`.
        kept: the mask of dropout of the result, broadcastable to its shape; None = no dropout.
        rate: the dropout rate.
        mask_bias: a constant that is added to the scores, broadcastable to their shape, in the
            dtype `accurate`; None = 0.
    """
    constants = [constant for constant in (mask_bias, kept) if constant is not None]
    return _softmax(
        scores, *constants, dtype=dtype or accurate(scores.dtype), biased=mask_bias is not None,
        scale=1.0 if kept is None else 1 / (1 - rate),
    )  # fmt: skip


@with_gradient
def _softmax(scores, *constants, dtype, biased, scale):
    kept = constants[1:] if biased else constants
    if biased:
        summed = _accurate_sum(scores, constants[0])
    else:
        summed = ops.cast(scores, accurate(scores.dtype))
    # Keras warns about a softmax over one key, such as an empty text in cross-attention.
    weights = ops.softmax(summed) if summed.shape[-1] != 1 else ops.ones_like(summed)

    def backward(upstream):
        gradient = _softmax_gradient(upstream, weights, *kept, scale=scale, dtype=scores.dtype)
        return gradient, *[None for _ in constants]

    if kept:
        return _kept_weights(weights, *kept, dtype=dtype, scale=scale), backward
    return ops.cast(weights, dtype), backward


@one_pass
def _accurate_sum(x, y):
    return ops.cast(x, y.dtype) + y


@one_pass
def _kept_weights(weights, kept, *, dtype, scale):
    return ops.cast(ops.where(kept, weights * scale, 0), dtype)


@one_pass
def _softmax_gradient(upstream, weights, *kept, scale, dtype):
    upstream = ops.cast(upstream, weights.dtype)
    if kept:
        upstream = ops.where(kept[0], upstream * scale, 0)
    mean = ops.sum(upstream * weights, axis=-1, keepdims=True)
    return ops.cast((upstream - mean) * weights, dtype)


def cross_entropy(logits, targets):
    """Returns the cross-entropy of each row, and the logarithm of its normalizer Z.

    Args:
        logits: [R, V].
        targets: int [R].

    Returns:
        `losses`, log Z minus the logit of the target: [R].
        `log_z`, the log of the sum of the exponentials of the logits: [R].
        `hits`, whether no class has a larger logit than the target: bool [R].
    """
    scores, log_z, largest = ops.unstack(_target_summaries(logits, targets), 3)
    return log_z - scores, log_z, scores >= largest


@with_gradient
def _target_summaries(logits, targets):
    """Returns the target's logit, log Z and the largest logit (without a gradient): [3, R].

    The only arrays of the size [R, V] are the probabilities and the gradient. The backends' own
    losses make more passes over such arrays.
    """
    probabilities = ops.softmax(logits)
    largest = ops.max(logits, axis=-1)
    # The largest probability, 1 / V at least, is exp(largest - log Z).
    log_z = largest - ops.log(ops.max(probabilities, axis=-1))
    scores = ops.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]

    def backward(upstream):
        of_scores, of_log_z, _ = ops.unstack(upstream, 3)
        right = ops.exp(scores - log_z) * of_log_z + of_scores
        return _cross_entropy_gradient(probabilities, targets, of_log_z, right), None

    return ops.stack([scores, log_z, largest]), backward


@one_pass
def _cross_entropy_gradient(probabilities, targets, factors, right):
    """Returns probabilities [R, V] times factors [R], with `right` [R] at the targets [R]."""
    classes = ops.arange(probabilities.shape[1], dtype="int32")
    at_target = classes[None] == ops.cast(targets, "int32")[:, None]
    return ops.where(at_target, right[:, None], probabilities * factors[:, None])


def dropout(x, rate, rng, shared_axis=None):
    """Zeroes elements of `x` with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
        x: any shape.
        rate: probability, 0 <= rate < 1.
        rng: `Draws`, or None for inference, which returns `x` itself.
        shared_axis: an axis along which elements are zeroed together; None = each independently.
    """
    kept = dropout_mask(ops.shape(x), rate, rng, shared_axis)
    return x if kept is None else _dropped(x, kept, scale=1 / (1 - rate))


def dropout_mask(shape, rate, rng, shared_axis=None):
    """Returns the dropout mask: bool of `shape`, with size 1 at `shared_axis`; None = keep all."""
    if rng is None or rate == 0:
        return None
    if shared_axis is not None:
        shape = (*shape[:shared_axis], 1, *shape[shared_axis + 1 :])
    return rng.keep(shape, rate)


@with_gradient
def _dropped(x, kept, *, scale):
    def backward(upstream):
        return _scaled(upstream, kept, scale=scale), None

    return _scaled(x, kept, scale=scale), backward


@one_pass
def _scaled(x, kept, *, scale):
    scaled = ops.cast(x, accurate(x.dtype)) * scale
    return ops.cast(ops.where(kept, scaled, 0), x.dtype)


def scan(step, state, sequences, reverse=False):
    """Runs `keras.ops.scan` over sequences whose length may be known only when the graph runs.

    (In TensorFlow, Keras fails for two or more sequences of unknown length. The loop then runs over
    indices of positions.)

    Args:
        step: a function from the state and the values of a position to the next state and a result
            of the same structure.
        state: a tensor or a tuple of tensors.
        sequences: a tuple of tensors [T, ...].
        reverse: whether the loop begins at the last position.

    Returns:
        The last state, and the results of all positions [T, ...].
    """
    if sequences[0].shape[0] is not None:
        return ops.scan(step, state, sequences, reverse=reverse)

    def at(state, number):
        return step(state, tuple(ops.take(x, number, axis=0) for x in sequences))

    numbers = ops.arange(ops.shape(sequences[0])[0], dtype="int32")
    return ops.scan(at, state, numbers, reverse=reverse)


@with_gradient
def take_rows(matrix: Tensor, ids: Tensor) -> Tensor:
    """Takes the rows `ids` of `matrix`.

    The gradient is one dense matrix with the sum of the contributions to each row. (TensorFlow's
    own gradient is a list of slices with repeated ids. Optimizers and clipping misread it, and it
    is slower if the matrix has a dense gradient as well, as a tied table has.)

    Args:
        matrix: [R, D].
        ids: integers of any shape.

    Returns:
        [*ids.shape, D].
    """
    num_rows, size = ops.shape(matrix)

    def backward(upstream):
        flat = ops.reshape(upstream, (-1, size))
        return ops.segment_sum(flat, ops.reshape(ids, (-1,)), num_segments=num_rows), None

    return ops.take(matrix, ids, axis=0), backward


def flat_positions(sequence: Tensor, ids: Tensor) -> Tensor:
    """Takes some positions of each sequence.

    Args:
        sequence: [B, T, D].
        ids: int [B, P].

    Returns:
        [B * P, D], sequence by sequence.
    """
    batch, length, size = ops.shape(sequence)
    starts = ops.arange(batch, dtype="int32")[:, None] * length
    flat = ops.reshape(ops.cast(ids, "int32") + starts, (-1,))
    return take_rows(ops.reshape(sequence, (-1, size)), flat)


def take_positions(sequence: Tensor, ids: Tensor) -> Tensor:
    """Takes some positions of each sequence: [B, P, D]; the arguments of `flat_positions`."""
    return ops.reshape(flat_positions(sequence, ids), (*ops.shape(ids), ops.shape(sequence)[2]))


def add_at_positions(values: Tensor, ids: Tensor, length: Size) -> Tensor:
    """Scatters numbers to positions of each sequence; numbers at the same position are added.

    Args:
        values: [B, P].
        ids: int [B, P].
        length: T.

    Returns:
        [B, T], 0 at all other positions.
    """
    batch = ops.shape(values)[0]
    starts = ops.arange(batch, dtype="int32")[:, None] * length
    flat = ops.reshape(ops.cast(ids, "int32") + starts, (-1,))
    placed = ops.segment_sum(ops.reshape(values, (-1,)), flat, num_segments=batch * length)
    return ops.reshape(placed, (batch, length))


def write_slots(slots, new, first):
    """Writes keys or values `new` [B, N, T, H] into slots [B, N, S, H], from slot `first` on."""
    if (writer := context().write_slots) is not None:
        return writer(slots, new, first)
    return ops.slice_update(slots, (0, 0, first, 0), new)


def missing_bias(size: int, dtype: str) -> Tensor | None:
    """Returns the bias of a linear map [R, O] that has none: zeros [O], or None.

    A backend may have a faster kernel for a product with a bias than for a product without.
    """
    make = context().missing_bias
    return None if make is None else make(size, dtype)


def _largest(shapes):
    """Returns the largest number of elements; a dynamic dimension counts as `_DYNAMIC_SIZE`."""
    known = (
        [size if isinstance(size, int) else _DYNAMIC_SIZE for size in shape] for shape in shapes
    )
    return max(map(math.prod, known))


def _tensor(x):
    """Returns the value of a variable, which functions with custom gradients must not capture."""
    return ops.reshape(x, x.shape) if isinstance(x, keras.Variable) else x


def _joined(parts):
    """Flattens and concatenates tensors of one dtype."""
    return ops.concatenate([ops.reshape(part, (-1,)) for part in parts])


def _split(line, shapes):
    """Returns the tensors of `_joined`, given their shapes."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1].tolist()
    parts = zip(ops.split(line, ends), shapes, strict=True)
    return tuple(ops.reshape(part, shape) for part, shape in parts)


def _of_joined(backward, shapes):
    """Converts a gradient function of tensors to one of joined values."""
    return lambda upstream: backward(*_split(upstream, shapes))
