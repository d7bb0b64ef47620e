"""A long short-term memory with a projection (Sak et al. 2014; Jozefowicz et al. 2016; ELMo).

One step with the input x and the state (c, m), where W_P is the projection:

    i, j, f, o = [x; m] W + b
    c = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j))
    m = clip((sigmoid(o) tanh(c)) W_P)

The output is m. There are no peepholes. The gates are in the order of TensorFlow's cells, and the 1
is no part of the bias.

Shapes: B batch, T length, I input size, C cells, P projection.
"""

import keras
from keras import ops

from official.modeling.layers.gradient import with_gradient
from official.modeling.layers.linear import linear
from official.modeling.layers.precision import accurate
from official.modeling.layers.products import times_transposed, transposed_times


class ProjectedLSTM(keras.Layer):
    """An LSTM with the variables `kernel` [I + P, 4 C], `bias` [4 C] and `projection` [C, P].

    Args:
        input_size: I.
        cell_size: C.
        projection_size: P.
        cell_clip: the largest absolute value of c; 0 = no limit.
        projection_clip: the same for m.
        initializer: initializer of kernel and projection.
        name: last part of the variables' paths.
        dtype: Keras dtype policy; None = the global one.
    """

    def __init__(
        self,
        input_size,
        cell_size,
        projection_size,
        *,
        cell_clip,
        projection_clip,
        initializer,
        name,
        dtype=None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.input_size = input_size
        self.cell_size = cell_size
        self.projection_size = projection_size
        self.clips = {"cell_clip": cell_clip, "projection_clip": projection_clip}
        self.initializer = initializer

    def build(self, input_shape=None):
        """Creates the variables."""
        rows = self.input_size + self.projection_size
        self.kernel = self.add_weight((rows, 4 * self.cell_size), self.initializer, name="kernel")
        self.bias = self.add_weight((4 * self.cell_size,), "zeros", name="bias")
        self.projection = self.add_weight(
            (self.cell_size, self.projection_size), self.initializer, name="projection"
        )

    def call(self, x, real, state=None):
        """Runs over the positions in order.

        Args:
            x: [B, T, I].
            real: bool [B, T], False for padding, which leaves the state as it is and has the
                output 0; None = there is none.
            state: c [B, C] and m [B, P] before the first position, without a gradient; None = 0.

        Returns:
            [B, T, P], and the state after the last position: c [B, C] and m [B, P], without a
            gradient.
        """
        batch, length = ops.shape(x)[:2]
        if state is None:
            state = (
                ops.zeros((batch, self.cell_size), self.compute_dtype),
                ops.zeros((batch, self.projection_size), self.compute_dtype),
            )
        if real is None:
            real = ops.ones((batch, length), "bool")
        of_input, of_state = ops.split(ops.cast(self.kernel, x.dtype), [self.input_size])
        # One product for all positions. Then the time axis comes first.
        gates = ops.transpose(linear(x, of_input, self.bias), (1, 0, 2))
        real = ops.transpose(ops.cast(real, x.dtype))[:, :, None]
        outputs, c, m = _run(
            gates, real, of_state, ops.cast(self.projection, x.dtype), *state, **self.clips
        )
        return ops.transpose(outputs, (1, 0, 2)), (ops.stop_gradient(c), ops.stop_gradient(m))


@with_gradient
def _run(gates, real, kernel, projection, c, m, *, cell_clip, projection_clip):
    """Runs the steps, with a gradient by hand.

    The gradients of the kernel and the projection are one product each over all steps. (The
    automatic gradient makes a product in each step, and adds them.) The final state has none.

    Args:
        gates: what i, j, f and o get from the input, [T, B, 4 C].
        real: 1 or 0, [T, B, 1].
        kernel: [P, 4 C].
        projection: [C, P].
        c: [B, C].
        m: [B, P].
        cell_clip: see the class.
        projection_clip: see the class.

    Returns:
        [T, B, P], c [B, C] and m [B, P].
    """
    first = c, m

    def step(state, now):
        c, m, _, _ = state
        z, keep = now
        i, j, f, o = _activations(z + ops.matmul(m, kernel))
        new_c = _clip(f * c + i * j, cell_clip)
        hidden = o * ops.tanh(new_c)
        output = _clip(ops.matmul(hidden, projection), projection_clip)
        c = keep * new_c + (1 - keep) * c
        m = keep * output + (1 - keep) * m
        state = c, m, hidden, ops.concatenate([i, j, f, o], axis=-1)
        return state, state  # What Keras collects has the structure of what it carries.

    # [T, B, ...] each.
    initial = (c, m, ops.zeros_like(c), ops.zeros_like(gates[0]))
    (c, m, _, _), (cells, states, hidden, activations) = ops.scan(step, initial, (gates, real))

    def backward(upstream, *_):
        def before(initial, rows):
            return ops.concatenate([initial[None], rows[:-1]], axis=0)

        earlier_cells, earlier_states = before(first[0], cells), before(first[1], states)

        def step_back(carried, now):
            of_c, of_m, _, _ = carried
            of_output, activations, old_c, c, m, keep = now
            i, j, f, o = ops.split(activations, 4, axis=-1)
            tanh = ops.tanh(c)
            of_product = keep * (of_m + of_output)
            if projection_clip:
                of_product = of_product * _inside(m, projection_clip)
            of_hidden = times_transposed(of_product, projection)
            of_new = keep * of_c + of_hidden * o * (1 - tanh * tanh)
            if cell_clip:
                of_new = of_new * _inside(c, cell_clip)
            of_z = ops.concatenate(
                [
                    of_new * j * i * (1 - i),
                    of_new * i * (1 - j * j),
                    of_new * old_c * f * (1 - f),
                    of_hidden * tanh * o * (1 - o),
                ],
                axis=-1,
            )
            of_m = times_transposed(of_z, kernel) + (1 - keep) * of_m
            carried = of_new * f + (1 - keep) * of_c, of_m, of_z, of_product
            return carried, carried

        rows = (upstream, activations, earlier_cells, cells, states, real)
        zeros = [ops.zeros_like(x) for x in (c, m, gates[0], m)]
        (of_c, of_m, _, _), (_, _, of_gates, of_products) = ops.scan(
            step_back, tuple(zeros), rows, reverse=True
        )

        def summed(x, y):
            flat = (ops.reshape(rows, (-1, rows.shape[-1])) for rows in (x, y))
            return transposed_times(*flat)

        of_kernel = summed(earlier_states, of_gates)
        return of_gates, None, of_kernel, summed(hidden, of_products), of_c, of_m

    return (states * real, c, m), backward


def _activations(z):
    """Returns sigmoid(i), tanh(j), sigmoid(f + 1) and sigmoid(o) of gates [B, 4 C]."""
    i, j, f, o = ops.split(z, 4, axis=-1)
    return ops.sigmoid(i), ops.tanh(j), ops.sigmoid(f + 1), ops.sigmoid(o)


def _clip(x, limit):
    return ops.clip(x, -limit, limit) if limit else x


def _inside(x, limit):
    """Returns 1 where a clipped value is inside the limits, and 0 where it was cut."""
    return ops.cast(ops.abs(x) < limit, x.dtype)
