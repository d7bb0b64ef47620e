"""LAMB: Adam's direction, with a step relative to the norm of the weights (You et al., 2020)."""

from collections.abc import Sequence

import tensorflow as tf

from official.training.optimizers import column_blocks
from official.training.optimizers.base import TwoMoments, matches


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
            learning_rate *= column_blocks.by_column(ratios, variable)
        variable.assign_sub(update * learning_rate)


def _trust_ratios(variable, update, blocks):
    """Returns |w| / |u| of each column block, or 1 if one of them is 0."""
    weight_norm, update_norm = (
        tf.sqrt(column_blocks.sums_of_squares(x, blocks)) for x in (variable, update)
    )
    defined = (weight_norm > 0) & (update_norm > 0)
    ratio = tf.math.divide_no_nan(weight_norm, update_norm)
    return tf.where(defined, ratio, tf.ones_like(ratio))
