"""Adagrad: each weight's rate falls with the sum of its squared gradients (Duchi et al., 2011)."""

import keras
import tensorflow as tf

from official.training.optimizers.base import Optimizer


class Adagrad(Optimizer):
    """Adagrad as ELMo's release uses it: `a += g²; w -= rate g / sqrt(a)`.

    The sum `a` starts at `initial_accumulator`, so no small number is added to the root. A weight
    whose gradient is 0 does not change. The gradient of a table of which a step reads a few rows
    (sampled softmax, a table of words) therefore stays sparse: only these rows and their sums are
    read and written.

    Args:
      learning_rate: a number or a schedule.
      clip_norm: largest global norm of the reduced gradient; 0 = no clipping.
      initial_accumulator: the first value of the sums, above 0.
      options: those of `Optimizer`; there is no weight decay.
    """

    updates_rows = True

    def __init__(
        self,
        learning_rate,
        clip_norm: float = 0.0,
        *,
        initial_accumulator: float = 1.0,
        name: str = "adagrad",
        **options,
    ):
        super().__init__(learning_rate, clip_norm=clip_norm, name=name, **options)
        self.initial_accumulator = initial_accumulator

    def build(self, variables):
        """Makes the sum of every variable."""
        if self.built:
            return
        super().build(variables)
        self._sums = [
            self.add_variable_from_reference(
                variable,
                name="sum",
                initializer=keras.initializers.Constant(self.initial_accumulator),
            )
            for variable in variables
        ]

    def slots(self) -> dict[str, keras.Variable]:
        """Sums of squared gradients, `sum`."""
        return {f"{path}/sum": slot for path, slot in zip(self._paths, self._sums, strict=True)}

    def update_step(self, gradient, variable, learning_rate, index):
        """Updates the sum, then the variable, in one fused operation."""
        tf.raw_ops.ResourceApplyAdagrad(
            var=variable.handle,
            accum=self._sums[index].value.handle,
            lr=learning_rate,
            grad=gradient,
        )

    def update_rows(self, values, rows, variable, learning_rate, index):
        """Updates the sums and the values of some rows, in one fused operation if XLA has one."""
        if self.static_shapes:
            sums = self._sums[index].value.handle
            tf.raw_ops.ResourceScatterAdd(resource=sums, indices=rows, updates=values * values)
            total = tf.raw_ops.ResourceGather(resource=sums, indices=rows, dtype=values.dtype)
            steps = learning_rate * values * tf.math.rsqrt(total)
            tf.raw_ops.ResourceScatterSub(resource=variable.handle, indices=rows, updates=steps)
            return
        tf.raw_ops.ResourceSparseApplyAdagrad(
            var=variable.handle,
            accum=self._sums[index].value.handle,
            lr=learning_rate,
            grad=values,
            indices=rows,
        )
