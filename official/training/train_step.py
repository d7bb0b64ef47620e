"""Updates a model: one step on every replica, and the loop of steps inside the graph.

The loss of an update is the sum of each term over all examples of the batch, divided by the sum of
its weights over the same examples. Replicas and accumulation steps compute parts of these sums, so
they change only the rounding. The weight sums are computed first, because they need no network.
They are summed over replicas and scale the loss of each part before its gradient is computed.

An objective that compares the rows of a batch with each other needs the vectors of all rows at
once, but not the layers behind them (Gao et al., 2021, "Scaling Deep Contrastive Learning Batch
Size under Memory Limited Setup"). With `cached_rows`, the vectors of the parts of a batch are
computed first, without a gradient, then the gradient of the loss with respect to the vectors of
all rows, and then each part again, with the product of its vectors and their gradients as its loss.
Dropout is a function of the number of a row, so both passes have the same.

A step has one stage, or two if a generator is `decoupled` (DeBERTa-v3's release): the generator
learns first. Then the encoder learns from the tokens that the generator drew before its update, and
reads its updated token table. Each stage has a gradient, a norm and an update of its own, and is
skipped by itself if its gradient is not finite. The number of the step rises once.

Shapes: B examples of a replica, A accumulation steps, P parts of a batch, K statistics of a step.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from official.distribution import numerics, strategies
from official.distribution.memory import Memory
from official.distribution.statistics import Statistics
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.modeling.objectives import base
from official.training.optimizers import Optimizer
from official.utils.errors import UserError

_GOLDEN = 0x9E3779B1  # 2^32 / golden ratio, odd: spreads seeds over the 32-bit counter
_SITES = 1 << 24  # more call sites of random draws than a stage has
_SLOPES = "vector_slopes"  # the batch field with the gradients of cached vectors


def draws(
    seed: int, step: tf.Tensor, first: tf.Tensor, examples: int | tf.Tensor, stage: int = 0
) -> Draws:
    """Returns the random numbers of a forward pass, a function of seed, step, site and row.

    Args:
      seed: the seed of the run.
      step: the number of the update, int32.
      first: the number of the first example in the batch of all replicas.
      examples: the number of examples of the pass.
      stage: the number of the stage in the step.
    """
    start = np.uint32(seed * _GOLDEN % 2**32).view(np.int32)
    return Draws(tf.stack([step + start, stage * _SITES]), first, examples)


def share_of(rows: int, most: int) -> int | None:
    """Returns how many of `rows` rows are computed at once, so that all parts have one size.

    Args:
      rows: the rows of a replica.
      most: the most rows at once. Less than half of them would take longer.

    Returns:
      The largest divisor of `rows` that is neither more than `most` nor at most half of it; None if
      there is none.
    """
    if rows <= most:
        return rows
    return next((n for n in range(most, most // 2, -1) if rows % n == 0), None)


@dataclasses.dataclass(eq=False)
class Stage:
    """A part of a step, with an update of its own.

    Attributes:
      number: its number in the step, from 0.
      objectives: what the variables learn from.
      variables: what may learn here.
      draws: the batch fields that a generator gives to the next stage; empty = the objectives read
        the encoder.
      updated: the variables that a loss depends on. It is set while the stage is traced.
      sparse: whether the gradient of each of `updated` is sparse.
    """

    number: int
    objectives: Sequence[base.Objective]
    variables: Sequence[keras.Variable]
    draws: Sequence[str] = ()
    updated: Sequence[keras.Variable] = ()
    sparse: Sequence[bool] = ()


def stages_of(model: Model) -> list[Stage]:
    """Returns the stages of a step."""
    first = [o for o in model.objectives if o.config.decoupled]
    if not first:
        return [Stage(0, model.objectives, model.trainable_variables)]
    (generator,) = first
    own = generator.trainable_variables
    others = [v for v in model.trainable_variables if not any(v is each for each in own)]
    rest = [o for o in model.objectives if o is not generator]
    drawn = ["token_ids", *sorted(generator.config.gives())]
    return [Stage(0, first, own, drawn), Stage(1, rest, others)]


class Steps(NamedTuple):
    """The statistics of some updates.

    Attributes:
      sums: [steps, K], the entries that `TrainStep.statistics` names.
      gradient_norms: [steps], global norms before clipping, of the gradients of all stages. If a
        norm is not finite, an update was skipped.
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

    Attributes:
      stages: the stages of a step.
      statistics: names the entries of `Steps.sums`.
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
        self.stages = stages_of(model)
        strategies.compare_all_rows(model)
        cached = [o for o in model.objectives if o.config.cached_rows]
        self._cached = cached[0] if cached else None  # It is then the only objective.
        compare = any(objective.compares_rows for objective in model.objectives)
        # XLA does not compile what replicas exchange. With cached rows, it is between the passes.
        exchanges = compare and strategy.num_replicas_in_sync > 1 and not cached
        self._compute, self._vectors = self._gradients, self._vectors_of
        if jit_compile and (strategies.is_tpu(strategy) or not exchanges):
            compiled = {"jit_compile": True, "autograph": False}
            self._compute = tf.function(self._gradients, **compiled)
            self._vectors = tf.function(self._vectors_of, **compiled)
        self._loop = tf.function(self._run, autograph=False, reduce_retracing=True)

    @property
    def updated(self) -> list[keras.Variable]:
        """The variables that a step updates, which is known once it is traced."""
        return [variable for stage in self.stages for variable in stage.updated]

    def run(self, iterator, steps: int) -> Steps:
        """Runs `steps` updates inside the graph."""
        rows = self._loop(iterator, tf.constant(steps, tf.int32)).numpy()  # [steps, K + 2]
        count = len(self.statistics.names)
        return Steps(rows[:, :count], rows[:, count], rows[:, count + 1].astype(np.int32))

    def graph(self, iterator, length: int) -> tf.Graph:
        """Traces a step and returns its graph.

        Args:
          iterator: that of `run`, which does not trace again.
          length: the most tokens of a row, if batches have different lengths.
        """
        spec = iterator.element_spec
        if _is_static(spec):
            one = tf.constant(1, tf.int32)
            return self._loop.get_concrete_function(iterator, one).graph
        longest = tf.nest.map_structure(lambda each: _longest(each, length), spec)

        def step(batch):
            return self.strategy.run(self.replica_step, args=(batch,))

        return tf.function(step, autograph=False).get_concrete_function(longest).graph

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
        weights = self.model.weight_sums(batch)
        totals = _summed_over_replicas(weights, context)
        step = tf.cast(self.optimizer.iterations.value, tf.int32)
        factors = {n: tf.cast(each, floatx) for n, each in self.model.term_weights.items()}
        factors |= {
            name: factors[name] * tf.cast(ramp, floatx)
            for name, ramp in self.model.ramps(step).items()
        }
        scales = {
            name: tf.math.divide_no_nan(factors[name], total) for name, total in totals.items()
        }
        parts = self._parts(batch)
        first = context.replica_id_in_sync_group * parts
        if self.memory is not None:
            batch = self.memory.read(batch)
        losses, metrics = {}, {}
        # One part of one replica has all rows, whose loss needs no cache.
        if self._cached is not None and (parts > 1 or context.num_replicas_in_sync > 1):
            batch, losses, metrics = self._with_slopes(batch, scales, step, first, parts)
        norms, bad_variables = [], []
        # The loss of a head has weight 0 in the batches of other tasks.
        heads = dict.fromkeys(self.optimizer.heads.values())
        active_heads = {head: totals[head] > 0 for head in heads}
        for stage in self.stages:
            (dense, more_losses, more_metrics), joined = self._summed(
                lambda part, number, stage=stage: self._compute(stage, part, scales, step, number),
                batch,
                first,
                parts,
            )
            losses, metrics = losses | more_losses, metrics | more_metrics
            gradients, others = _with_rows(stage, dense, joined)
            if stage.draws:
                batch = {**batch, **dict(zip(stage.draws, others, strict=True))}
                self.optimizer.apply_part(gradients, stage.updated)
            else:
                if self.memory is not None:
                    self.memory.write(*others)
                self.optimizer.apply(gradients, stage.updated, active_heads)
            norms.append(tf.identity(self.optimizer.gradient_norm.value))
            bad_variables.append(tf.identity(self.optimizer.bad_variable.value))
        statistics = self.statistics.pack(losses, weights, metrics, batch)
        statistics = context.all_reduce(tf.distribute.ReduceOp.SUM, statistics)
        outcome = tf.stack([tf.cast(x, floatx) for x in self._outcome(norms, bad_variables)])
        return tf.concat([statistics, outcome], axis=0)

    def _outcome(self, norms: list, bad_variables: list) -> list[tf.Tensor]:
        """Returns the norm of all gradients, and the number of the first bad one in `updated`.

        Args:
          norms: the norm of each stage.
          bad_variables: the number of each stage, in `updated` of the stage; -1 = none.
        """
        if len(norms) == 1:
            return [*norms, *bad_variables]
        first, second = bad_variables
        second = tf.where(second < 0, second, second + len(self.stages[0].updated))
        return [tf.norm(tf.stack(norms)), tf.where(first < 0, second, first)]

    def _parts(self, batch: Mapping[str, tf.Tensor]) -> int:
        """Returns P, the number of parts that the batch of a replica is computed in."""
        if self._cached is None:
            return self.accumulation
        rows, cached = batch["example_weights"].shape[0], self._cached
        share = share_of(rows, cached.config.cached_rows)
        if share is None:
            raise UserError(
                f"{cached.name}: cached_rows: {cached.config.cached_rows}: neither this nor a "
                f"number down to its half divides the {rows} examples of a replica "
                "(recipe.batch_size divided by the number of replicas): take another batch_size"
            )
        return rows // share

    def _with_slopes(self, batch, scales, step, first, parts: int):
        """Returns a batch with the gradients of the cached vectors of its rows, losses and metrics.

        Losses and metrics are those of `_gradients` for the whole batch.
        """
        assert self._cached is not None
        _, (vectors,) = self._summed(
            lambda part, number: self._vectors(part, step, number), batch, first, parts
        )
        terms = self._cached.terms_of_vectors(vectors, batch)
        loss = tf.add_n([loss * scales[name] for name, loss in terms.losses.items()])
        (slopes,) = tf.gradients(loss, [vectors])
        # The second pass would begin beside the first one, and take memory at the same time.
        with tf.control_dependencies([slopes]):
            batch = {name: tf.identity(field) for name, field in batch.items()}
        return {**batch, _SLOPES: tf.stop_gradient(slopes)}, terms.losses, terms.metrics

    def _summed(self, compute: Callable, batch, first, parts: int):
        """Returns what `compute` returns for a replica's batch, from its parts.

        The first result is summed over the parts, and the tensors of the second are joined.

        Args:
          compute: a function of a part of the batch and of its number.
          batch: the batch.
          first: the number of the first part, over all replicas.
          parts: P.
        """

        def part(a):
            return compute(self._part(batch, a, parts), first + a)

        sums, joined = part(0)
        if parts == 1:
            return sums, joined
        shapes = [[parts * x.shape[0], *x.shape[1:]] for x in joined]
        arrays = [tf.TensorArray(x.dtype, parts, element_shape=x.shape) for x in joined]

        def write(arrays, a, tensors):
            return [array.write(a, x) for array, x in zip(arrays, tensors, strict=True)]

        def add(a, sums, arrays):
            more, tensors = part(a)
            return a + 1, tf.nest.map_structure(tf.add, sums, more), write(arrays, a, tensors)

        # The loop would begin beside the first part, which takes the memory of two of them.
        with tf.control_dependencies([*tf.nest.flatten(sums), *joined]):
            second = tf.identity(tf.constant(1))
        _, sums, arrays = tf.while_loop(
            lambda a, *_: a < parts,
            add,
            (second, sums, write(arrays, 0, joined)),
            parallel_iterations=1,
        )
        return sums, [
            tf.ensure_shape(array.concat(), shape)
            for array, shape in zip(arrays, shapes, strict=True)
        ]

    def _part(self, batch: Mapping[str, tf.Tensor], a, count: int) -> dict[str, tf.Tensor]:
        """Returns part a of `count` parts of a batch."""
        if count == 1:
            return dict(batch)

        def rows(x):
            return tf.reshape(x, tf.concat([[count, -1], tf.shape(x)[1:]], axis=0))

        parts = {}
        for name, value in batch.items():
            part = rows(value)[a]
            size = value.shape[0]
            if size is not None:
                part = tf.ensure_shape(part, [size // count, *value.shape[1:]])
            parts[name] = part
        return parts

    def _encoded(self, stage: Stage, batch, step, number):
        """Returns a part of a batch after `prepare`, the outputs of the encoder, and the draws.

        The stage of a generator needs no encoder. `number` is that of the part, over all replicas.
        """
        weights = batch["example_weights"]
        examples = weights.shape[0] or tf.shape(weights)[0]
        rng = draws(self.seed, step, number * examples, examples, stage.number)
        prepared = self.model.prepare(batch, rng, stage.objectives)
        if stage.draws:
            return prepared, {}, rng
        return prepared, self.model.encode_as_read(prepared, rng, stage.objectives), rng

    def _vectors_of(self, batch, step, number):
        """Returns the vectors of a part of a batch, as parts are joined."""
        assert self._cached is not None
        return (), [self._cached.vectors(*self._encoded(self.stages[0], batch, step, number))]

    def _gradients(self, stage: Stage, batch, scales, step, number):
        """Returns what a stage computes for a part of a batch.

        Returns:
          What the parts add up to: the dense gradients, the losses and the metrics. With cached
          vectors the losses and metrics are known before, and there are none here.
          Then a list of what is joined: what a generator draws, or the memory of the rows; and the
          values and the row numbers of each sparse gradient.
        """
        variables = stage.variables
        prepared, encoded, rng = self._encoded(stage, batch, step, number)
        losses: dict[str, tf.Tensor] = {}
        metrics: dict[str, tuple[tf.Tensor, tf.Tensor]] = {}
        if self._cached is not None and _SLOPES in batch:
            vectors = self._cached.vectors(prepared, encoded, rng)
            loss = tf.reduce_sum(vectors * batch[_SLOPES])
        else:
            losses, metrics = self.model.terms(prepared, rng, encoded, stage.objectives)
            loss = tf.reduce_sum(tf.stack([losses[name] * scales[name] for name in losses]))
        gradients = tf.gradients(
            loss,
            [variable.value for variable in variables],
            aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE,
        )
        reached = [i for i, gradient in enumerate(gradients) if gradient is not None]
        takes_rows = self.optimizer.takes_rows
        stage.sparse = [takes_rows(gradients[i], variables[i]) for i in reached]
        # Variables that no loss depends on (a pooler without its objective) are not updated.
        stage.updated = [variables[i] for i in reached]
        joined = [prepared[name] for name in stage.draws]
        if self.memory is not None:
            joined = [encoded["memory"], encoded["memory_mask"]]
        dense = []
        for i, sparse in zip(reached, stage.sparse, strict=True):
            if sparse:
                joined += [gradients[i].values, gradients[i].indices]
            else:
                dense.append(tf.convert_to_tensor(gradients[i]))
        sums = tf.nest.map_structure(lambda x: tf.cast(x, keras.config.floatx()), (losses, metrics))
        return (dense, *sums), joined


def _is_static(spec) -> bool:
    """Returns whether the shapes of batches are known before they are read."""
    parts = tf.nest.flatten(spec, expand_composites=True)
    return all(each.shape.is_fully_defined() for each in parts)


def _longest(spec: tf.TypeSpec, length: int) -> tf.TypeSpec:
    """Returns the spec of a field, of one replica or of several, of rows of `length` tokens."""
    longer = [
        tf.TensorSpec([length if n is None else n for n in each.shape], each.dtype)
        for each in tf.nest.flatten(spec, expand_composites=True)
    ]
    return longer[0] if isinstance(spec, tf.TensorSpec) else type(spec)(*longer)


def _summed_over_replicas(weights: Mapping[str, tf.Tensor], context) -> dict[str, tf.Tensor]:
    """Returns the sum of the weights of each term over the batches of all replicas."""
    local = tf.stack([tf.cast(weight, keras.config.floatx()) for weight in weights.values()])
    totals = context.all_reduce(tf.distribute.ReduceOp.SUM, local)
    return {name: totals[i] for i, name in enumerate(weights)}


def _with_rows(stage: Stage, dense: list, joined: list) -> tuple[list, list]:
    """Returns the gradients of a stage, and what else is joined, of results of `_gradients`."""
    first = len(joined) - 2 * sum(stage.sparse)
    slices, tensors = iter(joined[first:]), iter(dense)
    gradients = [
        tf.IndexedSlices(next(slices), next(slices), tf.constant([*variable.shape]))
        if sparse
        else next(tensors)
        for variable, sparse in zip(stage.updated, stage.sparse, strict=True)
    ]
    return gradients, joined[:first]
