"""Scores a split without dropout, and without changing anything.

Shapes: K statistics, B examples.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from official import config as configs
from official.data import Source
from official.data.mixture import AVERAGE, Mixture
from official.distribution import memory
from official.distribution.numerics import keep_order_of_sums
from official.distribution.statistics import Statistics
from official.distribution.strategies import distribute
from official.evaluation import ranking_metrics, span_answers, task_metrics
from official.modeling.model import Model
from official.utils.errors import UserError

# What is handed back of a batch beside the predictions, and the field it stands in.
TARGETS = {
    "example_weights": "example_weights",
    "label": "label",
    "answer": "answer",
    "score_target": "score",
    "row": "row",
}


def target_entropy(source: Source, batch_size: int) -> float | None:
    """Entropy in nats of the frequencies of the tokens that a source asks for.

    It is the loss of a model that knows how often each of them is the answer, and nothing of the
    context. None where the batches have no masked tokens.
    """
    counts = np.zeros(source.tokenizer.vocab_size)
    for batch in source.dataset(batch_size):
        if "masked_ids" not in batch:
            return None
        ids, weights = batch["masked_ids"].numpy(), batch["masked_weights"].numpy()
        counts += np.bincount(ids.ravel(), weights.ravel() > 0, minlength=len(counts))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


class Evaluator:
    """Losses, metrics and the task's own metrics of a model's weights as they are.

    Args:
      config: as resolved.
      model: whose weights are read.
      strategy: that it computes under.
      before_batch: called before each batch; what it raises ends the evaluation.
    """

    def __init__(
        self,
        config: configs.Config,
        model: Model,
        strategy: tf.distribute.Strategy,
        before_batch: Callable[[], None] = lambda: None,
    ):
        keep_order_of_sums()
        self.batch_size = config.recipe.eval_batch_size or config.recipe.batch_size
        self._config = config
        self._questions: tuple[Source, span_answers.Answers] | None = None
        self.model = model
        self.strategy = strategy
        self._before_batch = before_batch
        self.statistics = Statistics()
        self._memory = memory.of(config, strategy, self.batch_size)
        self._step: Callable = tf.function(self._run, autograph=False, reduce_retracing=True)

    def run(self, source: Source | Mixture, batches: int = 0) -> dict[str, float]:
        """Scores a source; the rows of a stream start with an empty memory.

        Args:
          source: of which split.
          batches: how many batches to score; 0 = all.

        Returns:
          `loss`, each term, each metric, and the task's metrics where the data is a task's; of a
          mixture those of each task with its name before them, and the average of their first
          metrics.
        """
        if isinstance(source, Mixture):
            return self._run_each(source, batches)
        rows, outputs = [], []
        if self._memory is not None:
            self._memory.clear()
        for number, batch in enumerate(distribute(self.strategy, source, self.batch_size)):
            if batches and number == batches:
                break
            self._before_batch()
            row, output = self._step(batch)
            rows.append(row.numpy())
            outputs.append({name: value.numpy() for name, value in output.items()})
        if not rows:
            raise UserError(f"{source.folder}: no {source.split} examples to evaluate on")
        figures = self.statistics.summarise(np.stack(rows), self.model.term_weights)
        if source.manifest.task:
            head = f"{source.task_name}/"  # of this task, where the model has several
            merged = {
                name.removeprefix(head): np.concatenate([output[name] for output in outputs])
                for name in outputs[0]
            }
            if source.manifest.task.get("kind") == "ranking":
                figures |= ranking_metrics.evaluate(source, merged)
            elif source.manifest.task.get("kind") == "span":
                figures |= self._answers(source).figures(merged)
            else:
                figures |= task_metrics.evaluate(source.manifest.task, merged)
        return figures

    def _answers(self, source: Source) -> span_answers.Answers:
        """The questions of a source, read once."""
        if self._questions is None or self._questions[0] is not source:
            self._questions = source, span_answers.Answers(self._config, source)
        return self._questions[1]

    def _run_each(self, mixture: Mixture, batches: int) -> dict[str, float]:
        figures, firsts = {}, []
        for source in mixture.sources:
            found = self.run(source, batches)
            firsts.append(found[source.manifest.task["metrics"][0]])
            others = [
                f"{other}{metric}"
                for other in mixture.manifest.task["tasks"]
                for metric in ("", "_accuracy", "_squared_error")
                if other != source.task_name
            ]
            figures |= {
                f"{source.task_name}/{name}": value
                for name, value in found.items()
                if name not in others
            }
        return {**figures, AVERAGE: float(np.mean(firsts))}

    def _run(self, batch):
        statistics, outputs = self.strategy.run(self._replica_step, args=(batch,))
        statistics = self.strategy.reduce(tf.distribute.ReduceOp.SUM, statistics, axis=None)
        gather = lambda value: self.strategy.gather(value, axis=0)  # noqa: E731
        return statistics, {name: gather(value) for name, value in outputs.items()}

    def _replica_step(self, batch):
        if self._memory is not None:
            batch = self._memory.read(batch)
        batch = self.model.prepare(batch, None)
        encoded = self.model.encode_as_read(batch)
        if self._memory is not None:
            self._memory.write(encoded["memory"], encoded["memory_mask"])
        losses, metrics = self.model.terms(batch, encoded=encoded)
        statistics = self.statistics.pack(losses, self.model.weight_sums(batch), metrics, batch)
        outputs = dict(self.model.predictions(batch, encoded))
        for name, field in TARGETS.items():
            if field in batch:
                outputs[name] = batch[field]
        return statistics, outputs
