"""Computes losses, metrics and predictions of a model without dropout on all batches of a source.

`ReplicaLoop` runs a function on all replicas; `Evaluator` gives it the steps of evaluation and of
prediction.

Shapes: B examples of a batch, K sums (statistics).
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import keras
import numpy as np
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset, each_batch
from official.data.collection import Collection, Measured, Texts
from official.data.mixture import Data, Mixture
from official.distribution import memory, numerics
from official.distribution.numerics import restrict_graph_optimizer
from official.distribution.statistics import Statistics
from official.distribution.strategies import can_lose, compare_all_rows, distribute
from official.evaluation import language_models, rows, searches
from official.modeling import token_loop
from official.modeling.model import Model
from official.shards import parsing
from official.tasks import AVERAGE, kinds
from official.utils import gfile
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress, Report, signs

Outputs = dict[str, np.ndarray]
# A replica returns sums [K], which are added up, and outputs [B, ...], which are gathered.
Step = Callable[[Mapping[str, tf.Tensor]], tuple[tf.Tensor, dict[str, tf.Tensor]]]
# Outputs that are fields of the batch, and the names of these fields.
_FIELDS = {name: name for name in ("example_weights", "row", "text_hashes")} | {
    rows.target_name(kind): kind.targets[0] for kind in kinds.KINDS.values() if kind.output
}


class Scorer(Protocol):
    """Computes metrics of a task's predictions and writes them to files.

    `official.tasks.kinds` names the module of each kind of task. A scorer is made from a config and
    a source.

    Attributes:
      outputs: the names of the predictions that it reads.
    """

    outputs: tuple[str, ...]

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Computes the task's metrics. Filler in `outputs` has `example_weights` of 0."""

    def check_output(self, output: AnyPath) -> None:
        """Raises UserError if predictions cannot be written to a file of this name."""

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath) -> None:
        """Writes the predictions. `outputs` has no filler."""


class Predictor(Protocol):
    """Predicts the examples of a source: an `Evaluator`, or the mean of several models.

    Attributes:
      strategy: where it computes.
    """

    strategy: tf.distribute.Strategy

    def predict(self, source: ShardDataset, names: Sequence[str]) -> Outputs:
        """See `Evaluator.predict`."""

    def scorer(self, source: ShardDataset) -> Scorer:
        """Returns the scorer of a source's task."""


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
        source: ShardDataset | Texts,
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
          of positions [B, T] are padded to the longest T, whole numbers with -1 and others with 0;
          vectors of tokens [B, C, T, V] with 0.

        Raises:
          UserError: the source has no examples, or has changed while it was read.
        """
        progress = Progress(None, None)
        if report is not None:
            size = min(source.num_examples, batches * batch_size or source.num_examples)
            progress = Progress(size, report, f"{source.split}: ", "examples")
        sums: list[np.ndarray] = []
        outputs: list[dict[str, np.ndarray]] = []
        for number, batch in enumerate(self._batches(source, batch_size)):
            if batches and number == batches:
                break
            before_batch()
            with signs(f"{source.split}: making the graph", None if sums else report):
                row, output = self._graph(batch)
            sums.append(row.numpy())
            outputs.append({name: value.numpy() for name, value in output.items()})
            progress(batch_size)
        if not sums:
            raise UserError(f"{source.folder}: no {source.split} examples to evaluate on")
        joined = {name: _joined([output[name] for output in outputs]) for name in outputs[0]}
        return np.stack(sums), joined

    def _batches(self, source: ShardDataset | Texts, batch_size: int) -> Iterable:
        """Yields the batches; a run on one machine tries again to read one that cannot be read."""

        def read(start):
            return distribute(self._strategy, source, batch_size, start)

        lone = not can_lose(self._strategy)
        with parsing.reported(source.folder):
            yield from gfile.each(read, source.folder) if lone else read(0)
        source.check_unchanged()

    def _run(self, batch: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        with self._scope():  # Replicas are traced in other threads, so the scope is around all.
            sums, outputs = self._strategy.run(self._step, args=(batch,))
        sums = self._strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
        gather = lambda value: self._strategy.gather(value, axis=0)  # noqa: E731
        return sums, {name: gather(value) for name, value in outputs.items()}


def _joined(values: list[np.ndarray]) -> np.ndarray:
    """Concatenates the outputs of batches, after padding those of positions."""
    axis = {2: 1, 4: 2}.get(values[0].ndim)  # that of positions
    if axis is not None and len({value.shape[axis] for value in values}) > 1:
        width = max(value.shape[axis] for value in values)
        filler = -1 if np.issubdtype(values[0].dtype, np.integer) else 0

        def padded(value: np.ndarray) -> np.ndarray:
            behind = [(0, 0)] * value.ndim
            behind[axis] = (0, width - value.shape[axis])
            return np.pad(value, behind, constant_values=filler)

        values = [padded(value) for value in values]
    return np.concatenate(values)


def check_count(source: ShardDataset, found: int) -> None:
    """Raises UserError if a pass has found more or fewer examples than the split has."""
    if found != source.num_examples:
        raise UserError(
            f"{source.folder}: {found:,} of {source.num_examples:,} {source.split} examples were "
            "read: copy the folder again from where it is whole, or make the shards again"
        )


class Evaluator:
    """Evaluates a model and computes its predictions, in the dtype of its weights.

    The metrics during a run with mixed precision therefore equal those of `--mode=eval`.

    Args:
      config: the config of the model.
      model: the model.
      strategy: the strategy to compute under.
      before_batch: is called before each batch. An exception ends the evaluation.
      report: is called with lines of progress; None = there are none.
    """

    def __init__(
        self,
        config: configs.ResolvedConfig,
        model: Model,
        strategy: tf.distribute.Strategy,
        before_batch: Callable[[], None] = lambda: None,
        report: Report | None = None,
    ):
        self.config = config
        self.model = model
        self.strategy = strategy
        self.batch_size = config.recipe.eval_batch_size or config.recipe.batch_size
        self.statistics = Statistics()
        compare_all_rows(model)
        self._before_batch = before_batch
        self._report = report
        dtype = keras.config.dtype_policy().variable_dtype
        self.memory = memory.make_memory(config, strategy, self.batch_size, dtype)
        self._loop = self._loop_of(self.replica_step)
        self._generating: dict[int, ReplicaLoop] = {}  # by the length of the texts
        self._piece_bytes: np.ndarray | None = None  # of the tokenizer of a text
        self._scorer: tuple[ShardDataset, Scorer] | None = None

    def run(self, source: Measured, batches: int = 0) -> dict[str, float]:
        """Evaluates on a source. The rows of a stream start with an empty memory.

        Args:
          source: the examples.
          batches: the number of batches; 0 = all.

        Returns:
          `loss`, each loss term, each metric of the objectives, and the metrics of the task if
          there is one; of a language model on text also its perplexity and bits per byte. For a
          mixture, these metrics of each task with the task's name as a prefix,
          and the average of the first metrics of the tasks. For a test collection, the measures of
          a search.
        """
        if isinstance(source, Collection):
            return searches.metrics(source, self._vectors_of, searches.similarity_of(self.config))
        if isinstance(source, Mixture):
            return self._run_each(source, batches)
        if self.memory is not None:
            self.memory.clear()
        # The scorer is made first, because it refuses a model of another kind.
        scorer = self.scorer(source) if source.manifest.task else None
        self._piece_bytes = None if source.manifest.task else source.tokenizer.piece_bytes
        loop = self._loop_for(source)
        sums, outputs = loop.run(source, self.batch_size, batches, self._before_batch, self._report)
        metrics = self.statistics.summarize(sums, self.model.term_weights)
        metrics |= language_models.perplexities(metrics)
        if scorer is not None:
            head = f"{source.task_name}/"  # of this task, where the model has several
            mine = {name.removeprefix(head): value for name, value in outputs.items()}
            metrics |= scorer.metrics(mine)
        return metrics

    def predict(self, source: ShardDataset, names: Sequence[str]) -> Outputs:
        """Predicts the examples of a source.

        Args:
          source: the examples.
          names: the names of the predictions.

        Returns:
          These predictions and `row`, the number of each example in its file, in the order of the
          examples.

        Raises:
          UserError: the model has no such predictions, or the source has no row numbers.
        """
        head = f"{source.task_name}/"

        def step(batch):
            if generates(source):
                predictions = self._generated(source, batch, self.model.encode(batch))
            else:
                batch = self.model.prepare(batch, None)
                predictions = self.model.predictions(batch)
            predictions = {name.removeprefix(head): value for name, value in predictions.items()}
            if set(names) - set(predictions):
                raise UserError(
                    "this model has no classification, regression or ranking objective (or "
                    "several), so there is no prediction to write; its outputs are "
                    f"{', '.join(predictions) or 'none'}"
                )
            if "row" not in batch:
                raise UserError(
                    f"the {source.split} split has no row numbers: predictions need the shards of "
                    "a task, which build_task_shards makes"
                )
            fields = {name: batch[name] for name in ("row", "example_weights")}
            return tf.zeros([0]), {name: predictions[name] for name in names} | fields

        outputs = self._loop_of(step).run(source, self.batch_size, report=self._report)[1]
        real = outputs.pop("example_weights") > 0  # [B]
        check_count(source, int(real.sum()))
        return {name: value[real] for name, value in outputs.items()}

    def scorer(self, source: ShardDataset) -> Scorer:
        """Returns the scorer of a source's task, made once."""
        if self._scorer is None or self._scorer[0] is not source:
            kind = kinds.KINDS[source.task.kind]
            self._scorer = source, kinds.load(kind.scorer).Scorer(self.config, source)
        return self._scorer[1]

    def _vectors_of(self, texts: Texts) -> Outputs:
        """Returns the outputs of `searches.replica_step`."""
        return self._search_loop.run(texts, self.batch_size, before_batch=self._before_batch)[1]

    @functools.cached_property
    def _search_loop(self) -> ReplicaLoop:
        return self._loop_of(functools.partial(searches.replica_step, self.model))

    def _run_each(self, mixture: Mixture, batches: int) -> dict[str, float]:
        metrics: dict[str, float] = {}
        firsts = []
        for source in mixture.sources:
            task_metrics = self.run(source, batches)
            firsts.append(task_metrics[source.task.metrics[0]])
            others = [
                f"{other}{metric}"
                for other in mixture.tasks
                for metric in ("", "_accuracy", "_squared_error", "_mix")
                if other != source.task_name
            ]
            metrics |= {
                f"{source.task_name}/{name}": value
                for name, value in task_metrics.items()
                if name not in others
            }
        return {**metrics, AVERAGE: float(np.mean(firsts))}

    def _loop_for(self, source: ShardDataset) -> ReplicaLoop:
        """Returns the loop over the batches of a source, which may generate texts."""
        if not generates(source):
            return self._loop
        length = _target_length(source)
        if length not in self._generating:
            step = functools.partial(self.replica_step, source=source)
            self._generating[length] = self._loop_of(step)
        return self._generating[length]

    def _loop_of(self, step: Callable) -> ReplicaLoop:
        scope = functools.partial(numerics.without_mixed_precision, self.model)
        return ReplicaLoop(self.strategy, step, scope)

    def _generated(self, source: ShardDataset, batch, encoded) -> dict[str, tf.Tensor]:
        length = _target_length(source)
        end, padding = source.tokenizer.sep_id, source.tokenizer.pad_id
        ids = token_loop.greedy(self.model, batch, encoded, length, end, padding)
        return {"generated_ids": ids}

    def replica_step(
        self, batch: Mapping[str, tf.Tensor], source: ShardDataset | None = None
    ) -> tuple[tf.Tensor, dict]:
        """Evaluates a batch on one replica.

        Args:
          batch: the batch.
          source: the source of the examples, if texts are generated for them.

        Returns:
          The sums of `self.statistics` [K], and the predictions and targets of the batch.
        """
        if self.memory is not None:
            batch = self.memory.read(batch)
        batch = self.model.prepare(batch, None)
        encoded = self.model.encode_as_read(batch)
        if self.memory is not None:
            self.memory.write(encoded["memory"], encoded["memory_mask"])
        losses, metrics = self.model.terms(batch, encoded=encoded)
        if self._piece_bytes is not None:
            metrics |= language_models.byte_metrics(self.model, losses, batch, self._piece_bytes)
        statistics = self.statistics.pack(losses, self.model.weight_sums(batch), metrics, batch)
        outputs = dict(self.model.predictions(batch, encoded))
        if source is not None:
            outputs |= self._generated(source, batch, encoded)
        for name, field in _FIELDS.items():
            if field in batch:
                outputs[name] = batch[field]
        return statistics, outputs


def generates(source: ShardDataset) -> bool:
    """Returns whether the predictions for a source are texts that a decoder generates."""
    return source.manifest.task is not None and kinds.KINDS[source.task.kind].generates


def _target_length(source: ShardDataset) -> int:
    """Returns the length of the longest target, which a task of text to text has."""
    return source.task.max_target_length or 0


def target_entropy(source: Data, batch_size: int) -> float | None:
    """Computes the entropy, in nats, of the distribution of the masked tokens of a source.

    It is the loss of a model that knows the frequencies of the tokens and ignores the context.
    Returns None if the batches have no masked tokens.
    """
    counts = np.zeros(source.tokenizer.vocab_size)
    for batch in each_batch(source, batch_size):
        if "masked_ids" not in batch:
            return None
        ids, weights = batch["masked_ids"].numpy(), batch["masked_weights"].numpy()
        counts += np.bincount(ids.ravel(), weights.ravel() > 0, minlength=len(counts))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
