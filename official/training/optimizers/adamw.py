"""AdamW as in the release of BERT."""

import tensorflow as tf

from official.training.optimizers.base import TwoMoments


class AdamW(TwoMoments):
    """Adam with decoupled weight decay, by default without bias correction.

    `m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; w -= rate (m / (sqrt(v) + eps) + decay w)`
    (`AdamWeightDecayOptimizer` of the BERT release). With `bias_correction` the rate becomes
    `rate * sqrt(1 - b2^t) / (1 - b1^t)` for the first of the two terms (Loshchilov and Hutter).
    """

    def update_step(self, gradient, variable, learning_rate, index):
        """Updates the variable and its moments in one fused operation."""
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
