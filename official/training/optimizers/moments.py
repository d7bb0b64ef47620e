"""Optimizers with Adam's two moments: AdamW, StableAdamW, and LAMB for large batches."""

import functools
from collections.abc import Sequence

import keras
import tensorflow as tf

from official.training.optimizers import base
from official.training.optimizers.base import Optimizer, matches

# From this number of elements on, one pass saves more than its compilation costs.
COMPILED_SIZE = 1 << 16


class TwoMoments(Optimizer):
    """An optimizer that keeps Adam's first and second moments of every variable.

    Args:
      beta_1: how much of the mean of the gradients stays at each update.
      beta_2: how much of the mean of their squares stays.
      epsilon: added to the root of the second moment.
      bias_correction: divide the moments by `1 - b1^t` and `1 - b2^t` (t counts updates from 1),
        as Adam does; the releases of BERT, ALBERT and ELECTRA do not.
      options: those of `Optimizer`.
    """

    def __init__(
        self,
        learning_rate,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
        no_decay: Sequence[str] = ("bias", "norm"),
        clip_norm: float = 1.0,
        bias_correction: bool = False,
        **options,
    ):
        super().__init__(learning_rate, weight_decay, no_decay, clip_norm, **options)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = self.counts_updates = bias_correction

    def build(self, variables):
        """Makes the two moments of every variable."""
        if self.built:
            return
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(variables, ["m", "v"])

    def slots(self) -> dict[str, keras.Variable]:
        """First and second moments, `m` and `v`."""
        moments = zip(self._paths, self._first, self._second, strict=True)
        return {
            f"{path}/{name}": slot
            for path, first, second in moments
            for name, slot in (("m", first), ("v", second))
        }

    def powers(self, dtype: str, index: int) -> tuple[tf.Tensor, tf.Tensor]:
        """`b1^t` and `b2^t` of a variable's update in progress; 0 without bias correction."""
        if not self.bias_correction:
            return tf.constant(0.0, dtype), tf.constant(0.0, dtype)
        count = tf.cast(self.updates(index) + 1, dtype)
        return tf.constant(self.beta_1, dtype) ** count, tf.constant(self.beta_2, dtype) ** count


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


class StableAdamW(TwoMoments):
    """AdamW whose learning rate falls where gradients outgrow their second moment.

    It is for large rates without gradient clipping (Wortsman et al., 2023, section 3.2). This form
    is that of ModernBERT's release:

    `b^ = 1 - (1 - b) / (1 - b^t)` takes the place of each beta, so that the moments are unbiased;
    `r = sqrt(mean(g² / max(v, eps²)))` over the variable; `n = rate / max(1, r)`;
    `w -= n (m / (sqrt(v) + eps)) + (n / peak) decay w`. The decay is that of a step at the peak of
    the schedule, whatever the peak is.

    `r` is that of a whole variable: queries, keys and values that are joined have one, as there.
    Gate and inner map of a gated feed-forward network have one each, and in the release they are
    joined too.

    Args:
      peak: the largest learning rate.
      options: those of `TwoMoments`.
    """

    def __init__(self, learning_rate, *, peak: float, name: str = "stable_adamw", **options):
        super().__init__(learning_rate, bias_correction=True, name=name, **options)
        self.peak = peak

    def update_step(self, gradient, variable, learning_rate, index):
        """Updates the moments, then the variable."""
        dtype = variable.dtype
        constant = lambda value: tf.constant(value, dtype)  # noqa: E731
        power_1, power_2 = self.powers(dtype, index)
        first, second = self._first[index].value, self._second[index].value
        share = constant(1 - self.beta_1) / (1 - power_1)
        first = first.assign_add((gradient - first) * share, read_value=True)
        share = constant(1 - self.beta_2) / (1 - power_2)
        second = second.assign_add((tf.square(gradient) - second) * share, read_value=True)
        floor = constant(self.epsilon**2)
        excess = tf.reduce_mean(tf.square(gradient) / tf.maximum(second, floor))
        learning_rate /= tf.maximum(constant(1.0), tf.sqrt(excess))
        update = learning_rate * first / (tf.sqrt(second) + constant(self.epsilon))
        if self._decayed[index] and self.decay:
            peak = constant(self.peak * self._rate_factors[index])
            update += variable * (learning_rate / peak * constant(self.decay))
        variable.assign_sub(update)


class LAMB(TwoMoments):
    """Layer-wise adaptive moments for large batches (You et al., 2020, algorithm 2).

    `m` and `v` are those of Adam. For each variable, `u = m / (sqrt(v) + eps) + decay w` and
    `w -= rate (|w| / |u|) u`. The quotient of the norms, the trust ratio, is 1 if one of them is 0.
    Each column block of a variable has a ratio of its own.
    The paper and tensorflow-addons have `bias_correction` (m and v divided by `1 - b1^t` and
    `1 - b2^t`). ALBERT's release (`lamb_optimizer.py`) and the default here do not.

    Args:
      no_adaptation: regular expressions. A variable whose path matches one of them has the trust
        ratio 1. None = those of `no_decay`, as in tensorflow-addons and in ALBERT's release.
      options: those of `TwoMoments`.
    """

    reads_norms = True

    def __init__(
        self,
        learning_rate,
        *,
        no_adaptation: Sequence[str] | None = None,
        name: str = "lamb",
        **options,
    ):
        super().__init__(learning_rate, name=name, **options)
        self.no_adaptation = self.no_decay if no_adaptation is None else tuple(no_adaptation)

    def build(self, variables):
        """Makes the moments, and determines which variables have a trust ratio."""
        if self.built:
            return
        super().build(variables)
        self._adapted = [not matches(self.no_adaptation, variable) for variable in variables]

    def update_step(self, gradient, variable, learning_rate, index):
        """Updates the moments, then the variable."""
        dtype = variable.dtype
        constant = lambda value: tf.constant(value, dtype)  # noqa: E731
        first, second = self._first[index].value, self._second[index].value
        # Increments need one buffer less than an assignment of the new mean.
        first = first.assign_add((gradient - first) * constant(1 - self.beta_1), read_value=True)
        second = second.assign_add(
            (tf.square(gradient) - second) * constant(1 - self.beta_2), read_value=True
        )
        power_1, power_2 = self.powers(dtype, index)
        # m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), with the scalars combined.
        root = tf.sqrt(1 - power_2)
        update = first * (root / (1 - power_1))
        update /= tf.sqrt(second) + constant(self.epsilon) * root
        if self._decayed[index] and self.decay:
            update += variable * constant(self.decay)
        if self._adapted[index]:
            ratios = _trust_ratios(variable, update, self._blocks[index])
            learning_rate *= base.by_column(ratios, variable)
        variable.assign_sub(update * learning_rate)


def _trust_ratios(variable, update, blocks):
    """Returns |w| / |u| of each column block, or 1 if one of them is 0."""
    weight_norm, update_norm = (
        tf.sqrt(base.sums_of_squares(x, blocks)) for x in (variable, update)
    )
    defined = (weight_norm > 0) & (update_norm > 0)
    ratio = tf.math.divide_no_nan(weight_norm, update_norm)
    return tf.where(defined, ratio, tf.ones_like(ratio))
