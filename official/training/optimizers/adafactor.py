"""Adafactor: second moments of matrices as sums of rows and columns (Shazeer and Stern, 2018)."""

import keras
import tensorflow as tf

from official.training.optimizers import base
from official.training.optimizers.base import Optimizer


class Adafactor(Optimizer):
    """Adafactor as T5 uses it: without momentum, with steps relative to the weights.

    Shazeer and Stern (2018), algorithms 4 and 5. With the number t of updates from 1,

    * `b = 1 - t^decay_power`, so that the second moment of the first update is its own square;
    * `v = b v + (1 - b) (g² + epsilon)`. Of a variable whose last two sizes are both at least
      `min_factored`, only the means of v over rows and over columns are kept, `r` and `c`, and
      `v = r c^T / mean(r)`;
    * `u = g / sqrt(v)`, divided by `max(1, RMS(u) / clip_rms)`;
    * `w -= rate * max(min_scale, RMS(w)) * u + rate * decay * w`.

    Means, RMS and the smaller size are those of a column block, if a variable has several: T5's
    release has a variable for each. The blocks have `v_rows` in one array [..., rows, blocks], and
    `v_columns` side by side.

    Keras' own Adafactor factors every matrix, however small.

    Args:
      learning_rate: a number or a schedule.
      weight_decay: factor of the weight itself in its update.
      clip_norm: largest global norm of the reduced gradient; 0 = no clipping.
      decay_power: exponent of the decay of the second moments.
      epsilon: added to the squared gradient.
      min_scale: smallest RMS of the weights in the step size.
      clip_rms: largest RMS of an update.
      min_factored: smallest of the last two sizes of a variable with factored moments.
      options: those of `Optimizer`.
    """

    counts_updates = True
    reads_norms = True

    def __init__(
        self,
        learning_rate,
        weight_decay: float = 0.0,
        clip_norm: float = 0.0,
        *,
        decay_power: float = -0.8,
        epsilon: float = 1e-30,
        min_scale: float = 1e-3,
        clip_rms: float = 1.0,
        min_factored: int = 128,
        name: str = "adafactor",
        **options,
    ):
        super().__init__(
            learning_rate, weight_decay=weight_decay, clip_norm=clip_norm, name=name, **options
        )
        self.decay_power = decay_power
        self.epsilon = epsilon
        self.min_scale = min_scale
        self.clip_rms = clip_rms
        self.min_factored = min_factored

    def build(self, variables):
        """Makes the second moment of every variable, or its means over rows and columns."""
        if self.built:
            return
        super().build(variables)
        self._moments = [
            self._make_moments(*each) for each in zip(variables, self._blocks, strict=True)
        ]

    def _make_moments(self, variable: keras.Variable, blocks: int) -> dict[str, keras.Variable]:
        *leading, rows, columns = (1, 1, *variable.shape)[-max(2, len(variable.shape)) :]
        shapes = {"v": tuple(variable.shape)}
        if min(rows, columns // blocks) >= self.min_factored:
            by_row = (rows, blocks) if blocks > 1 else (rows,)
            shapes = {"v_rows": (*leading, *by_row), "v_columns": (*leading, columns)}
        return {
            name: self.add_variable(
                shape,
                initializer="zeros",
                dtype=variable.dtype,
                name=f"{variable.path.replace('/', '_')}_{name}",
            )
            for name, shape in shapes.items()
        }

    def slots(self) -> dict[str, keras.Variable]:
        """Second moments, `v`, or `v_rows` and `v_columns`."""
        return {
            f"{path}/{name}": slot
            for path, moments in zip(self._paths, self._moments, strict=True)
            for name, slot in moments.items()
        }

    def update_step(self, gradient, variable, learning_rate, index):
        """Updates the moments, then the variable."""
        dtype = variable.dtype
        constant = lambda value: tf.constant(value, dtype)  # noqa: E731
        kept = 1 - tf.cast(self.updates(index) + 1, dtype) ** constant(self.decay_power)
        squares = tf.square(gradient) + constant(self.epsilon)
        moments, blocks = self._moments[index], self._blocks[index]

        def moment(name, value):
            slot = moments[name].value
            return slot.assign(kept * slot + (1 - kept) * value, read_value=True)

        if "v" in moments:
            update = gradient * tf.math.rsqrt(moment("v", squares))
        else:
            by_row = (*moments["v_rows"].shape, -1)  # the columns of each row, block by block
            rows = moment("v_rows", tf.reduce_mean(tf.reshape(squares, by_row), axis=-1))
            columns = moment("v_columns", tf.reduce_mean(squares, axis=-2))
            axis = -1 if blocks == 1 else -2
            shares = rows / tf.reduce_mean(rows, axis=axis, keepdims=True)
            update = tf.reshape(gradient, by_row) * tf.math.rsqrt(shares)[..., None]
            update = tf.reshape(update, gradient.shape) * tf.math.rsqrt(columns)[..., None, :]
        size = tf.maximum(constant(self.min_scale), _rms(variable, blocks))
        size /= tf.maximum(constant(1), _rms(update, blocks) / constant(self.clip_rms))
        update *= base.by_column(size * learning_rate, variable)
        if self._decayed[index] and self.decay:
            update += variable * (learning_rate * constant(self.decay))
        variable.assign_sub(update)


def _rms(x, blocks):
    """Returns the root of the mean square of all entries of each column block."""
    count = x.shape.num_elements() // blocks
    return tf.sqrt(base.sums_of_squares(x, blocks) / tf.constant(count, x.dtype))
