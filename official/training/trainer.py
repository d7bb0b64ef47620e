"""The training loop of pretraining and fine-tuning.

Between reports, evaluations and saves the steps run inside the graph. The data and the random
draws of a step are a function of its number, so a run that was stopped continues from its last
checkpoint to the same weights, bit for bit.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from official import config as configs
from official.data.collection import Measured
from official.data.mixture import Data
from official.distribution import memory, numerics, strategies
from official.distribution.strategies import distribute
from official.evaluation.evaluator import Evaluator
from official.modeling.encoders.base import Encoder
from official.modeling.model import Model
from official.saving import checkpoints, metrics_log, named_arrays
from official.training import optimizers, reporting, resuming, step_memory, trainable
from official.training.hooks import (
    BestCheckpoint,
    Hook,
    SkippedUpdates,
    best_metric,
    measured_rows,
)
from official.training.stop_signal import Stopped, StopSignal
from official.training.train_step import Steps, TrainStep
from official.utils import keras_private, paths
from official.utils.errors import Diverged, UserError
from official.utils.paths import AnyPath

_SECONDS_IN_GRAPH = 3.0  # how long a signal waits at most, unless a single step takes longer


class Trainer:
    """Trains, evaluates, saves and resumes one model.

    Args:
      config: the resolved config, with encoder and objectives.
      model: the model of the config.
      source: the training examples.
      strategy: a strategy of `official.distribution.strategies`.
      model_dir: the model folder, which all workers share.
      allow_other_data: whether a resumed run may use other data than it began with.
      report: takes the lines to print, on the chief only.
      data_offset: what is added to the number of a step for the number of its batch, where earlier
        steps had other data.

    Attributes:
      variables: the variables of the model and of the optimizer, by their paths in a checkpoint.
      hooks: what watches the steps and the evaluations of the run.
      best: the best evaluation so far, which is one of the hooks.
    """

    def __init__(
        self,
        config: configs.ResolvedConfig,
        model: Model,
        source: Data,
        strategy: tf.distribute.Strategy,
        model_dir: AnyPath,
        allow_other_data: bool = False,
        report: Callable[[str], None] = reporting.print_line,
        data_offset: int = 0,
    ):
        self.config = config
        self._data_offset = data_offset
        self._report = report
        self.model = model
        self.source = source
        self.strategy = strategy
        self.model_dir = paths.path(model_dir)
        self.allow_other_data = allow_other_data
        self.chief = strategies.is_chief(strategy)
        self.total_steps = config.recipe.total_steps(source.num_examples)
        for objective in model.objectives:
            objective.total_steps = self.total_steps
        trainable.freeze(model, config.recipe)
        for layer in keras_private.sublayers(model):
            if isinstance(layer, Encoder):
                layer.recompute = config.recipe.recompute is not None
        with strategy.scope():
            self.optimizer = optimizers.make(config.recipe, self.total_steps, model)
        self.variables = {
            **model.variables_by_path(),
            **{
                f"{checkpoints.OPTIMIZER}{path}": variable
                for path, variable in self.optimizer.variables_by_path().items()
            },
        }
        dtype = keras.config.dtype_policy().compute_dtype
        self.memory = memory.make_memory(config, strategy, config.recipe.batch_size, dtype)
        self.train_step = TrainStep(
            model,
            self.optimizer,
            strategy,
            seed=config.seed,
            accumulation=config.recipe.accumulation,
            jit_compile=bool(config.recipe.jit_compile),
            memory=self.memory,
        )
        self._stop_signal = StopSignal(strategy)
        self.evaluator = Evaluator(
            config, model, strategy, self._stop_signal.check, report if self.chief else None
        )
        self.best = BestCheckpoint(
            self.model_dir,
            *best_metric(config, source.manifest.task),
            config.recipe.patience,
            self.chief,
        )
        skipped = SkippedUpdates(self.train_step, config.recipe.max_bad_steps, self.model_dir)
        self.hooks: tuple[Hook, ...] = (skipped, self.best)
        self._data = {"train": resuming.data_record(source)}
        self._metrics: dict[str, float] = {}  # of the evaluation at the current step
        self._first_step = 0  # the first step of a run that has no checkpoint yet
        self._saved: AnyPath | None = None  # the last checkpoint that the chief wrote

    def continue_from(self, init: str | os.PathLike, which: str) -> None:
        """Takes the weights, the state of the optimizer and the step of another run.

        This has no effect if this run has a checkpoint already. The memory of the rows of a stream
        is not taken, because the data may differ.

        Args:
          init: the model folder of the other run.
          which: its checkpoint, as in `checkpoints.find`.

        Raises:
          UserError: the models differ, or the other run is not shorter than this one.
        """
        checkpoint = checkpoints.load(init, which, optimizer=True)
        if checkpoint.step >= self.total_steps:
            raise UserError(
                f"--init={init}: its checkpoint is of step {checkpoint.step:,}, and this run ends "
                f"at {self.total_steps:,}: recipe.steps counts the steps of both"
            )
        named_arrays.assign(self.variables, checkpoint.variables, f"--init={init}")
        self._first_step = checkpoint.step

    def restore(self) -> int:
        """Restores the newest intact checkpoint of the model folder; returns the first step.

        Raises:
          UserError: no checkpoint is intact, it is of other data, or the workers have different
            checkpoints.
        """
        if self.chief:
            checkpoints.remove_leftovers(self.model_dir)
        checkpoint = resuming.on_all_workers(self.strategy, self._load, self._loaded_state)
        step = checkpoint.step if checkpoint else self._first_step
        if self._metrics:
            # The run may have been killed after it wrote this checkpoint and before it compared it.
            self._compare(step)
        self.best.write()
        return step

    def train(self, validation: Measured | None = None) -> dict[str, float]:
        """Trains to the end, and evaluates on `validation` if it is given.

        Returns:
          The metrics of the last evaluation; empty without `validation`.

        Raises:
          UserError: no gradient of `max_bad_steps` steps in a row was finite; the disk is full;
            the recipe has a `patience` and there is no `validation`; see also `restore`.
          Stopped: SIGTERM or SIGINT was received; the state is saved.
        """
        recipe = self.config.recipe
        if recipe.patience and validation is None:
            raise UserError(
                f"recipe.patience: {recipe.patience} evaluations, but this run makes none: train "
                "with --mode=train_and_eval and a validation split, or remove recipe.patience"
            )
        if validation is not None:
            self._data["validation"] = resuming.data_record(validation)
            most = recipe.eval_batches * self.evaluator.batch_size
            self.best.rows = measured_rows(self.best.metric, validation, most)
        step = self.restore()
        reporter = reporting.Reporter(
            self.model_dir, self.total_steps, step, not self.chief, self._report
        )
        with contextlib.closing(reporter), self._stop_signal.handled():
            if validation is not None and self._due(step) and not self._metrics:
                # The run was stopped before this evaluation, or had no validation data.
                self._evaluate(step, validation, reporter)
            elif self._metrics:
                # It was stopped between the checkpoint with the metrics and the report of them.
                reporter.again(step, self._metrics, "validation")
            if step >= self.total_steps:
                reporter.say(f"{self.model_dir}: trained already, to step {step}")
            elif self._reason_to_stop():
                reporter.say(f"{self.model_dir}: {self._end_line(step)}")
            else:
                if step:
                    reporter.say(f"going on from step {step} of {self.model_dir}")
                step = self._train_from(step, validation, reporter)
                best = f"; {self.best}" if self.best.record else ""
                reporter.say(f"{self._end_line(step)}; last checkpoint {self._saved}{best}")
        return self._metrics

    def save(self, step: int) -> None:
        """Saves the checkpoint of a step. Every worker waits until the chief has written it.

        Raises:
          UserError: the checkpoint cannot be written, or a weight is not finite.
        """
        remembered = {} if self.memory is None else self.memory.arrays()
        lora = self.config.recipe.lora
        with strategies.together(self.strategy):
            if self.chief:
                arrays = named_arrays.values(self.variables) | remembered
                self._check_finite(step, arrays)
                self._saved = checkpoints.save(
                    self.model_dir,
                    step,
                    arrays,
                    {
                        "seed": self.config.seed,
                        "total_steps": self.total_steps,
                        "data": self._data,
                        "figures": self._metrics,
                        # Without the evaluation at this step, which is compared later.
                        **{k: v for hook in self.hooks for k, v in hook.state().items()},
                        **({} if lora is None else {checkpoints.LORA_FACTOR: lora.factor}),
                        **metrics_log.SCALE,
                    },
                    keep=self.config.recipe.keep_checkpoints,
                )

    def _check_finite(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Raises Diverged for a weight that is infinite or no number: no run goes on from it."""
        if (path := named_arrays.not_finite(arrays)) is not None:
            last = f"the last checkpoint is {self._saved}" if self._saved else "nothing is saved"
            raise Diverged(
                f"step {step}: {path} is not finite, so this step is not saved ({last}): take a "
                "lower recipe.optimizer.learning_rate than "
                f"{self.config.recipe.optimizer.learning_rate:g}"
            )

    def _load(self) -> checkpoints.Checkpoint | None:
        """Restores the newest intact checkpoint and returns it; None if there is none."""
        if checkpoints.last_step(self.model_dir) is None:
            return None
        checkpoint = checkpoints.load(self.model_dir, "last", optimizer=True)
        state = checkpoint.state
        if not self.allow_other_data:
            resuming.check_data(checkpoint.path, state, self._data, self.total_steps)
        self._data = {**state.get("data", {}), **self._data}
        named_arrays.assign(self.variables, checkpoint.variables, str(checkpoint.path))
        if self.memory is not None:
            self.memory.assign(checkpoint.variables, str(checkpoint.path))
        self._metrics = state["figures"]
        for hook in self.hooks:
            hook.restore(state)
        return checkpoint

    def _loaded_state(
        self, checkpoint: checkpoints.Checkpoint | None
    ) -> tuple[str, dict[str, str]]:
        """Returns what this worker has loaded in words, and digests that all workers must share."""
        arrays = {
            **(checkpoint.variables if checkpoint else {}),
            **named_arrays.values(self.variables),
        }
        state = checkpoint.state if checkpoint else {}
        data = [each["fingerprint"] for each in self._data.values()]
        at = f"is at step {checkpoint.step}" if checkpoint else "has no checkpoint"
        return f"{self.model_dir} {at}", {
            "weights and state": named_arrays.digest(arrays, state),
            "data": named_arrays.digest({}, data),
            "config": named_arrays.digest({}, configs.to_dict(self.config)),
        }

    def _train_from(
        self, step: int, validation: Measured | None, reporter: reporting.Reporter
    ) -> int:
        """Trains from a step to the end; returns the last step."""
        recipe = self.config.recipe
        batch = step + self._data_offset
        iterator = iter(distribute(self.strategy, self.source, recipe.batch_size, start_step=batch))
        if not strategies.is_tpu(self.strategy):  # XLA plans its memory.
            with reporter.first_step():
                estimate = self._memory_of(iterator)
            for line in estimate.lines():
                reporter.say(line)
        reported: list[Steps] = []
        limit = 1  # the first step runs alone, because it includes tracing the graph
        while step < self.total_steps and not self._reason_to_stop():
            count = min(self._next_stop(step) - step, limit)
            started = time.monotonic()
            with reporter.first_step():
                chunk = self.train_step.run(iterator, count)
            seconds = (time.monotonic() - started) / count
            number, seconds = self._stop_signal.on_any_worker(seconds)
            for hook in self.hooks:
                hook.after_steps(step, chunk)
            step += count
            reported.append(chunk)
            if not reporter.started:
                reporter.start(step, self._summary([chunk])[0]["loss"])
            else:
                limit = self.steps_in_graph(limit, seconds)
            at_end = step == self.total_steps
            if step % recipe.report_every == 0 or at_end:
                reporter.train(step, *self._summary(reported))
                reported = []
            else:
                reporter.sign(step)
            self._metrics = {}
            if number:
                self._leave(number, step, reporter)
            with reporter.paused():
                if self._due(step) and validation is not None:
                    self._evaluate(step, validation, reporter)
                elif self._due(step) or step % recipe.save_every == 0:
                    self.save(step)
        return step

    def estimate_memory(self) -> step_memory.Estimate:
        """Estimates the memory of the run, without a step of it."""
        iterator = distribute(self.strategy, self.source, self.config.recipe.batch_size)
        return self._memory_of(iter(iterator))

    def _memory_of(self, iterator) -> step_memory.Estimate:
        """Estimates the memory of a run on the batches of an iterator."""
        length = self.source.manifest.max_length
        replicas = self.strategy.num_replicas_in_sync // strategies.num_workers(self.strategy)
        return step_memory.estimate(
            self.train_step.graph(iterator, length),
            length,
            self.model.variables,
            self.optimizer.variables,
            devices=0 if numerics.device_type(self.strategy) == "CPU" else replicas,
        )

    def _due(self, step: int) -> bool:
        """Returns whether an evaluation is due at a step."""
        every = self.config.recipe.eval_every
        return step >= self.total_steps or bool(step and every and step % every == 0)

    def _evaluate(self, step: int, validation: Measured, reporter: reporting.Reporter) -> None:
        """Evaluates the weights at a step, saves them with the metrics, and compares them."""
        try:
            self._metrics = self.evaluator.run(validation, self.config.recipe.eval_batches)
        except Stopped as stopped:
            self._leave(stopped.number, step, reporter)
        self.save(step)
        reporter.evaluation(step, self._metrics, "validation", self._compare(step))

    def _compare(self, step: int) -> str:
        """Gives the evaluation at a step to the hooks; returns their notes."""
        return "".join(hook.after_evaluation(step, self._metrics) for hook in self.hooks)

    def _reason_to_stop(self) -> str:
        """Returns why the run ends before its last step; empty = it goes on."""
        return next(filter(None, (hook.reason_to_stop() for hook in self.hooks)), "")

    def _leave(self, number: int, step: int, reporter: reporting.Reporter) -> None:
        """Saves a step and stops. The next start makes up for an evaluation that is due."""
        self.save(step)
        reporter.say(f"{signal.Signals(number).name}: saved step {step}, stopping")
        raise Stopped(number)

    def _next_stop(self, step: int) -> int:
        recipe = self.config.recipe
        every = [recipe.report_every, recipe.save_every]
        if recipe.eval_every:
            every.append(recipe.eval_every)
        return min(self.total_steps, *((step // n + 1) * n for n in every))

    def steps_in_graph(self, before: int, seconds: float) -> int:
        """Returns the maximum number of steps until signals are checked again.

        Args:
          before: the previous maximum.
          seconds: the duration of a step.
        """
        # At most twice as many, because the first steps are fast while prefetched batches last.
        return max(1, min(int(_SECONDS_IN_GRAPH / seconds), 2 * before))

    def _summary(self, chunks: Sequence[Steps]) -> tuple[dict[str, float], float]:
        """Returns means over steps by name, and the mean number of tokens of a step."""
        sums = np.concatenate([chunk.sums for chunk in chunks])
        norms = np.concatenate([chunk.gradient_norms for chunk in chunks])
        statistics = self.train_step.statistics
        metrics = statistics.summarize(sums, self.model.term_weights)
        finite = norms[np.isfinite(norms)]
        metrics["gradient_norm"] = float(finite.mean()) if finite.size else math.nan
        if finite.size < norms.size:
            metrics["skipped_steps"] = float(norms.size - finite.size)
        rate = self.optimizer.learning_rate
        metrics["learning_rate"] = float(keras.ops.convert_to_numpy(rate))
        return metrics, float(sums[:, statistics.names.index("tokens")].mean())

    def _end_line(self, step: int) -> str:
        reason = self._reason_to_stop()
        if step == self.total_steps or not reason:
            return f"done: {step} steps"
        return f"stopped early at step {step} of {self.total_steps}: {reason}"
