"""The one training loop, for pretraining and fine-tuning alike.

Between reports, evaluations and saves the steps run inside the graph. What a step draws and reads
is a function of its number, so a run that was stopped goes on from its last checkpoint to the
same weights, bit for bit.
"""

import math
import signal
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from official import config as config_lib
from official.data import Source
from official.errors import UserError
from official.model import Model
from official.training import checkpoints, memory, metrics, optimizers, strategies
from official.training.best_metric import best_metric
from official.training.evaluation import Evaluator, distribute
from official.training.step import TrainStep

_SECONDS_IN_GRAPH = 10.0  # a signal is answered after this long, or one step if that is longer


class Trainer:
    """Trains, evaluates, saves and resumes one model.

    Args:
      config: resolved: its encoder and objectives say everything the model needs.
      strategy: from `official.training.strategies`.
      model_dir: the model folder.
    """

    def __init__(
        self,
        config: config_lib.Config,
        model: Model,
        source: Source,
        strategy: tf.distribute.Strategy,
        model_dir: Path,
    ):
        self.config = config
        self.model = model
        self.source = source
        self.strategy = strategy
        self.model_dir = Path(model_dir)
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
        self.memory = memory.of(config, strategy, config.recipe.batch_size)
        self._train_step = TrainStep(
            model,
            self.optimizer,
            strategy,
            seed=config.seed,
            accumulation=config.recipe.accumulation,
            jit_compile=config.recipe.jit_compile,
            memory=self.memory,
        )
        self._evaluator = Evaluator(config, model, strategy)
        self._metric, self._higher = best_metric(config, source.manifest.task)
        self._figures: dict[str, float] = {}  # of the evaluation at the present step
        self._best: dict | None = None  # as in `checkpoints.best`
        self._waited = 0  # evaluations since then
        self._first_step = 0  # where a run without a checkpoint of its own begins
        self._stop: int | None = None
        self._bad_steps = 0

    def go_on_from(self, init: str, which: str) -> None:
        """Takes over another run: its weights, the optimizer's moments and the step.

        It holds until this run has a checkpoint of its own. What the rows of a stream remember is
        not taken over: the data may be other ones.

        Args:
          init: the model folder of the other run.
          which: its checkpoint, as in `checkpoints.find`.

        Raises:
          UserError: the other model is another one, or its run is as long as this one.
        """
        step = checkpoints.load_state(checkpoints.find(init, which))["step"]
        if step >= self.total_steps:
            raise UserError(
                f"--init={init}: its checkpoint is of step {step:,}, and this run ends at "
                f"{self.total_steps:,}: recipe.steps counts the steps of both"
            )
        arrays = checkpoints.load_variables(init, which, optimizer=True)
        checkpoints.assign(self.variables, arrays, f"--init={init}")
        self._first_step = step

    def restore(self) -> int:
        """Goes on from the last checkpoint of the model folder; returns the first step."""
        if self.chief:
            checkpoints.sweep(self.model_dir)
        self._best = checkpoints.best(self.model_dir)
        step = checkpoints.last_step(self.model_dir)
        if step is None:
            return self._first_step
        arrays = checkpoints.load_variables(self.model_dir, "last", optimizer=True)
        path = checkpoints.find(self.model_dir, "last")
        checkpoints.assign(self.variables, arrays, str(path))
        if self.memory is not None:
            self.memory.assign(arrays, str(path))
        state = checkpoints.load_state(path)
        self._waited = state.get("waited", 0)
        if figures := state["figures"]:
            # The kill may have come between this checkpoint and its being named the best.
            self._figures = figures
            self._judge(step)
        return step

    def train(self, validation: Source | None = None) -> dict[str, float]:
        """Trains to the end, evaluating on `validation` where there is one.

        Returns:
          The figures of the evaluation at the end; empty without `validation`.

        Raises:
          UserError: the gradient stayed non-finite for `max_bad_steps` steps; disk full; there is
            a `patience`, and nothing to evaluate on.
          Stopped: SIGTERM or SIGINT came; the state is saved.
        """
        recipe = self.config.recipe
        if recipe.patience and validation is None:
            raise UserError(
                f"recipe.patience: {recipe.patience} evaluations, and there are none: train with "
                "--mode=train_and_eval and a validation split, or leave it out"
            )
        step = self.restore()
        reporter = metrics.Reporter(self.model_dir, self.total_steps, step, not self.chief)
        if step >= self.total_steps:
            reporter.say(f"{self.model_dir}: trained already, to step {step}")
            return self._figures
        if step and self._due(step) and not self._figures and validation is not None:
            # A signal came when this evaluation was due; a run without it had one.
            self._evaluate(step, validation, reporter)
        if self._patience_is_over():
            reporter.say(f"{self.model_dir}: {self._end_line(step)}")
            return self._figures
        if step:
            reporter.say(f"going on from step {step} of {self.model_dir}")
        iterator = iter(distribute(self.strategy, self.source, recipe.batch_size, start_step=step))
        rows: list[np.ndarray] = []
        previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        limit = 1  # the first step alone: it includes the making of the graph
        try:
            while step < self.total_steps:
                count = min(self._next_stop(step) - step, limit)
                started = time.monotonic()
                chunk = self._train_step.run(iterator, count)
                self._watch(step, chunk)
                step += count
                rows.append(chunk)
                if not reporter.started:
                    reporter.start(step, self._summary(chunk)[0]["loss"])
                else:
                    limit = self._limit(count / (time.monotonic() - started))
                at_end = step == self.total_steps
                if step % recipe.report_every == 0 or at_end:
                    reporter.train(step, *self._summary(np.concatenate(rows)))
                    rows = []
                stop = self._agreed_stop()
                due = at_end or self._due(step)
                with reporter.paused():
                    self._figures = {}
                    if validation is not None and due and stop is None:
                        self._evaluate(step, validation, reporter)
                    elif due or step % recipe.save_every == 0 or stop is not None:
                        self.save(step)
                if stop is not None:
                    reporter.say(f"{signal.Signals(stop).name}: saved step {step}, stopping")
                    raise Stopped(stop)
                if self._patience_is_over():
                    break
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            reporter.close()
        last = checkpoints.find(self.model_dir, "last")
        reporter.say(f"{self._end_line(step)}; last checkpoint {last}{self._best_line()}")
        return self._figures

    def _due(self, step: int) -> bool:
        every = self.config.recipe.eval_every
        return bool(every) and step % every == 0

    def _evaluate(self, step: int, validation: Source, reporter: metrics.Reporter) -> None:
        """Evaluates the weights at a step, saves them with the figures, and judges them."""
        self._figures = self._evaluator.run(validation, self.config.recipe.eval_batches)
        self.save(step)
        best = self._judge(step)
        reporter.evaluation(step, self._figures, "validation", best)

    def save(self, step: int) -> None:
        """Writes the checkpoint of a step (the chief alone)."""
        remembered = {} if self.memory is None else self.memory.arrays()
        if not self.chief:
            return
        checkpoints.save(
            self.model_dir,
            step,
            checkpoints.values(self.variables) | remembered,
            {
                "seed": self.config.seed,
                "total_steps": self.total_steps,
                "figures": self._figures,
                # Before the evaluation at this step is judged, where there is one.
                "waited": self._waited,
            },
            keep=self.config.recipe.keep_checkpoints,
        )

    def _next_stop(self, step: int) -> int:
        recipe = self.config.recipe
        every = [recipe.report_every, recipe.save_every]
        if recipe.eval_every:
            every.append(recipe.eval_every)
        return min(self.total_steps, *((step // n + 1) * n for n in every))

    def _limit(self, steps_per_second: float) -> int:
        if strategies.num_workers(self.strategy) > 1:
            # Each worker must take part in the same collectives: no clock of its own.
            return self.config.recipe.report_every
        return max(1, int(steps_per_second * _SECONDS_IN_GRAPH))

    def _summary(self, rows: np.ndarray) -> tuple[dict[str, float], float]:
        statistics = self._train_step.statistics
        figures = statistics.summarise(rows, self.model.term_weights)
        norms = rows[:, len(statistics.names)]
        finite = norms[np.isfinite(norms)]
        figures["gradient_norm"] = float(finite.mean()) if finite.size else math.nan
        if finite.size < norms.size:
            figures["skipped_steps"] = float(norms.size - finite.size)
        rate = self.optimizer.learning_rate
        figures["learning_rate"] = float(keras.ops.convert_to_numpy(rate))
        return figures, float(rows[:, statistics.names.index("tokens")].mean())

    def _watch(self, step: int, chunk: np.ndarray) -> None:
        """Counts updates that were left out; stops the run when there are too many in a row."""
        names = self._train_step.statistics.names
        for offset, row in enumerate(chunk):
            if np.isfinite(row[len(names)]):
                self._bad_steps = 0
                continue
            self._bad_steps += 1
            if self._bad_steps < self.config.recipe.max_bad_steps:
                continue
            terms = [
                name.partition("/")[2]
                for name, value in zip(names, row, strict=False)
                if name.startswith("loss/") and not np.isfinite(value)
            ]
            variable = self._train_step.updated[int(row[len(names) + 1])].path
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
        figures, name, higher = self._figures, self._metric, self._higher
        if name not in figures:
            raise UserError(
                f"recipe.best_metric: {name!r} is not measured here: {', '.join(figures)}"
            )
        value, old = figures[name], self._best
        better = old is None or (value > old["value"] if higher else value < old["value"])
        if old is not None and old["step"] == step:
            better = True  # judged before, by a run that was killed after it
        if not better or not math.isfinite(value):
            self._waited += 1
            return ""
        self._best, self._waited = {"step": step, "metric": name, "value": value}, 0
        if self.chief:
            checkpoints.mark_best(self.model_dir, step, name, value)
        return "  (best so far)"

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
        best = checkpoints.best(self.model_dir)
        return f"; best step {best['step']} ({best['metric']} {best['value']:.4g})" if best else ""

    def _on_signal(self, number: int, frame) -> None:
        self._stop = number

    def _agreed_stop(self) -> int | None:
        """The signal that any worker got, known to all at the same step."""
        if strategies.num_workers(self.strategy) == 1:
            return self._stop
        mine = tf.constant(self._stop or 0)
        total = self.strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, mine)
        )
        found = int(self.strategy.experimental_local_results(total)[0])
        return (self._stop or int(signal.SIGTERM)) if found else None


class Stopped(Exception):
    """The run was asked to stop by a signal, and has saved its state."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number
