"""Optimizers that reduce, check, clip and update, in that order, under every strategy.

Keras' own optimizers clip before the gradients of the replicas are summed, square the slices of
a repeated embedding row before they are summed, and let one replica's NaN reach the weights of
all. Here each replica passes the gradient of *its share of the summed loss*. The sum over replicas
is dense, except of tables of which an optimizer updates single rows. If its global norm is not
finite, the whole update is skipped.
"""

import functools
import re
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from official.training.optimizers import column_blocks
from official.utils import keras_private


class Optimizer(keras_private.JointUpdateOptimizer):
    """What all our optimizers share: one update from the reduced gradient.

    Args:
      learning_rate: a number or a schedule.
      weight_decay: factor of the weight itself in its update.
      no_decay: regular expressions. Variables whose path matches one have no weight decay.
      clip_norm: largest global norm of the reduced gradient; 0 = no clipping.
      rate_factors: the factor of the learning rate by the path of the variable; None = 1 for all.
        Each variable needs a factor.
      heads: the head that a variable belongs to, by the path of the variable. A step may leave out
        heads (see `apply`). Variables of no head are updated in every step.

    After `apply`, `gradient_norm` holds the global norm before clipping (not finite: nothing was
    updated) and `bad_variable` the number of the first variable, in the order of the call, whose
    gradient was not finite (-1: none).

    Attributes:
      counts_updates: whether updates depend on their number (see `updates`).
      reads_norms: whether updates depend on norms of a variable. Such an optimizer reads one for
        each of its column blocks (see `column_blocks`).
      updates_rows: whether the optimizer updates single rows of a table (`update_rows`). It may if
        rows with a gradient of 0 do not change.
      static_shapes: whether updates have static shapes only and no operation that XLA lacks, as a
        TPU needs them. Updates of rows are then slower on a CPU.
    """

    counts_updates = False
    reads_norms = False
    updates_rows = False
    static_shapes = False

    def __init__(
        self,
        learning_rate,
        weight_decay: float = 0.0,
        no_decay: Sequence[str] = (),
        clip_norm: float = 0.0,
        rate_factors: Mapping[str, float] | None = None,
        heads: Mapping[str, str] | None = None,
        name: str = "optimizer",
    ):
        super().__init__(learning_rate=learning_rate, name=name)
        self.decay = weight_decay
        self.no_decay = tuple(no_decay)
        self.clip_norm = clip_norm
        self.rate_factors = rate_factors
        self.heads = heads or {}
        self._asked: Mapping[str, tf.Tensor] = {}

    def build(self, variables):
        """Makes the slots: `variables` are all that will ever be updated."""
        if self.built:
            return
        super().build(variables)
        self.gradient_norm = self._scalar("gradient_norm", keras.config.floatx())
        self.bad_variable = self._scalar("bad_variable", "int32")
        self._paths = [variable.path for variable in variables]
        self._decayed = [not matches(self.no_decay, variable) for variable in variables]
        self._rate_factors = [
            1.0 if self.rate_factors is None else self.rate_factors[variable.path]
            for variable in variables
        ]
        self._blocks = [column_blocks.count(variable) for variable in variables]
        self._heads = [self.heads.get(variable.path) for variable in variables]
        # How many updates the variables of each head have seen.
        heads = sorted(set(self.heads.values())) if self.counts_updates else ()
        self._updates = {head: self._scalar(f"updates_{head}", "int64") for head in heads}

    @property
    def joined(self) -> list[str]:
        """The paths of the variables of which the optimizer reads a norm of each column block."""
        pairs = zip(self._paths, self._blocks, strict=True)
        return [path for path, blocks in pairs if self.reads_norms and blocks > 1]

    def converted(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the state of an earlier version in the shapes of this one.

        Args:
          arrays: by path, as in `variables_by_path`.
        """
        return dict(arrays)

    def updates(self, index: int) -> tf.Tensor:
        """Returns the number of updates that a variable has seen, without the one in progress."""
        return self._updates.get(self._heads[index], self.iterations).value

    def takes_rows(self, grad: tf.Tensor | tf.IndexedSlices, variable: keras.Variable) -> bool:
        """Returns whether a gradient stays sparse, because it has fewer rows than its variable."""
        if not (self.updates_rows and isinstance(grad, tf.IndexedSlices)):
            return False
        count = grad.indices.shape[0]
        return count is not None and count < variable.shape[0]

    def apply(self, grads, trainable_variables=None, asked: Mapping[str, tf.Tensor] = {}):
        """Updates variables from one replica's share of their gradients.

        Args:
          grads: one for each variable; slices stay sparse where `takes_rows` says so.
          trainable_variables: None = all.
          asked: by the name of a head, whether the examples of this step ask it: bool scalars,
            equal on all replicas. The weights and moments of a head that is not asked stay as they
            are. A head without an entry is asked.
        """
        self._asked = asked
        super().apply(grads, trainable_variables)
        for head, count in self._updates.items():
            count.assign_add(tf.cast(asked.get(head, True), tf.int64))

    def _scalar(self, name: str, dtype: str):
        return self.add_variable(
            (), initializer="zeros", dtype=dtype, name=name, aggregation="only_first_replica"
        )

    def decays(self, variable: keras.Variable) -> bool:
        """Whether weight decay applies to a variable that the optimizer was built with."""
        return self._decayed[self._paths.index(variable.path)]

    def update_all(self, grads, variables, learning_rate):
        """Sums the gradients over replicas, checks and clips them, and updates the variables."""
        context = tf.distribute.get_replica_context()
        grads = self._reduced(grads, variables, context)
        values = [grad[0] if isinstance(grad, tuple) else grad for grad in grads]
        squares = tf.stack([tf.cast(2 * tf.nn.l2_loss(v), keras.config.floatx()) for v in values])
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
            self._update_on_all_replicas,
            args=(grads, variables, finite, dict(self._asked), learning_rate, scale),
        )

    def _reduced(self, grads, variables, context) -> list:
        """Sums gradients over replicas: a tensor for each, or a pair of values and their rows."""
        sparse = [self.takes_rows(*pair) for pair in zip(grads, variables, strict=True)]
        # Converting sums the slices of an embedding row that occurs more than once. A sum of
        # gradients (`AddN`) stands on no device, and workers can only reduce what stands on one.
        dense = [
            tf.identity(tf.convert_to_tensor(grad))
            for grad, rows in zip(grads, sparse, strict=True)
            if not rows
        ]
        dense = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, dense) if dense else ())
        return [
            _summed_rows(grad, context, self.static_shapes) if rows else next(dense)
            for grad, rows in zip(grads, sparse, strict=True)
        ]

    def _update_on_all_replicas(
        self, strategy, grads, variables, finite, asked, learning_rate, scale
    ):
        """Runs in cross-replica context: tensors are per-replica values, equal on all."""

        def update_one(variable, grad, rate, factor, index):
            values, *rows = grad if isinstance(grad, tuple) else (grad,)
            if factor is not None:
                factor = tf.cast(factor, values.dtype)
            # The rate, not the gradient, which Adam and LAMB divide by its own size.
            rate = tf.cast(rate, variable.dtype) * self._rate_factors[index]
            if rows:
                values = values if factor is None else values * factor
                self.update_rows(values, *rows, variable, rate, index)
            else:
                self.update_scaled(values, factor, variable, rate, index)

        def update(head):
            for variable, grad in zip(variables, grads, strict=True):
                index = self._paths.index(variable.path)
                if (self._heads[index] if self._heads[index] in asked else None) == head:
                    strategy.extended.update(
                        variable.value,
                        update_one,
                        args=(grad, learning_rate, scale, index),
                        group=False,
                    )
            return tf.constant(0)

        # One condition for all variables: nothing of an update is kept where any part is bad.
        first = lambda values: strategy.experimental_local_results(values)[0]  # noqa: E731
        finite = first(finite)
        tf.cond(finite, lambda: update(None), lambda: tf.constant(0))
        for head, is_asked in asked.items():
            due = finite & first(is_asked)
            tf.cond(due, functools.partial(update, head), lambda: tf.constant(0))

    def update_scaled(self, gradient, scale, variable, learning_rate, index):
        """Updates one variable from its gradient times `scale`, a scalar; None = 1."""
        if scale is not None:
            gradient *= scale
        self.update_step(gradient, variable, learning_rate, index)

    def update_step(self, gradient, variable, learning_rate, index):
        """Updates one variable (a `tf.Variable`, on its device) and its slots."""
        raise NotImplementedError

    def update_rows(self, values, rows, variable, learning_rate, index):
        """Updates some rows of a variable and its slots, if `updates_rows`.

        `values` are the gradients of the rows `rows`, each of which is there once. With
        `static_shapes`, more rows with a gradient of 0 may be there, which may be repeated.
        """
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


def _summed_rows(
    grad: tf.IndexedSlices, context, static_shapes: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sums of slices over replicas, and the row of each: see `update_rows`."""
    values, indices = tf.identity(grad.values), tf.identity(grad.indices)
    if context.num_replicas_in_sync > 1:
        values, indices = (context.all_gather(part, axis=0) for part in (values, indices))
    if static_shapes:
        return _static_sums(values, indices)
    rows, numbers = tf.unique(indices)
    return tf.math.unsorted_segment_sum(values, numbers, tf.size(rows)), rows


def _static_sums(values: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sums of slices and the row of each, with static shapes.

    There are as many sums as slices: those at the end are 0, of row 0.
    """
    order = tf.argsort(indices)
    rows = tf.gather(indices, order)
    first = tf.concat([[True], rows[1:] != rows[:-1]], axis=0)
    numbers = tf.cumsum(tf.cast(first, tf.int32)) - 1
    count = indices.shape[0]
    sums = tf.math.unsorted_segment_sum(tf.gather(values, order), numbers, count)
    return sums, tf.maximum(tf.math.unsorted_segment_max(rows, numbers, count), 0)


def matches(patterns: Sequence[str], variable: keras.Variable) -> bool:
    """Whether one of some regular expressions finds something in the path of a variable."""
    return any(re.search(pattern, variable.path) for pattern in patterns)
