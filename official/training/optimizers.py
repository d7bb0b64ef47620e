"""Optimizers that reduce, check, clip and update, in that order, under every strategy.

Keras' own optimizers clip before the gradients of the replicas are summed, square the slices of
a repeated embedding row before they are summed, and let one replica's NaN reach the weights of
all. Here a replica hands over the gradient of *its share of the summed loss*; the sum over
replicas is made dense, its global norm is taken, and the update is left out as a whole where
that norm is not finite.
"""

import re
from collections.abc import Sequence

import keras
import tensorflow as tf

from official import config
from official.training import schedules


class Optimizer(keras.optimizers.Optimizer):
    """What all our optimizers share: one update from the reduced gradient.

    After `apply`, `gradient_norm` holds the global norm before clipping (not finite: nothing was
    updated) and `bad_variable` the number of the first variable, in the order of the call, whose
    gradient was not finite (-1: none).
    """

    def __init__(
        self,
        learning_rate,
        weight_decay: float = 0.0,
        no_decay: Sequence[str] = (),
        clip_norm: float = 0.0,
        name: str = "optimizer",
    ):
        super().__init__(learning_rate=learning_rate, name=name)
        self.decay = weight_decay
        self.no_decay = tuple(no_decay)
        self.clip_norm = clip_norm

    def build(self, variables):
        """Makes the slots: `variables` are all that will ever be updated."""
        if self.built:
            return
        super().build(variables)
        self.gradient_norm = self._scalar("gradient_norm", keras.config.floatx())
        self.bad_variable = self._scalar("bad_variable", "int32")
        self._decayed = [
            not any(re.search(pattern, variable.path) for pattern in self.no_decay)
            for variable in variables
        ]

    def _scalar(self, name: str, dtype: str):
        return self.add_variable(
            (), initializer="zeros", dtype=dtype, name=name, aggregation="only_first_replica"
        )

    def decays(self, variable: keras.Variable) -> bool:
        """Whether weight decay applies to a variable that the optimizer was built with."""
        return self._decayed[self._get_variable_index(variable)]

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # Converting sums the slices of an embedding row that occurs more than once.
        grads = [tf.convert_to_tensor(grad) for grad in grads]
        context = tf.distribute.get_replica_context()
        grads = context.all_reduce(tf.distribute.ReduceOp.SUM, grads)
        squares = tf.stack([tf.cast(2 * tf.nn.l2_loss(g), keras.config.floatx()) for g in grads])
        norm = tf.sqrt(tf.reduce_sum(squares))
        finite = tf.math.is_finite(norm)
        bad = tf.cast(tf.argmax(~tf.math.is_finite(squares)), tf.int32)
        self.gradient_norm.assign(norm)
        self.bad_variable.assign(tf.where(finite, -1, bad))
        if self.clip_norm:
            scale = tf.where(norm > self.clip_norm, self.clip_norm / norm, tf.ones_like(norm))
        else:
            scale = None
        context.merge_call(
            self._update_all, args=(grads, trainable_variables, finite, learning_rate, scale)
        )

    def _update_all(self, strategy, grads, variables, finite, learning_rate, scale):
        """Runs in cross-replica context: tensors are per-replica values, equal on all."""

        def update_one(variable, grad, rate, factor, index):
            if factor is not None:
                grad *= tf.cast(factor, grad.dtype)
            self.update_step(grad, variable, tf.cast(rate, variable.dtype), index)

        def update():
            for variable, grad in zip(variables, grads, strict=True):
                strategy.extended.update(
                    variable.value,
                    update_one,
                    args=(grad, learning_rate, scale, self._get_variable_index(variable)),
                    group=False,
                )
            return tf.constant(0)

        # One branch for all variables: nothing of an update is kept where any part is bad.
        first = strategy.experimental_local_results(finite)[0]
        tf.cond(first, update, lambda: tf.constant(0))

    def update_step(self, gradient, variable, learning_rate, index):
        """Updates one variable (a `tf.Variable`, on its device) and its slots."""
        raise NotImplementedError

    def slots(self) -> dict[str, keras.Variable]:
        """The state kept for each variable, by `PATH-OF-THE-VARIABLE/SLOT`."""
        raise NotImplementedError

    def variables_by_path(self) -> dict[str, keras.Variable]:
        """Every variable of the optimizer, for checkpoints.

        Raises:
          RuntimeError: two share a path, so that a checkpoint would lack one.
        """
        named = self.slots()
        known = {id(variable) for variable in named.values()}
        named |= {v.name: v for v in self.variables if id(v) not in known}
        if len(named) != len(self.variables):
            raise RuntimeError("two optimizer variables share a path")
        return named


class AdamW(Optimizer):
    """Adam with decoupled weight decay, as BERT was trained: without bias correction.

    `m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; w -= rate (m / (sqrt(v) + eps) + decay w)`
    (`AdamWeightDecayOptimizer` of the BERT release). With `bias_correction` the rate becomes
    `rate * sqrt(1 - b2^t) / (1 - b1^t)` for the first of the two terms (Loshchilov and Hutter).

    Args:
      learning_rate: a number or a schedule.
      no_decay: regular expressions; a variable whose path one of them finds does not decay.
      clip_norm: largest global norm of the reduced gradient; 0 = no clipping.
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
        name: str = "adamw",
    ):
        super().__init__(learning_rate, weight_decay, no_decay, clip_norm, name)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction

    def build(self, variables):
        """Makes the two moments of every variable."""
        if self.built:
            return
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(variables, ["m", "v"])

    def slots(self) -> dict[str, keras.Variable]:
        """First and second moments, `m` and `v`."""
        pairs = zip(self._trainable_variables, self._first, self._second, strict=True)
        return {
            f"{variable.path}/{name}": slot
            for variable, first, second in pairs
            for name, slot in (("m", first), ("v", second))
        }

    def update_step(self, gradient, variable, learning_rate, index):
        """One fused pass over the variable and its moments."""
        dtype = variable.dtype
        constant = lambda value: tf.constant(value, dtype)  # noqa: E731
        if self._decayed[index] and self.decay:
            variable.assign_sub(variable * (learning_rate * constant(self.decay)))
        power_1 = power_2 = constant(0.0)
        if self.bias_correction:
            count = tf.cast(self.iterations.value + 1, dtype)
            power_1, power_2 = constant(self.beta_1) ** count, constant(self.beta_2) ** count
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


def make(recipe: config.Recipe, steps: int) -> Optimizer:
    """The optimizer of a recipe that runs for `steps` updates."""
    settings = recipe.optimizer
    return AdamW(
        schedules.make(recipe, steps),
        beta_1=settings.beta_1,
        beta_2=settings.beta_2,
        epsilon=settings.epsilon,
        weight_decay=settings.weight_decay,
        no_decay=settings.no_decay,
        clip_norm=settings.clip_norm,
        bias_correction=settings.bias_correction,
    )
