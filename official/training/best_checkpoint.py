"""Compares the evaluations of a run: which checkpoint is the best, and when patience ends."""

import math
from collections.abc import Mapping

from official.saving import checkpoints
from official.utils.errors import UserError
from official.utils.paths import AnyPath


class BestCheckpoint:
    """The best evaluation of a run so far.

    Args:
      model_dir: the model folder.
      metric: the name of the metric that decides.
      higher: whether a higher value is better.
      patience: how many evaluations without a better value end the run; 0 = no limit.
      chief: whether this worker writes `best.json`.

    Attributes:
      record: step, metric and value of the best evaluation, as in `checkpoints.best`.
      waited: the number of evaluations since then.
    """

    def __init__(self, model_dir: AnyPath, metric: str, higher: bool, patience: int, chief: bool):
        self.metric = metric
        self.record: dict[str, int | str | float] | None = None
        self.waited = 0
        self._model_dir = model_dir
        self._higher = higher
        self._patience = patience
        self._chief = chief

    def update(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Compares an evaluation with the best one so far; returns whether it is better.

        Raises:
          UserError: the metric is not among the metrics.
        """
        if self.metric not in metrics:
            raise UserError(
                f"recipe.best_metric: {self.metric!r} is not measured here: {', '.join(metrics)}"
            )
        value = metrics[self.metric]
        if not self._is_better(step, value) or not math.isfinite(value):
            self.waited += 1
            return False
        self.record = {"step": step, "metric": self.metric, "value": value}
        self.waited = 0
        self.write()
        return True

    def _is_better(self, step: int, value: float) -> bool:
        if self.record is None:
            return True
        if self.record["step"] == step:
            return True  # the same evaluation: the run was killed after its comparison
        best = self.record["value"]
        return value > best if self._higher else value < best

    def write(self) -> None:
        """Makes `best.json` agree with `record`."""
        if self._chief and self.record:
            checkpoints.mark_best(self._model_dir, **self.record)
        elif self._chief:
            checkpoints.unmark_best(self._model_dir)

    @property
    def patience_is_over(self) -> bool:
        """Whether the run ends because there was no better evaluation for too long."""
        return 0 < self._patience <= self.waited

    def __str__(self) -> str:
        if not self.record:
            return "no best step"
        return "best step {step} ({metric} {value:.4g})".format(**self.record)
