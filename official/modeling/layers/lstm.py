"""LSTMs: one with a projection of its output, and a bidirectional one.

One step with the input x and the state (c, m), where W_P is the projection (Sak et al. 2014;
Jozefowicz et al. 2016; ELMo):

    i, j, f, o = [x; m] W + b
    c = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
    m = clip((sigmoid(o) tanh(c)) W_P)

The output is m. There are no peepholes. Without a projection W_P is the identity. The gates are in
the order of TensorFlow's cells. The 1 that is added to the forget gate is not part of the bias.

Shapes: B batch, T length, I input size, C cells, P projection.
"""

from typing import Any

from keras import ops
from typing_extensions import override

from official.modeling.layers.base import Layer
from official.modeling.layers.kernels import (
    accurate,
    flat_positions,
    scan,
    transposed_times,
    with_gradient,
)
from official.modeling.layers.linear import linear
from official.modeling.layers.random import Draws, RandomWeights
from official.modeling.types import DType, Initializer, Tensor
from official.utils import keras_private


class ProjectedLSTM(Layer):
    """An LSTM with the variables `kernel` [I + P, 4 C], `bias` [4 C] and `projection` [C, P].

    Args:
        input_size: I.
        cell_size: C.
        projection_size: P; None = no projection, with P = C and no variable.
        cell_clip: the largest absolute value of c; 0 = no limit.
        projection_clip: the same for m.
        initializer: initializer of kernel and projection.
        name: last part of the variables' paths.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(
        self,
        input_size: int,
        cell_size: int,
        projection_size: int | None,
        *,
        cell_clip: float,
        projection_clip: float,
        initializer: Initializer,
        name: str | None = None,
        dtype: DType | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.input_size = input_size
        self.cell_size = cell_size
        self.projection_size = projection_size or cell_size
        self.has_projection = projection_size is not None
        self.clips = {"cell_clip": cell_clip, "projection_clip": projection_clip}
        self.initializer = initializer

    @override
    def build(self, input_shape=None):
        rows = self.input_size + self.projection_size
        self.kernel = self.add_weight((rows, 4 * self.cell_size), self.initializer, name="kernel")
        self.bias = self.add_weight((4 * self.cell_size,), "zeros", name="bias")
        if self.has_projection:
            self.projection = self.add_weight(
                (self.cell_size, self.projection_size), self.initializer, name="projection"
            )

    def call(self, x: Tensor, real: Tensor | None = None, state: Any | None = None):
        """Runs over the positions in order.

        Args:
            x: [B, T, I].
            real: bool [B, T], False for padding, which does not change the state and has the output
                0; None = there is no padding.
            state: c [B, C] and m [B, P] before the first position; None = 0.

        Returns:
            [B, T, P], and the state after the last position: c [B, C] and m [B, P] in float32 or
            float64, without a gradient.
        """
        batch, exact = ops.shape(x)[0], accurate(self.compute_dtype)
        if state is None:
            sizes = self.cell_size, self.projection_size
            state = [ops.zeros((batch, size), exact) for size in sizes]
        state = [ops.cast(value, exact) for value in state]
        kernel = ops.cast(self.kernel, x.dtype)
        of_input, of_state = kernel[: self.input_size], kernel[self.input_size :]
        # The time axis comes first, and one product computes the input part of all positions.
        gates = linear(ops.transpose(x, (1, 0, 2)), of_input, self.bias)
        projection = self.projection if self.has_projection else ops.eye(self.cell_size)
        tensors = [gates, of_state, ops.cast(projection, x.dtype), *state]
        if real is not None:
            tensors.append(ops.transpose(ops.cast(real, exact))[:, :, None])
        outputs, c, m = _run(*tensors, **self.clips)
        outputs = ops.transpose(ops.cast(outputs, self.compute_dtype), (1, 0, 2))
        return outputs, (ops.stop_gradient(c), ops.stop_gradient(m))


@with_gradient
def _run(
    gates: Tensor,
    kernel: Tensor,
    projection: Tensor,
    c: Tensor,
    m: Tensor,
    real: Tensor | None = None,
    *,
    cell_clip: float,
    projection_clip: float,
) -> Tensor:
    """Runs the steps, with a custom gradient.

    The gradients of the kernel and the projection are one product each over all steps. (The
    automatic gradient computes and adds a product in each step.) The final state has no gradient.
    Products have the dtype of the kernel, and everything else that of the state.

    Args:
        gates: the contributions of the input to i, j, f and o, [T, B, 4 C].
        kernel: [P, 4 C].
        projection: [C, P].
        c: [B, C].
        m: [B, P].
        real: 1 or 0, [T, B, 1]; None = 1.
        cell_clip: see the class.
        projection_clip: see the class.

    Returns:
        [T, B, P], c [B, C] and m [B, P].
    """
    first, dtype, exact = (c, m), kernel.dtype, c.dtype

    def product(x, y):
        return ops.cast(ops.matmul(ops.cast(x, dtype), y), exact)

    def kept(new, old, keep):
        return new if keep is None else keep * new + (1 - keep) * old

    def step(state, now):
        c, m, *_ = state
        i, j, f, o = _activations(ops.cast(now[0], exact) + product(m, kernel))
        new = _clip(f * c + i * j, cell_clip)
        hidden = ops.cast(o * ops.tanh(new), dtype)
        output = _clip(product(hidden, projection), projection_clip)
        keep = now[1] if real is not None else None
        activations = [ops.cast(x, dtype) for x in (i, j, f, o)]
        state = kept(new, c, keep), kept(output, m, keep), hidden, *activations
        return state, state  # in Keras, outputs must have the structure of the carry

    hidden = ops.zeros_like(c, dtype)
    rows = (gates,) if real is None else (gates, real)
    # [T, B, ...] each.
    (c, m, *_), (cells, states, hidden, *activations) = scan(step, (c, m, *[hidden] * 5), rows)

    def backward(upstream, *_):
        i, j, f, o = (ops.cast(x, exact) for x in activations)
        tanh = ops.tanh(cells)
        earlier_cells, earlier_states = (
            ops.concatenate([x[None], rows[:-1]], axis=0)
            for x, rows in zip(first, (cells, states), strict=True)
        )
        # The factors of the gradients of the cell and of `hidden`, for all steps.
        to_cell = o * (1 - tanh * tanh)
        factors = [j * i * (1 - i), i * (1 - j * j), earlier_cells * f * (1 - f)]
        factors += [tanh * o * (1 - o), to_cell, f]
        if cell_clip:
            inside = _inside(cells, cell_clip)
            factors = [x * inside for x in factors[:3]] + factors[3:5] + [f * inside]
        if projection_clip:
            upstream_factor = _inside(states, projection_clip)
        kernel_back, projection_back = ops.transpose(kernel), ops.transpose(projection)

        def step_back(carried, now):
            of_c, of_m, *_ = carried
            of_output, of_i, of_j, of_f, of_o, to_cell, to_earlier, *more = now
            keep = more.pop() if real is not None else None
            of_product = of_m + of_output
            of_product = of_product if keep is None else keep * of_product
            if projection_clip:
                of_product = of_product * more.pop()
            of_hidden = product(of_product, projection_back)
            of_new = of_hidden * to_cell + (of_c if keep is None else keep * of_c)
            of_z = [of_new * of_i, of_new * of_j, of_new * of_f, of_hidden * of_o]
            of_z = ops.cast(ops.concatenate(of_z, axis=-1), dtype)
            of_earlier = of_new * to_earlier
            of_m_earlier = product(of_z, kernel_back)
            if keep is not None:
                of_earlier = of_earlier + (1 - keep) * of_c
                of_m_earlier = of_m_earlier + (1 - keep) * of_m
            carried = of_earlier, of_m_earlier, of_z, ops.cast(of_product, dtype)
            return carried, carried

        rows = [upstream, *factors]
        rows += [upstream_factor] if projection_clip else []
        rows += [] if real is None else [real]
        carried = [ops.zeros_like(x) for x in first]
        carried += [ops.zeros_like(gates[0], dtype), ops.zeros_like(m, dtype)]
        (of_c, of_m, *_), (_, _, of_gates, of_products) = scan(
            step_back, tuple(carried), tuple(rows), reverse=True
        )

        def summed(x, y):
            flat = (ops.cast(ops.reshape(rows, (-1, rows.shape[-1])), dtype) for rows in (x, y))
            return transposed_times(*flat)

        found = [ops.cast(of_gates, gates.dtype), summed(earlier_states, of_gates)]
        found += [summed(hidden, of_products), of_c, of_m]
        return tuple(found) if real is None else (*found, None)

    outputs = states if real is None else states * real
    return (outputs, c, m), backward


def _activations(z: Tensor):
    """Returns sigmoid(i), tanh(j), sigmoid(f + 1) and sigmoid(o) of gates [B, 4 C]."""
    i, j, f, o = ops.split(z, 4, axis=-1)
    return ops.sigmoid(i), ops.tanh(j), ops.sigmoid(f + 1), ops.sigmoid(o)


def _clip(x: Tensor, limit):
    return ops.clip(x, -limit, limit) if limit else x


def _inside(x: Tensor, limit):
    """Returns 1 where a clipped value is inside the limits, and 0 where it was cut."""
    return ops.cast(ops.abs(x) < limit, x.dtype)


class BiLSTM(Layer):
    """Two LSTMs without projections (Graves and Schmidhuber, 2005).

    The variables are `forward/...` and `backward/...`, each those of a `ProjectedLSTM`.

    The initial weights are uniform (Glorot and Bengio, 2010), and the forget gates have the bias 1.

    Args:
        input_size: I.
        cell_size: C.
        seed: `Draws` of the initial weights.
        name: first part of the variables' paths.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(
        self,
        input_size: int,
        cell_size: int,
        *,
        seed: Draws,
        name: str = "bilstm",
        dtype: DType | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        glorot = RandomWeights("glorot", None, seed)
        self.directions = [
            ProjectedLSTM(
                input_size,
                cell_size,
                None,
                cell_clip=0.0,
                projection_clip=0.0,
                initializer=glorot,
                name=direction,
                dtype=self.dtype_policy,
            )
            for direction in ("forward", "backward")
        ]

    @override
    def build(self, input_shape=None):
        for lstm in self.directions:
            lstm.build()

    def call(self, x: Tensor, real: Tensor | None = None):
        """Reads each row in both directions.

        Args:
            x: [B, T, I].
            real: bool [B, T], False for padding, which does not change the states and has the
                output 0; None = the mask that Keras keeps with `x`, if any.

        Returns:
            The outputs of the forward direction, then of the backward direction: [B, T, 2 C].
        """
        forward, backward = self.directions
        real = keras_private.mask_of(x) if real is None else real
        outputs, _ = forward(x, real)
        reversed_real = None if real is None else ops.flip(real, axis=1)
        reversed_outputs, _ = backward(ops.flip(x, axis=1), reversed_real)
        return ops.concatenate([outputs, ops.flip(reversed_outputs, axis=1)], axis=-1)

    def last(self, outputs: Tensor, real: Tensor | None = None) -> Tensor:
        """Returns the output of each direction after it has read the whole row.

        Args:
            outputs: the result of a call, [B, T, 2 C].
            real: as in the call.

        Returns:
            The forward output of the last real position, then the backward output of the first: [B,
            2 C]; 0 for a row that is only padding.
        """
        forward, backward = ops.split(outputs, 2, axis=-1)
        if real is None:
            return ops.concatenate([forward[:, -1], backward[:, 0]], axis=-1)
        real, length = ops.cast(real, "bool"), ops.shape(real)[1]
        places = ops.arange(length, dtype="int32")
        last = ops.max(ops.where(real, places, 0), axis=1, keepdims=True)
        first = ops.min(ops.where(real, places, length - 1), axis=1, keepdims=True)
        ends = flat_positions(forward, last), flat_positions(backward, first)
        return ops.concatenate(ends, axis=-1)
