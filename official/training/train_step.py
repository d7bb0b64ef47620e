"""Updates a model: one step on every replica, and the loop of steps inside the graph.

The loss of an update is the sum of each term over all examples of the batch, divided by the sum of
its weights over the same examples. Replicas and accumulation steps compute parts of these sums, so
they change only the rounding. The weight sums are computed first, because they need no network.
They are summed over replicas and scale the loss of each part before its gradient is computed.

Shapes: A accumulation steps, K statistics of a step.
"""

from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from official.distribution import numerics, strategies
from official.distribution.memory import Memory
from official.distribution.statistics import Statistics
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.training.optimizers import Optimizer

_GOLDEN = 0x9E3779B1  # 2^32 / golden ratio, odd: spreads seeds over the 32-bit counter


def draws(seed: int, step: tf.Tensor, first: tf.Tensor, examples: int | tf.Tensor) -> Draws:
    """Returns the random numbers of a forward pass, a function of seed, step, site and row.

    Args:
      seed: the seed of the run.
      step: the number of the update, int32.
      first: the number of the first example in the batch of all replicas.
      examples: the number of examples of the pass.
    """
    base = np.uint32(seed * _GOLDEN % 2**32).view(np.int32)
    return Draws(tf.stack([step + base, 0]), first, examples)


class Steps(NamedTuple):
    """The statistics of some updates.

    Attributes:
      sums: [steps, K], the entries that `TrainStep.statistics` names.
      gradient_norms: [steps], global norms before clipping. If a norm is not finite, the update
        was skipped.
      bad_variables: int32 [steps], the index in `TrainStep.updated` of the first variable whose
        gradient was not finite; -1 = none.
    """

    sums: np.ndarray
    gradient_norms: np.ndarray
    bad_variables: np.ndarray


class TrainStep:
    """Updates a model under a strategy.

    Args:
      model: the model.
      optimizer: the optimizer, built for the model.
      strategy: the strategy to compute under.
      seed: the seed of dropout and of all other draws of the network.
      accumulation: A, the number of parts of a replica's batch.
      jit_compile: whether to compile the forward and the backward pass with XLA.
      memory: the memory of the rows; None if the encoder has none.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer,
        strategy: tf.distribute.Strategy,
        *,
        seed: int,
        accumulation: int = 1,
        jit_compile: bool = False,
        memory: Memory | None = None,
    ):
        numerics.restrict_graph_optimizer()
        self.model = model
        self.optimizer = optimizer
        self.strategy = strategy
        self.seed = seed
        self.accumulation = accumulation
        self.memory = memory
        optimizer.static_shapes = strategies.is_tpu(strategy)
        self.statistics = Statistics()
        self.updated: list[keras.Variable] = []
        self._sparse: list[bool] = []  # Whether the gradient of each of `updated` is sparse.
        self._compute = self._gradients
        if jit_compile:
            self._compute = tf.function(self._gradients, jit_compile=True, autograph=False)
        self._loop = tf.function(self._run, autograph=False, reduce_retracing=True)

    def run(self, iterator, steps: int) -> Steps:
        """Runs `steps` updates inside the graph."""
        rows = self._loop(iterator, tf.constant(steps, tf.int32)).numpy()  # [steps, K + 2]
        count = len(self.statistics.names)
        return Steps(rows[:, :count], rows[:, count], rows[:, count + 1].astype(np.int32))

    def _run(self, iterator, steps: tf.Tensor) -> tf.Tensor:
        def body(i, rows):
            result = self.strategy.run(self.replica_step, args=(next(iterator),))
            local = self.strategy.experimental_local_results(result)[0]
            return i + 1, rows.write(i, local)

        rows = tf.TensorArray(keras.config.floatx(), size=steps, infer_shape=False)
        _, rows = tf.while_loop(
            lambda i, _: i < steps, body, (tf.constant(0), rows), parallel_iterations=1
        )
        return rows.stack()

    def replica_step(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Computes one replica's part of an update; returns a row [K + 2] for `run`."""
        context = tf.distribute.get_replica_context()
        floatx = keras.config.floatx()
        totals = self._term_totals(batch, context)
        scales = {
            name: tf.math.divide_no_nan(tf.cast(self.model.term_weights[name], floatx), total)
            for name, total in totals.items()
        }
        step = tf.cast(self.optimizer.iterations.value, tf.int32)
        first = context.replica_id_in_sync_group * self.accumulation
        if self.memory is not None:
            batch = self.memory.read(batch)
        (dense, statistics), joined = self._accumulated(batch, scales, step, first)
        gradients, memory = self._with_rows(dense, joined)
        if self.memory is not None:
            self.memory.write(*memory)
        # The loss of a head has weight 0 in the batches of other tasks.
        heads = dict.fromkeys(self.optimizer.heads.values())
        active_heads = {head: totals[head] > 0 for head in heads}
        self.optimizer.apply(gradients, self.updated, active_heads)
        outcome = [self.optimizer.gradient_norm.value, self.optimizer.bad_variable.value]
        outcome = tf.stack([tf.cast(value, floatx) for value in outcome])
        statistics = context.all_reduce(tf.distribute.ReduceOp.SUM, statistics)
        return tf.concat([statistics, outcome], axis=0)

    def _term_totals(self, batch: Mapping[str, tf.Tensor], context) -> dict[str, tf.Tensor]:
        """Returns the sum of the weights of each term over the batches of all replicas."""
        weights = self.model.weight_sums(batch)
        floatx = keras.config.floatx()
        local = tf.stack([tf.cast(weight, floatx) for weight in weights.values()])
        totals = context.all_reduce(tf.distribute.ReduceOp.SUM, local)
        return {name: totals[i] for i, name in enumerate(weights)}

    def _accumulated(self, batch, scales, step, first):
        """Returns what `_gradients` returns for a replica's batch, from its parts.

        The first result is summed over the parts, and the tensors of the second are joined. `first`
        is the number of the first part, over all replicas.
        """

        def part(a):
            return self._compute(self._part(batch, a), scales, step, first + a)

        sums, joined = part(0)
        if self.accumulation == 1:
            return sums, joined
        shapes = [[self.accumulation * x.shape[0], *x.shape[1:]] for x in joined]
        arrays = [tf.TensorArray(x.dtype, self.accumulation, element_shape=x.shape) for x in joined]

        def write(arrays, a, tensors):
            return [array.write(a, x) for array, x in zip(arrays, tensors, strict=True)]

        def add(a, sums, arrays):
            more, tensors = part(a)
            return a + 1, tf.nest.map_structure(tf.add, sums, more), write(arrays, a, tensors)

        _, sums, arrays = tf.while_loop(
            lambda a, *_: a < self.accumulation,
            add,
            (tf.constant(1), sums, write(arrays, 0, joined)),
            parallel_iterations=1,
        )
        return sums, [
            tf.ensure_shape(array.concat(), shape)
            for array, shape in zip(arrays, shapes, strict=True)
        ]

    def _part(self, batch: Mapping[str, tf.Tensor], a) -> dict[str, tf.Tensor]:
        if self.accumulation == 1:
            return dict(batch)

        def rows(x):
            return tf.reshape(x, tf.concat([[self.accumulation, -1], tf.shape(x)[1:]], axis=0))

        parts = {}
        for name, value in batch.items():
            part = rows(value)[a]
            size = value.shape[0]
            if size is not None:
                part = tf.ensure_shape(part, [size // self.accumulation, *value.shape[1:]])
            parts[name] = part
        return parts

    def _gradients(self, batch, scales, step, number):
        """Returns gradients and statistics of a part of a batch, and what parts do not add up.

        This is the memory of its rows, then the values and the row numbers of each sparse gradient.
        `number` is that of the part, over all replicas.
        """
        weights = batch["example_weights"]
        examples = weights.shape[0] or tf.shape(weights)[0]
        rng = draws(self.seed, step, number * examples, examples)
        variables = self.model.trainable_variables
        prepared = self.model.prepare(batch, rng)
        encoded = self.model.encode_as_read(prepared, rng)
        losses, metrics = self.model.terms(prepared, rng, encoded)
        loss = tf.reduce_sum(tf.stack([losses[name] * scales[name] for name in losses]))
        gradients = tf.gradients(
            loss,
            [variable.value for variable in variables],
            aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
        )
        reached = [i for i, gradient in enumerate(gradients) if gradient is not None]
        takes_rows = self.optimizer.takes_rows
        self._sparse = [takes_rows(gradients[i], variables[i]) for i in reached]
        # Variables that no loss depends on (a pooler without its objective) are not updated.
        self.updated = [variables[i] for i in reached]
        weights = self.model.weight_sums(batch)
        statistics = self.statistics.pack(losses, weights, metrics, batch)
        joined = [] if self.memory is None else [encoded["memory"], encoded["memory_mask"]]
        dense = []
        for i, sparse in zip(reached, self._sparse, strict=True):
            if sparse:
                joined += [gradients[i].values, gradients[i].indices]
            else:
                dense.append(tf.convert_to_tensor(gradients[i]))
        return (dense, statistics), joined

    def _with_rows(self, dense: list, joined: list) -> tuple[list, list]:
        """Returns the gradients of all variables, and the memory, of results of `_gradients`."""
        first = len(joined) - 2 * sum(self._sparse)
        slices, tensors = iter(joined[first:]), iter(dense)
        gradients = [
            tf.IndexedSlices(next(slices), next(slices), tf.constant([*variable.shape]))
            if sparse
            else next(tensors)
            for variable, sparse in zip(self.updated, self._sparse, strict=True)
        ]
        return gradients, joined[:first]
