"""The one training loop, for pretraining and fine-tuning alike.

Between reports, evaluations and saves the steps run inside the graph. What a step draws and reads
is a function of its number, so a run that was stopped goes on from its last checkpoint to the
same weights, bit for bit.
"""

import contextlib
import math
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.distribution import memory, strategies
from official.distribution.strategies import distribute
from official.evaluation.evaluator import Evaluator
from official.modeling.model import Model
from official.saving import checkpoints
from official.training import optimizers, reporting, resuming
from official.training.best_metric import best_metric
from official.training.train_step import Steps, TrainStep
from official.utils.errors import UserError

_SECONDS_IN_GRAPH = 3.0  # a signal is answered after this long, or one step if that is longer


class Trainer:
    """Trains, evaluates, saves and resumes one model.

    Args:
      config: resolved: its encoder and objectives say everything the model needs.
      strategy: from `official.distribution.strategies`.
      model_dir: the model folder, which all workers share.
      allow_other_data: whether a run may go on with other data than it began with.
    """

    def __init__(
        self,
        config: configs.Config,
        model: Model,
        source: ShardDataset,
        strategy: tf.distribute.Strategy,
        model_dir: Path,
        allow_other_data: bool = False,
    ):
        self.config = config
        self.model = model
        self.source = source
        self.strategy = strategy
        self.model_dir = Path(model_dir)
        self.allow_other_data = allow_other_data
        self.chief = strategies.is_chief(strategy)
        self.total_steps = config.recipe.total_steps(source.num_examples)
        with strategy.scope():
            self.optimizer = optimizers.make(config.recipe, self.total_steps, model)
        self.variables = {
            **model.variables_by_path(),
            **{
                f"{checkpoints.OPTIMIZER}{path}": variable
                for path, variable in self.optimizer.variables_by_path().items()
            },
        }
        self.memory = memory.make_memory(config, strategy, config.recipe.batch_size)
        self.train_step = TrainStep(
            model,
            self.optimizer,
            strategy,
            seed=config.seed,
            accumulation=config.recipe.accumulation,
            jit_compile=config.recipe.jit_compile,
            memory=self.memory,
        )
        self.evaluator = Evaluator(config, model, strategy, self._stop_if_asked)
        self._metric, self._higher = best_metric(config, source.manifest.task)
        self._data = {"train": resuming.description(source)}
        self._metrics: dict[str, float] = {}  # of the evaluation at the present step
        self._best: dict | None = None  # as in `checkpoints.best`
        self._waited = 0  # evaluations since then
        self._first_step = 0  # where a run without a checkpoint of its own begins
        self._signal = 0  # that came; 0 = none
        self._saved: Path | None = None  # the last checkpoint that the chief wrote
        self._bad_steps = 0

    def continue_from(self, init: str, which: str) -> None:
        """Takes over another run: its weights, the optimizer's moments and the step.

        It holds until this run has a checkpoint of its own. What the rows of a stream remember is
        not taken over: the data may be other ones.

        Args:
          init: the model folder of the other run.
          which: its checkpoint, as in `checkpoints.find`.

        Raises:
          UserError: the other model is another one, or its run is as long as this one.
        """
        found = checkpoints.load(init, which, optimizer=True)
        if found.step >= self.total_steps:
            raise UserError(
                f"--init={init}: its checkpoint is of step {found.step:,}, and this run ends at "
                f"{self.total_steps:,}: recipe.steps counts the steps of both"
            )
        checkpoints.assign(self.variables, found.variables, f"--init={init}")
        self._first_step = found.step

    def restore(self) -> int:
        """Goes on from the newest whole checkpoint of the model folder; returns the first step.

        Raises:
          UserError: no checkpoint is whole; it is of other data; the workers hold different ones.
        """
        if self.chief:
            checkpoints.remove_leftovers(self.model_dir)
        found = resuming.on_all_workers(self.strategy, self._load, self._holds)
        step = found.step if found else self._first_step
        if self._metrics:
            # The kill may have come between this checkpoint and its being named the best.
            self._judge(step)
        self._name_best()
        return step

    def train(self, validation: ShardDataset | None = None) -> dict[str, float]:
        """Trains to the end, evaluating on `validation` where there is one.

        Returns:
          The metrics of the evaluation at the end; empty without `validation`.

        Raises:
          UserError: the gradient stayed non-finite for `max_bad_steps` steps; disk full; there is
            a `patience`, and nothing to evaluate on; see also `restore`.
          Stopped: SIGTERM or SIGINT came; the state is saved.
        """
        recipe = self.config.recipe
        if recipe.patience and validation is None:
            raise UserError(
                f"recipe.patience: {recipe.patience} evaluations, and there are none: train with "
                "--mode=train_and_eval and a validation split, or leave it out"
            )
        if validation is not None:
            self._data["validation"] = resuming.description(validation)
        step = self.restore()
        reporter = reporting.Reporter(self.model_dir, self.total_steps, step, not self.chief)
        with contextlib.closing(reporter), self._signals():
            if validation is not None and self._due(step) and not self._metrics:
                # A signal came when this evaluation was due, or the run had nothing to evaluate on.
                self._evaluate(step, validation, reporter)
            if step >= self.total_steps:
                reporter.say(f"{self.model_dir}: trained already, to step {step}")
            elif self._patience_is_over():
                reporter.say(f"{self.model_dir}: {self._end_line(step)}")
            else:
                if step:
                    reporter.say(f"going on from step {step} of {self.model_dir}")
                step = self._train_from(step, validation, reporter)
                reporter.say(
                    f"{self._end_line(step)}; last checkpoint {self._saved}{self._best_line()}"
                )
        return self._metrics

    def save(self, step: int) -> None:
        """Writes the checkpoint of a step; every worker waits until the chief has written it."""
        remembered = {} if self.memory is None else self.memory.arrays()
        with strategies.together(self.strategy):
            if self.chief:
                self._saved = checkpoints.save(
                    self.model_dir,
                    step,
                    checkpoints.values(self.variables) | remembered,
                    {
                        "seed": self.config.seed,
                        "total_steps": self.total_steps,
                        "data": self._data,
                        "figures": self._metrics,
                        # Before the evaluation at this step is judged, where there is one.
                        "waited": self._waited,
                        "best": self._best,
                    },
                    keep=self.config.recipe.keep_checkpoints,
                )

    def _load(self) -> checkpoints.Checkpoint | None:
        """Takes over the newest whole checkpoint, where there is one."""
        if checkpoints.last_step(self.model_dir) is None:
            return None
        found = checkpoints.load(self.model_dir, "last", optimizer=True)
        state = found.state
        if not self.allow_other_data:
            resuming.check_data(found, self._data, self.total_steps)
        self._data = {**state.get("data", {}), **self._data}
        checkpoints.assign(self.variables, found.variables, str(found.path))
        if self.memory is not None:
            self.memory.assign(found.variables, str(found.path))
        self._metrics, self._waited = state["figures"], state["waited"]
        # Older checkpoints do not say which one was the best before them.
        self._best = state["best"] if "best" in state else checkpoints.best(self.model_dir)
        return found

    def _holds(self, found: checkpoints.Checkpoint | None) -> tuple[str, dict[str, str]]:
        """Says what this worker goes on from, with digests of all that the workers must share."""
        arrays = {**(found.variables if found else {}), **checkpoints.values(self.variables)}
        data = [each["fingerprint"] for each in self._data.values()]
        place = f"is at step {found.step}" if found else "has no checkpoint"
        return f"{self.model_dir} {place}", {
            "weights and state": checkpoints.digest(arrays, found.state if found else {}),
            "data": checkpoints.digest({}, data),
            "config": checkpoints.digest({}, configs.to_dict(self.config)),
        }

    def _train_from(
        self, step: int, validation: ShardDataset | None, reporter: reporting.Reporter
    ) -> int:
        """Trains from a step to the end; returns the last step."""
        recipe = self.config.recipe
        iterator = iter(distribute(self.strategy, self.source, recipe.batch_size, start_step=step))
        reported: list[Steps] = []
        limit = 1  # the first step alone: it includes the making of the graph
        while step < self.total_steps and not self._patience_is_over():
            count = min(self._next_stop(step) - step, limit)
            started = time.monotonic()
            chunk = self.train_step.run(iterator, count)
            number, seconds = self._agreed((time.monotonic() - started) / count)
            self._watch(step, chunk)
            step += count
            reported.append(chunk)
            if not reporter.started:
                reporter.start(step, self._summary([chunk])[0]["loss"])
            else:
                limit = self._limit(limit, seconds)
            at_end = step == self.total_steps
            if step % recipe.report_every == 0 or at_end:
                reporter.train(step, *self._summary(reported))
                reported = []
            self._metrics = {}
            if number:
                self._leave(number, step, reporter)
            with reporter.paused():
                if self._due(step) and validation is not None:
                    self._evaluate(step, validation, reporter)
                elif self._due(step) or step % recipe.save_every == 0:
                    self.save(step)
        return step

    def _due(self, step: int) -> bool:
        """Whether the weights at a step are evaluated, where there is something to evaluate on."""
        every = self.config.recipe.eval_every
        return step >= self.total_steps or bool(step and every and step % every == 0)

    def _evaluate(self, step: int, validation: ShardDataset, reporter: reporting.Reporter) -> None:
        """Evaluates the weights at a step, saves them with the metrics, and judges them."""
        try:
            self._metrics = self.evaluator.run(validation, self.config.recipe.eval_batches)
        except Stopped as stopped:
            self._leave(stopped.number, step, reporter)
        self.save(step)
        best = self._judge(step)
        reporter.evaluation(step, self._metrics, "validation", best)

    def _leave(self, number: int, step: int, reporter: reporting.Reporter) -> None:
        """Saves a step and stops; an evaluation that is due is left to the next start."""
        self.save(step)
        reporter.say(f"{signal.Signals(number).name}: saved step {step}, stopping")
        raise Stopped(number)

    def _next_stop(self, step: int) -> int:
        recipe = self.config.recipe
        every = [recipe.report_every, recipe.save_every]
        if recipe.eval_every:
            every.append(recipe.eval_every)
        return min(self.total_steps, *((step // n + 1) * n for n in every))

    def _limit(self, before: int, seconds: float) -> int:
        """The most steps until signals are looked at again, of so many seconds each."""
        # No more than twice as many: the first steps may be fast for their batches are waiting.
        return max(1, min(int(_SECONDS_IN_GRAPH / seconds), 2 * before))

    def _summary(self, chunks: Sequence[Steps]) -> tuple[dict[str, float], float]:
        """Means over steps by name, and the mean number of tokens of a step."""
        sums = np.concatenate([chunk.sums for chunk in chunks])
        norms = np.concatenate([chunk.gradient_norms for chunk in chunks])
        statistics = self.train_step.statistics
        metrics = statistics.summarise(sums, self.model.term_weights)
        finite = norms[np.isfinite(norms)]
        metrics["gradient_norm"] = float(finite.mean()) if finite.size else math.nan
        if finite.size < norms.size:
            metrics["skipped_steps"] = float(norms.size - finite.size)
        rate = self.optimizer.learning_rate
        metrics["learning_rate"] = float(keras.ops.convert_to_numpy(rate))
        return metrics, float(sums[:, statistics.names.index("tokens")].mean())

    def _watch(self, step: int, chunk: Steps) -> None:
        """Counts updates that were left out; stops the run when there are too many in a row."""
        for offset, norm in enumerate(chunk.gradient_norms):
            if np.isfinite(norm):
                self._bad_steps = 0
                continue
            self._bad_steps += 1
            if self._bad_steps < self.config.recipe.max_bad_steps:
                continue
            terms = [
                name.removeprefix("loss/")
                for name, value in zip(
                    self.train_step.statistics.names, chunk.sums[offset], strict=True
                )
                if name.startswith("loss/") and not np.isfinite(value)
            ]
            variable = self.train_step.updated[chunk.bad_variables[offset]].path
            what = (
                f"the loss term {', '.join(terms)} is not finite"
                if terms
                else f"the gradient of {variable} is not finite, though every loss term is"
            )
            last = step + offset + 1
            first = last + 1 - self._bad_steps
            raise UserError(
                f"step {last}: {what}, for {self._bad_steps} steps in a row (since step "
                f"{first}). None of them reached the weights; the last checkpoint in "
                f"{self.model_dir} is good. Lower recipe.optimizer.learning_rate, or look at the "
                "data of these steps"
            )

    def _judge(self, step: int) -> str:
        """Marks the checkpoint of this step if it is the best so far; returns a note on it."""
        metrics, name, higher = self._metrics, self._metric, self._higher
        if name not in metrics:
            raise UserError(
                f"recipe.best_metric: {name!r} is not measured here: {', '.join(metrics)}"
            )
        value, old = metrics[name], self._best
        better = old is None or (value > old["value"] if higher else value < old["value"])
        if old is not None and old["step"] == step:
            better = True  # judged before, by a run that was killed after it
        if not better or not math.isfinite(value):
            self._waited += 1
            return ""
        self._best, self._waited = {"step": step, "metric": name, "value": value}, 0
        self._name_best()
        return "  (best so far)"

    def _name_best(self) -> None:
        if self.chief and self._best:
            checkpoints.mark_best(self.model_dir, **self._best)
        elif self.chief:
            checkpoints.unmark_best(self.model_dir)

    def _patience_is_over(self) -> bool:
        return 0 < self.config.recipe.patience <= self._waited

    def _end_line(self, step: int) -> str:
        if step == self.total_steps or not self._patience_is_over():
            return f"done: {step} steps"
        return (
            f"stopped early at step {step} of {self.total_steps}: {self._waited} evaluations "
            f"without a better {self._metric} (recipe.patience)"
        )

    def _best_line(self) -> str:
        best = self._best
        return f"; best step {best['step']} ({best['metric']} {best['value']:.4g})" if best else ""

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Takes note of signals while the block runs."""
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame) -> None:
        self._signal = number

    def _agreed(self, seconds: float = 0.0) -> tuple[int, float]:
        """The signal that any worker got, 0 = none, and the seconds of the slowest one."""
        found = strategies.gather(self.strategy, np.array([self._signal, seconds]))
        number, slowest = found.max(axis=0)
        return int(number), float(slowest)

    def _stop_if_asked(self) -> None:
        if number := self._agreed()[0]:
            raise Stopped(number)


class Stopped(Exception):
    """The run was asked to stop by a signal; when it leaves `train`, the state is saved."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number
