"""AdamW as in the release of BERT."""

import functools

import tensorflow as tf

from official.training.optimizers.base import TwoMoments

# From this number of elements on, one pass saves more than its compilation costs.
COMPILED_SIZE = 1 << 16


class AdamW(TwoMoments):
    """Adam with decoupled weight decay, by default without bias correction.

    `m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; w -= rate (m / (sqrt(v) + eps) + decay w)`
    (`AdamWeightDecayOptimizer` of the BERT release). With `bias_correction` the rate becomes
    `rate * sqrt(1 - b2^t) / (1 - b1^t)` for the first of the two terms (Loshchilov and Hutter).
    """

    def update_scaled(self, gradient, scale, variable, learning_rate, index):
        """Updates a large variable and its moments in one pass, which XLA compiles."""
        if variable.shape.num_elements() < COMPILED_SIZE:
            super().update_scaled(gradient, scale, variable, learning_rate, index)
            return
        power_1, power_2 = self.powers(variable.dtype, index)
        # Handles are those of the replica's own copies, also where a variable is mirrored.
        _update(
            variable.handle,
            self._first[index].value.handle,
            self._second[index].value.handle,
            gradient,
            tf.ones([], variable.dtype) if scale is None else scale,
            learning_rate,
            learning_rate * tf.sqrt(1 - power_2) / (1 - power_1),
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            decay=self.decay if self._decayed[index] else 0.0,
        )

    def update_step(self, gradient, variable, learning_rate, index):
        """Updates a small variable and its moments."""
        dtype = variable.dtype
        constant = lambda value: tf.constant(value, dtype)  # noqa: E731
        if self._decayed[index] and self.decay:
            variable.assign_sub(variable * (learning_rate * constant(self.decay)))
        power_1, power_2 = self.powers(dtype, index)
        # The kernel multiplies the rate by sqrt(1 - power_2) / (1 - power_1).
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._first[index].value.handle,
            v=self._second[index].value.handle,
            beta1_power=power_1,
            beta2_power=power_2,
            lr=learning_rate,
            beta1=constant(self.beta_1),
            beta2=constant(self.beta_2),
            epsilon=constant(self.epsilon),
            grad=gradient,
        )


@tf.function(jit_compile=True, autograph=False)
def _update(
    variable, first, second, gradient, scale, rate, adam_rate, *, beta_1, beta_2, epsilon, decay
):
    """Updates a variable and its moments (their handles) from a gradient times a scalar."""
    read = functools.partial(tf.raw_ops.ReadVariableOp, dtype=gradient.dtype)
    gradient = gradient * scale
    mean = read(resource=first)
    mean += (1 - beta_1) * (gradient - mean)
    square = read(resource=second)
    square += (1 - beta_2) * (tf.square(gradient) - square)
    value = read(resource=variable)
    step = adam_rate * mean / (tf.sqrt(square) + epsilon)
    value -= step + rate * decay * value if decay else step
    for handle, new in ((first, mean), (second, square), (variable, value)):
        tf.raw_ops.AssignVariableOp(resource=handle, value=new)
