"""Optimizers that reduce, check, clip and update, in that order, under every strategy.

Keras' own optimizers clip before the gradients of the replicas are summed, square the slices of
a repeated embedding row before they are summed, and let one replica's NaN reach the weights of
all. Here each replica passes the gradient of *its share of the summed loss*. The sum over replicas
is dense, except of tables of which an optimizer updates single rows. If its global norm is not
finite, the whole update is skipped.

*Column blocks*: layers join matrices that read the same input by column. Queries, keys and values
of attention are one kernel, and their biases one vector. The published systems have a variable for
each. The layer declares how many blocks of equal size the last axis of such a variable has
(`official.modeling.layers.linear`). An optimizer that reads a norm of a whole variable reads one of
each block instead.

Shapes: C columns, K column blocks.
"""

import functools
import re
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

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
      first_steps: the number of steps before the first update of a variable, by its path. Until
        then its gradient has no part in the norm. Others are updated from the start.
      heads: the head that a variable belongs to, by the path of the variable. A step may leave out
        heads (see `apply`). Variables of no head are updated in every step.

    After `apply` or `apply_part`, `gradient_norm` holds the global norm before clipping (not
    finite: nothing was updated) and `bad_variable` the number of the first variable, in the order
    of the call, whose gradient was not finite (-1: none).

    Attributes:
      counts_updates: whether updates depend on their number (see `updates`).
      reads_norms: whether updates depend on norms of a variable. Such an optimizer reads one for
        each of its column blocks (see `count_blocks`).
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
        first_steps: Mapping[str, int] | None = None,
        heads: Mapping[str, str] | None = None,
        name: str = "optimizer",
    ):
        super().__init__(learning_rate=learning_rate, name=name)
        self.decay = weight_decay
        self.no_decay = tuple(no_decay)
        self.clip_norm = clip_norm
        self.rate_factors = rate_factors
        self.first_steps = first_steps or {}
        self.heads = heads or {}
        self._active_heads: Mapping[str, tf.Tensor] = {}

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
        self._blocks = [count_blocks(variable) for variable in variables]
        self._first_steps = [self.first_steps.get(variable.path, 0) for variable in variables]
        self._heads = [self.heads.get(variable.path) for variable in variables]
        # How many updates the variables of each head have seen.
        heads = sorted(set(self.heads.values())) if self.counts_updates else ()
        self._updates = {head: self._scalar(f"updates_{head}", "int64") for head in heads}

    def updates(self, index: int) -> tf.Tensor:
        """Returns the number of updates that a variable has seen, without the one in progress."""
        head = self._heads[index]
        counter = self._updates[head] if head in self._updates else self.iterations
        count = counter.value
        return count - self._first_steps[index] if self._first_steps[index] else count

    def takes_rows(self, grad: tf.Tensor | tf.IndexedSlices, variable: keras.Variable) -> bool:
        """Returns whether a gradient stays sparse, because it has fewer rows than its variable."""
        if not (self.updates_rows and isinstance(grad, tf.IndexedSlices)):
            return False
        count = grad.indices.shape[0]
        return count is not None and count < variable.shape[0]

    def apply(self, grads, trainable_variables=None, active_heads: Mapping[str, tf.Tensor] = {}):
        """Updates variables from one replica's share of their gradients.

        Args:
          grads: one for each variable; slices stay sparse where `takes_rows` says so.
          trainable_variables: None = all.
          active_heads: by the name of a head, whether this step has examples for it: bool scalars,
            equal on all replicas. The weights and moments of a head without examples stay as they
            are. A head without an entry is updated.
        """
        self._active_heads = active_heads
        super().apply(grads, trainable_variables)
        for head, count in self._updates.items():
            count.assign_add(tf.cast(active_heads.get(head, True), tf.int64))

    def apply_part(self, grads, variables):
        """Updates some variables before `apply` updates the others of the step.

        Each call checks and clips the gradients that it gets. The step is counted by `apply`.
        """
        self._active_heads = {}
        self.update_all(grads, variables, self.learning_rate)

    def _scalar(self, name: str, dtype: str):
        return self.add_variable(
            (), initializer="zeros", dtype=dtype, name=name, aggregation="only_first_replica"
        )

    def update_all(self, grads, variables, learning_rate):
        """Sums the gradients over replicas, checks and clips them, and updates the variables."""
        context = tf.distribute.get_replica_context()
        grads = self._reduced(grads, variables, context)
        values = [grad[0] if isinstance(grad, tuple) else grad for grad in grads]
        squares = tf.stack([tf.cast(2 * tf.nn.l2_loss(v), keras.config.floatx()) for v in values])
        firsts = [self._first_steps[self._paths.index(variable.path)] for variable in variables]
        begun = {n: self.iterations.value >= n for n in sorted(set(firsts) - {0})}
        if begun:
            learning = tf.stack([begun.get(n, tf.constant(True)) for n in firsts])
            squares = tf.where(learning, squares, tf.zeros_like(squares))
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
            args=(grads, variables, finite, begun, dict(self._active_heads), learning_rate, scale),
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
        reduced = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, dense) if dense else ())
        return [
            _summed_rows(grad, context, self.static_shapes) if rows else next(reduced)
            for grad, rows in zip(grads, sparse, strict=True)
        ]

    def _update_on_all_replicas(
        self, strategy, grads, variables, finite, begun, active_heads, learning_rate, scale
    ):
        """Updates variables where their update is due.

        It runs in cross-replica context: tensors are per-replica values, equal on all. Nothing of
        an update is kept where any part of it is not finite, so variables are not updated one by
        one: those of a head and of a first step share a condition.
        """
        groups: dict[tuple[str | None, int], list] = {}
        for variable, grad in zip(variables, grads, strict=True):
            index = self._paths.index(variable.path)
            head = self._heads[index] if self._heads[index] in active_heads else None
            group = groups.setdefault((head, self._first_steps[index]), [])
            group.append((variable, grad, index))
        for (head, first), group in groups.items():
            due = _local(strategy, finite)
            if head is not None:
                due &= _local(strategy, active_heads[head])
            if first:
                due &= _local(strategy, begun[first])
            tf.cond(
                due,
                functools.partial(self._update_group, strategy, group, learning_rate, scale),
                lambda: tf.constant(0),
            )

    def _update_group(self, strategy, group, learning_rate, scale):
        """Updates variables with their gradients and numbers; the result is without meaning."""
        for variable, grad, index in group:
            args = grad, learning_rate, scale, index
            strategy.extended.update(variable.value, self._update_one, args=args, group=False)
        return tf.constant(0)

    def _update_one(self, variable, grad, learning_rate, scale, index):
        """Updates one variable on its device."""
        values, rows = grad if isinstance(grad, tuple) else (grad, None)
        if scale is not None:
            scale = tf.cast(scale, values.dtype)
        # The rate, not the gradient, which Adam and LAMB divide by its own size.
        rate = tf.cast(learning_rate, variable.dtype) * self._rate_factors[index]
        if rows is not None:
            values = values if scale is None else values * scale
            self.update_rows(values, rows, variable, rate, index)
        else:
            self.update_scaled(values, scale, variable, rate, index)

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


def _local(strategy: tf.distribute.Strategy, values) -> tf.Tensor:
    """Returns the value of this worker's first replica."""
    return strategy.experimental_local_results(values)[0]


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


def count_blocks(variable: keras.Variable) -> int:
    """Returns the number of column blocks that the layer of a variable has declared, or 1."""
    return getattr(variable, "column_blocks", 1)


def sums_of_squares(x: tf.Tensor, blocks: int) -> tf.Tensor:
    """Returns the sum of squares of each column block of x [..., C]: [K], or [] of one block."""
    if blocks == 1:
        return 2 * tf.nn.l2_loss(x)
    of_columns = tf.reduce_sum(tf.square(x), axis=list(range(x.shape.rank - 1)))  # [C]
    return tf.reduce_sum(tf.reshape(of_columns, (blocks, -1)), axis=1)


def by_column(values: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Returns a value of each column block of x [..., C] for each of its columns: [C].

    A scalar, the value of the only block, is returned as it is.
    """
    if values.shape.rank == 0:
        return values
    return tf.repeat(values, x.shape[-1] // values.shape[0])
