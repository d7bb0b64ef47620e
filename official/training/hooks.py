"""Hooks of a run: what watches its steps and its evaluations, and may end it.

`BestCheckpoint` compares evaluations. `SkippedUpdates` stops a run whose gradients are not finite.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from official.config import Config
from official.data import ShardDataset
from official.data.collection import Measured
from official.modeling.model import make_objectives
from official.saving import checkpoints
from official.tasks import Description, MixtureDescription
from official.training.train_step import Steps, TrainStep
from official.utils.errors import Diverged, UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath

_LOSS = "loss"
# Metrics that are the share of the rows that are right.
_SHARES = ("accuracy", "subset_accuracy", "exact_match")
# What objectives measure beside their terms is called TERM_KIND. `rate` and `replaced` describe a
# generator: neither more nor less of them is better.
_LOWER = ("squared_error",)
_HIGHER = ("accuracy", "answerable_accuracy", "auc")
# Of questions, beside the metrics that the task names; see `official.evaluation.squad_metrics`.
_OF_ANSWERS = tuple(
    f"{which}{metric}"
    for which in ("", "has_answer_", "no_answer_", "best_")
    for metric in ("exact_match", "f1")
)


class Hook:
    """Watches a run. `Trainer` calls the methods of its hooks at the points that they name."""

    def after_steps(self, step: int, steps: Steps) -> None:
        """Reads the results of the steps that follow `step`."""

    def after_evaluation(self, step: int, metrics: Mapping[str, float]) -> str:
        """Reads the evaluation of the weights at a step; returns a note for the line about it."""
        return ""

    def state(self) -> dict[str, Any]:
        """Returns the state of the hook that a checkpoint stores, as JSON values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes what `state` returned from the state of a checkpoint."""

    def reason_to_stop(self) -> str:
        """Returns why the run ends before its last step; empty = it goes on."""
        return ""


class BestCheckpoint(Hook):
    """The best evaluation of a run so far.

    The best evaluation has the best value of a metric. Ties are broken by the lowest loss, and then
    by the latest step, because on an easy task the metric reaches its best value long before the
    model is sure of its answers.

    If the metric is a share of rows, a value counts as equal to the best one if the difference is
    at most one standard error, or one row (the one-standard-error rule of Breiman et al., 1984).
    The latest of these evaluations is kept. With 20 rows, 0.65 and 0.55 count as equal.

    Args:
      model_dir: the model folder.
      metric: the name of the metric that decides.
      higher: whether a higher value is better.
      patience: how many evaluations without a better value end the run; 0 = no limit.
      chief: whether this worker writes `best.json`.
      rows: the number of rows of which the metric is a share; 0 = the metric is not a share of
        rows, or their number is unknown.

    Attributes:
      rows: the number of rows, as given.
      record: step, metric and value of the best evaluation, as in `checkpoints.best`, and its
        loss; None before the first one.
      top: step and value of the evaluation with the best value. `record` may be a later one that
        counts as equal.
      waited: the number of evaluations in a row without a better value or, of equal values, a lower
        loss.
    """

    def __init__(
        self,
        model_dir: AnyPath,
        metric: str,
        higher: bool,
        patience: int,
        chief: bool,
        rows: int = 0,
    ):
        self.metric = metric
        self.rows = rows
        self.record: dict[str, Any] | None = None
        self.top: dict[str, Any] | None = None
        self.waited = 0
        self._model_dir = model_dir
        self._higher = higher
        self._patience = patience
        self._chief = chief

    def after_evaluation(self, step: int, metrics: Mapping[str, float]) -> str:
        """Compares an evaluation with the best one so far; says if it is better.

        Raises:
          UserError: the metric is not among the metrics.
        """
        if self.metric not in metrics:
            raise UserError(
                f"recipe.best_metric: {self.metric!r} is not measured here: {', '.join(metrics)}"
            )
        value, loss = metrics[self.metric], metrics.get(_LOSS, math.nan)
        found = {"value": value, "loss": loss if math.isfinite(loss) else None}
        # A run that was killed after the comparison of an evaluation compares it again.
        if self.record is None or self.record["step"] != step:
            order = self._compared(found) if math.isfinite(value) else -1
            self.waited = 0 if order > 0 else self.waited + 1
            if order < 0:
                return ""
            if self.top is None or order > 0:
                self.top = {"step": step, "value": value}
        self.record = {"step": step, "metric": self.metric, **found}
        self.write()
        return f"  (kept: {near})" if (near := self._near()) else "  (best so far)"

    def state(self) -> dict[str, Any]:
        """Returns what is known without the evaluation of a checkpoint that is saved now."""
        return {"waited": self.waited, "best": self.record, "top": self.top}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes `waited`, `best` and `top`."""
        self.waited, self.record, self.top = state["waited"], state["best"], state["top"]

    def reason_to_stop(self) -> str:
        """Says that patience is over, if it is."""
        if not self.patience_is_over:
            return ""
        return f"{self.waited} evaluations without a better {self.metric} (recipe.patience)"

    def _compared(self, found: Mapping[str, Any]) -> int:
        """Returns 1 if an evaluation is better than the best one, 0 if as good, -1 if worse."""
        if self.record is None or self.top is None:
            return 1
        if self.rows and found["value"] != self.record["value"]:
            apart = found["value"] - self.top["value"]
            return 1 if apart > 0 else 0 if -apart <= self._error() else -1
        loss = self.record.get("loss")
        loss = found["loss"] if loss is None else loss  # an unknown loss decides nothing
        best = rank(self.record["value"], loss, self._higher)
        other = rank(found["value"], found["loss"], self._higher)
        order = (other > best) - (other < best)
        return order if self.record["value"] == self.top["value"] else min(order, 0)

    def _error(self) -> float:
        """Returns the standard error of the best value, or one row's share if that is larger."""
        share = self.top["value"] if self.top else 0.0
        error = math.sqrt(max(0.0, share * (1 - share)) / self.rows)
        return max(error, 1 / self.rows) + 1e-9  # shares are rounded

    def _near(self) -> str:
        """Names the best value if `record` only counts as equal to it; otherwise empty."""
        if not self.record or not self.top or self.record["value"] == self.top["value"]:
            return ""
        best = "{value:.4g} of step {step}".format(**self.top)
        return f"{self.rows:,} rows cannot tell it from {best}"

    def write(self) -> None:
        """Makes `best.json` agree with `record`."""
        if self._chief and self.record:
            named = {key: self.record[key] for key in ("step", "metric", "value")}
            checkpoints.mark_best(self._model_dir, **named)
        elif self._chief:
            checkpoints.unmark_best(self._model_dir)

    @property
    def patience_is_over(self) -> bool:
        """Whether the run ends because there was no better evaluation for too long."""
        return 0 < self._patience <= self.waited

    def __str__(self) -> str:
        if not self.record:
            return "no best step"
        near = f"; {near}" if (near := self._near()) else ""
        return "best step {step} ({metric} {value:.4g}{near})".format(**self.record, near=near)


class SkippedUpdates(Hook):
    """Counts consecutive skipped updates, and ends a run with too many of them.

    Args:
      train_step: the step whose results are checked.
      max_bad_steps: the number of consecutive skipped updates that stops the run.
      model_dir: the model folder, for the message.
    """

    def __init__(self, train_step: TrainStep, max_bad_steps: int, model_dir: AnyPath):
        self._train_step = train_step
        self._max = max_bad_steps
        self._model_dir = model_dir
        self._count = 0

    def after_steps(self, step: int, steps: Steps) -> None:
        """Checks the gradients of the steps that follow `step`.

        Raises:
          Diverged: too many updates in a row were skipped. The message says why.
        """
        for offset, norm in enumerate(steps.gradient_norms):
            self._count = 0 if np.isfinite(norm) else self._count + 1
            if self._count < self._max:
                continue
            last = step + offset + 1
            raise Diverged(
                f"step {last}: {self._cause(steps, offset)}, for {self._count} steps in a row "
                f"(since step {last + 1 - self._count}). No such gradient reached the weights; "
                f"the last checkpoint in {self._model_dir} is good. Lower "
                "recipe.optimizer.learning_rate, or look at the data of these steps"
            )

    def _cause(self, steps: Steps, offset: int) -> str:
        names = self._train_step.statistics.names
        terms = [
            name.removeprefix("loss/")
            for name, value in zip(names, steps.sums[offset], strict=True)
            if name.startswith("loss/") and not np.isfinite(value)
        ]
        if terms:
            return f"the loss term {', '.join(terms)} is not finite"
        variable = self._train_step.updated[steps.bad_variables[offset]].path
        return f"the gradient of {variable} is not finite, though every loss term is"


def measured_rows(metric: str, source: Measured, most: int = 0) -> int:
    """Returns the number of rows of which a metric is a share; 0 if it is none.

    Args:
      metric: its name. A metric of one of several tasks does not count as a share here.
      source: what is evaluated.
      most: the largest number of rows that are evaluated; 0 = all.
    """
    if metric not in _SHARES or not isinstance(source, ShardDataset):
        return 0
    return min(source.num_examples, most or source.num_examples)


def rank(value: float, loss: float | None, higher: bool) -> tuple[float, float]:
    """Returns the order of an evaluation among others: a larger one is better.

    Args:
      value: that of the metric.
      loss: decides between equal values: a lower one is better. None = it is not finite.
      higher: whether a higher value is better.
    """
    return value if higher else -value, -math.inf if loss is None else -loss


def best_metric(config: Config, task: Description | MixtureDescription | None) -> tuple[str, bool]:
    """Returns the metric that picks the best checkpoint, and whether a higher value is better.

    Lower is better for every loss: `loss`, each loss term, and those of one of several tasks
    (`mnli/loss`, `mnli/mnli`). Higher is better for the metrics of a task.

    Args:
      config: resolved.
      task: the `task` of the training data's manifest; None in pretraining.

    Raises:
      UserError: `recipe.best_metric` is not the name of a loss or a metric.
    """
    if not (name := config.recipe.best_metric):
        return (task.metrics[0], True) if task else (_LOSS, False)
    known = dict.fromkeys(task.metrics if task else (), True)
    for prefix, about in _by_prefix(task).items():
        terms = [
            term
            for objective in make_objectives(config)
            if not prefix or f"{objective.config.task}/" == prefix
            for term in objective.term_weights
        ]
        lower = ["loss", *terms, *(f"{term}_{kind}" for term in terms for kind in _LOWER)]
        higher = [f"{term}_{kind}" for term in terms for kind in _HIGHER]
        if about is not None:
            higher += [*about.metrics, *(_OF_ANSWERS if about.kind == "span" else ())]
        known |= {f"{prefix}{name}": False for name in lower}
        known |= {f"{prefix}{name}": True for name in higher}
    if name not in known:
        raise UserError(
            f"recipe.best_metric: {name!r} is not a loss or a metric of this run"
            f"{nearest(name, known)}: choose one of {', '.join(known)}"
        )
    return name, known[name]


def _by_prefix(task: Description | MixtureDescription | None) -> dict[str, Description | None]:
    """Returns each task by the prefix of the names of its metrics."""
    if isinstance(task, MixtureDescription):
        return {f"{name}/": each for name, each in task.tasks.items()}
    return {"": task}
