"""Runs a function over all batches of a source on all replicas, for evaluation and prediction.

Shapes: B examples of a batch, K sums.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import tensorflow as tf

from official.data import ShardDataset
from official.distribution.numerics import restrict_graph_optimizer
from official.distribution.strategies import can_lose, distribute
from official.shards import parsing
from official.utils import gfile
from official.utils.errors import UserError
from official.utils.progress import Progress, Report

Outputs = dict[str, np.ndarray]
# A replica returns sums [K], which are added up, and outputs [B, ...], which are gathered.
Step = Callable[[Mapping[str, tf.Tensor]], tuple[tf.Tensor, dict[str, tf.Tensor]]]


class ReplicaLoop:
    """Runs a function on every replica for each batch of a source.

    Args:
      strategy: distributes the batches.
      step: the function. It runs in a graph.
      scope: makes the context that the function is traced in, on all replicas.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Step,
        scope: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    ):
        # Training sets these options, too. So the results before and after it are the same.
        restrict_graph_optimizer()
        self._strategy = strategy
        self._step = step
        self._scope = scope
        self._graph: Callable = tf.function(self._run, autograph=False, reduce_retracing=True)

    def run(
        self,
        source: ShardDataset,
        batch_size: int,
        batches: int = 0,
        before_batch: Callable[[], None] = lambda: None,
        report: Report | None = None,
    ) -> tuple[np.ndarray, Outputs]:
        """Runs all batches of a source.

        Args:
          source: the examples.
          batch_size: B of all replicas together.
          batches: the number of batches; 0 = all.
          before_batch: is called before each batch. An exception ends the run.
          report: is called with lines of progress; None = there are none.

        Returns:
          The sums of each batch [batches, K], and the outputs of all examples and filler. Outputs
          of positions [B, T] are padded to the longest T, whole numbers with -1 and others with 0.

        Raises:
          UserError: the source has no examples.
        """
        progress = Progress(None, None)
        if report is not None:
            size = min(source.num_examples, batches * batch_size or source.num_examples)
            progress = Progress(size, report, f"{source.split}: ", "examples")
        sums, outputs = [], []
        for number, batch in enumerate(self._batches(source, batch_size)):
            if batches and number == batches:
                break
            before_batch()
            row, output = self._graph(batch)
            sums.append(row.numpy())
            outputs.append({name: value.numpy() for name, value in output.items()})
            progress(batch_size)
        if not sums:
            raise UserError(f"{source.folder}: no {source.split} examples to evaluate on")
        joined = {name: _joined([output[name] for output in outputs]) for name in outputs[0]}
        return np.stack(sums), joined

    def _batches(self, source: ShardDataset, batch_size: int) -> Iterable:
        """Yields the batches; a run on one machine tries again to read one that cannot be read."""

        def read(start):
            return distribute(self._strategy, source, batch_size, start)

        lone = not can_lose(self._strategy)
        with parsing.reported(source.folder):
            yield from gfile.each(read, source.folder) if lone else read(0)

    def _run(self, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        with self._scope():  # Replicas are traced in threads, so each cannot have its own.
            sums, outputs = self._strategy.run(self._step, args=(batch,))
        sums = self._strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
        gather = lambda value: self._strategy.gather(value, axis=0)  # noqa: E731
        return sums, {name: gather(value) for name, value in outputs.items()}


def _joined(values: list[np.ndarray]) -> np.ndarray:
    """Concatenates the outputs of batches, after padding those of positions."""
    if values[0].ndim == 2 and len({value.shape[1] for value in values}) > 1:
        width = max(value.shape[1] for value in values)
        filler = -1 if np.issubdtype(values[0].dtype, np.integer) else 0
        values = [
            np.pad(value, [(0, 0), (0, width - value.shape[1])], constant_values=filler)
            for value in values
        ]
    return np.concatenate(values)
