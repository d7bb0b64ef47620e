"""Adafactor: second moments of matrices as sums of rows and columns (Shazeer and Stern, 2018)."""

from collections.abc import Mapping

import keras
import tensorflow as tf

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
        self._moments = [self._make_moments(variable) for variable in variables]

    def _make_moments(self, variable: keras.Variable) -> dict[str, keras.Variable]:
        rows, columns = (1, 1, *variable.shape)[-2:]
        shapes = {"v": tuple(variable.shape)}
        if min(rows, columns) >= self.min_factored:
            leading = tuple(variable.shape)[:-2]
            shapes = {"v_rows": (*leading, rows), "v_columns": (*leading, columns)}
        return {
            name: self.add_variable(
                shape,
                initializer="zeros",
                dtype=variable.dtype,
                name=f"{variable.path.replace('/', '_')}_{name}",
            )
            for name, shape in shapes.items()
        }

    def slots(self) -> Mapping[str, keras.Variable]:
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
        moments = self._moments[index]

        def moment(name, value):
            slot = moments[name].value
            return slot.assign(kept * slot + (1 - kept) * value, read_value=True)

        if "v" in moments:
            update = gradient * tf.math.rsqrt(moment("v", squares))
        else:
            rows = moment("v_rows", tf.reduce_mean(squares, axis=-1))
            columns = moment("v_columns", tf.reduce_mean(squares, axis=-2))
            shares = rows / tf.reduce_mean(rows, axis=-1, keepdims=True)
            update = gradient * tf.math.rsqrt(shares)[..., None]
            update *= tf.math.rsqrt(columns)[..., None, :]
        update /= tf.maximum(constant(1), _rms(update) / constant(self.clip_rms))
        update *= tf.maximum(constant(self.min_scale), _rms(variable))
        if self._decayed[index] and self.decay:
            update += variable * constant(self.decay)
        variable.assign_sub(update * learning_rate)


def _rms(x):
    """Returns the root of the mean square of all entries."""
    return tf.sqrt(2 * tf.nn.l2_loss(x) / tf.cast(tf.size(x), x.dtype))
