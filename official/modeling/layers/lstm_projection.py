"""An LSTM with a projection of its output and limits of its values (Sak et al. 2014, section 2.2).

The products of all inputs are one matrix product before the loop over time, and so are the
gradients of the matrices after the loop. The gates are in TensorFlow's order: i, j, f, o.

Shapes: B batch, T length, I input size, C cell size, P output size.
"""

import keras
from keras import ops

from official.modeling.layers.gradient import is_left_out, with_gradient
from official.modeling.layers.linear import linear
from official.modeling.layers.products import times_transposed, transposed_times
from official.utils.errors import UserError

FORGET_BIAS = 1.0  # Added when the layer runs; the variable does not contain it.
UNROLLED = 64  # Longer rows run as a loop of the backend, with its automatic gradient.


class ProjectedLSTM(keras.Layer):
    """An LSTM that returns the outputs of all steps and its state.

    Variables: `kernel` [I + P, 4 C] for the input and the last output, `bias` [4 C], and
    `projection` [C, P] if the output is projected. With the gates i, j, f and o a step computes

        c = clip(sigmoid(f + 1) * c + sigmoid(i) * tanh(j))
        m = clip(sigmoid(o) * tanh(c) @ projection)

    and m is both its output and, with c, the state of the next step.
    """

    def __init__(
        self,
        input_size,
        cell_size,
        projection_size=None,
        *,
        cell_clip=None,
        projection_clip=None,
        initializer,
        name,
        dtype=None,
    ):
        """Describes a layer; `build()` creates its variables.

        Args:
            input_size: I.
            cell_size: C.
            projection_size: P; None = no projection, P = C.
            cell_clip: the largest absolute value of c; None = no limit.
            projection_clip: the same for m.
            initializer: makes the initial matrices.
            name: name of the layer.
            dtype: Keras dtype policy; None = the global one.
        """
        super().__init__(name=name, dtype=dtype)
        self.input_size, self.cell_size = input_size, cell_size
        self.output_size = projection_size or cell_size
        self.limits = {"cell_clip": cell_clip, "output_clip": projection_clip}
        self.initializer = initializer
        self.projects = projection_size is not None
        self.projection = None

    def build(self, input_shape=None):
        """Creates the variables."""
        size, out = self.cell_size, self.output_size
        self.kernel = self.add_weight(
            (self.input_size + out, 4 * size), self.initializer, name="kernel"
        )
        self.bias = self.add_weight((4 * size,), "zeros", name="bias")
        if self.projects:
            self.projection = self.add_weight((size, out), self.initializer, name="projection")

    def call(self, x, real=None, state=None):
        """Runs all steps.

        Args:
            x: [B, T, I].
            real: bool [B, T], False for padding, which changes no state; None = all real.
            state: (c [B, C], m [B, P]) before the first step; None = zeros.

        Returns:
            The outputs [B, T, P], 0 at padding, and the state after the last real step.

        Raises:
            UserError: the shape of a state is wrong.
        """
        batch = ops.shape(x)[0]
        x = ops.transpose(ops.cast(x, self.compute_dtype), (1, 0, 2))
        kernel = ops.cast(self.kernel, x.dtype)
        gates = linear(x, kernel[: self.input_size], self.bias)  # [T, B, 4 C]
        cell, output = self._start(x, batch, state)
        matrices = [kernel[self.input_size :]]
        if self.projects:
            matrices.append(ops.cast(self.projection, x.dtype))
        steps = None if real is None else ops.transpose(real)[:, :, None]
        length = x.shape[0]
        if is_left_out() or length is None or length > UNROLLED:
            outputs, cell = _forward(gates, cell, output, *matrices, real=steps, **self.limits)
        else:
            flat = run(gates, cell, output, *matrices, real=steps, **self.limits)
            split = -ops.size(cell)
            outputs = ops.reshape(flat[:split], (-1, batch, self.output_size))
            cell = ops.reshape(flat[split:], (batch, self.cell_size))
        last = outputs[-1]
        if steps is not None:
            outputs = ops.where(steps, outputs, 0)
        return ops.transpose(outputs, (1, 0, 2)), (cell, last)

    def _start(self, x, batch, state):
        """Returns the state before the first step of x [T, B, I]."""
        sizes = (self.cell_size, self.output_size)
        if state is None:
            return [ops.zeros((batch, size), x.dtype) for size in sizes]
        rows = x.shape[1]
        for part, size in zip(state, sizes, strict=True):
            fits = len(part.shape) == 2 and part.shape[1] == size
            if not fits or None not in (rows, part.shape[0]) and part.shape[0] != rows:
                raise UserError(
                    f"state: expected [{rows or 'B'}, {size}], got shape {tuple(part.shape)}: the state "
                    "belongs to another model or to a batch of another size"
                )
        return [ops.cast(part, x.dtype) for part in state]


def _clip(x, limit):
    return x if limit is None else ops.clip(x, -limit, limit)


def _inside(upstream, x, limit):
    """Returns the gradient before a limit, from the gradient after it and the limited values."""
    return upstream if limit is None else ops.where(ops.abs(x) < limit, upstream, 0)


def _where(real, new, old):
    return new if real is None else ops.where(real, new, old)


def _activations(z):
    """Returns the gates [B, 4 C] as four tensors [B, C] after their activations."""
    i, j, f, o = ops.split(z, 4, axis=-1)
    return ops.sigmoid(i), ops.tanh(j), ops.sigmoid(f + FORGET_BIAS), ops.sigmoid(o)


def _step(z, cell, output, recurrent, projection, real, cell_clip, output_clip):
    """Returns what follows from a state and the products of an input: gates, cell, output."""
    i, j, f, o = _activations(z + ops.matmul(output, recurrent))
    new_cell = _clip(f * cell + i * j, cell_clip)
    new = o * ops.tanh(new_cell)
    if projection:
        new = ops.matmul(new, projection[0])
    new = _clip(new, output_clip)
    return (i, j, f, o), _where(real, new_cell, cell), _where(real, new, output)


def _forward(gates, cell, output, recurrent, *projection, real, cell_clip, output_clip):
    """Runs all steps; returns the outputs [T, B, P] and the last cell [B, C]."""

    def step(state, inputs):
        z, here = inputs if real is not None else (inputs, None)
        state = _step(z, *state, recurrent, projection, here, cell_clip, output_clip)[1:]
        return state, state

    inputs = gates if real is None else (gates, real)
    (cell, _), (_, outputs) = ops.scan(step, (cell, output), inputs)
    return outputs, cell


@with_gradient
def run(gates, cell, output, recurrent, *projection, real, cell_clip, output_clip):
    """Runs all steps, with the gradient.

    Args:
        gates: [T, B, 4 C], the products of the inputs and the bias.
        cell: [B, C], the state before the first step.
        output: [B, P], the same.
        recurrent: [P, 4 C].
        *projection: [C, P], or nothing.
        real: bool [T, B, 1], False at steps that change no state; None = no such step.
        cell_clip: the largest absolute value of a cell, or None.
        output_clip: the same for outputs.

    Returns:
        The outputs [T, B, P] and the last cell [B, C] as one vector.
    """
    steps = gates.shape[0]
    reals = [None] * steps if real is None else ops.unstack(real)
    kept, states = [], [(cell, output)]
    for z, here in zip(ops.unstack(gates), reals, strict=True):
        activations, *state = _step(
            z, *states[-1], recurrent, projection, here, cell_clip, output_clip
        )
        kept.append(activations)
        states.append(tuple(state))

    def backward(upstream):
        return _backward(
            upstream, kept, states, recurrent, projection, reals, cell_clip, output_clip
        )

    outputs = [ops.reshape(output, (-1,)) for _, output in states[1:]]
    return ops.concatenate([*outputs, ops.reshape(states[-1][0], (-1,))]), backward


def _backward(upstream, kept, states, recurrent, projection, reals, cell_clip, output_clip):
    """Returns the gradients of the tensors of `run`; the arguments are what its steps made."""
    (batch, size), out = ops.shape(states[0][0]), recurrent.shape[0]
    outputs_size = len(kept) * batch * out
    upstreams = ops.unstack(
        ops.reshape(upstream[:outputs_size], (len(kept), batch, out)), len(kept)
    )
    d_cell = ops.reshape(upstream[outputs_size:], (batch, size))
    d_output = ops.zeros((batch, out), upstream.dtype)
    gates, unprojected, projected = [], [], []  # Of each step, the last one first.
    for t in reversed(range(len(kept))):
        (i, j, f, o), (cell, output) = kept[t], states[t + 1]
        d_out = upstreams[t] + d_output
        d_new = _inside(_where(reals[t], d_out, 0), output, output_clip)
        tanh = ops.tanh(cell)
        if projection:
            unprojected.append(o * tanh)
            projected.append(d_new)
            d_new = times_transposed(d_new, projection[0])
        d_sum = _inside(
            _where(reals[t], d_cell, 0) + d_new * o * (1 - tanh * tanh), cell, cell_clip
        )
        d_gates = [
            d_sum * j * i * (1 - i),
            d_sum * i * (1 - j * j),
            d_sum * states[t][0] * f * (1 - f),
            d_new * tanh * o * (1 - o),
        ]
        gates.append(ops.concatenate(d_gates, axis=-1))
        d_before = times_transposed(gates[-1], recurrent)
        d_output = d_before if reals[t] is None else ops.where(reals[t], d_before, d_out)
        d_cell = _where(reals[t], d_sum * f, d_cell)
    d_recurrent = transposed_times(
        ops.concatenate([output for _, output in states[-2::-1]]), ops.concatenate(gates)
    )
    gradients = [ops.stack(gates[::-1]), d_cell, d_output, d_recurrent]
    if projection:
        gradients.append(transposed_times(ops.concatenate(unprojected), ops.concatenate(projected)))
    return tuple(gradients)
