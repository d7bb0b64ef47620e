"""Stops a run after too many consecutive updates without a finite gradient."""

import numpy as np

from official.training.train_step import Steps, TrainStep
from official.utils.errors import UserError
from official.utils.paths import AnyPath


class SkippedUpdates:
    """Counts consecutive skipped updates.

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

    def check(self, step: int, chunk: Steps) -> None:
        """Checks the steps after `step`.

        Raises:
          UserError: too many updates in a row were skipped. The message says why.
        """
        for offset, norm in enumerate(chunk.gradient_norms):
            self._count = 0 if np.isfinite(norm) else self._count + 1
            if self._count < self._max:
                continue
            last = step + offset + 1
            raise UserError(
                f"step {last}: {self._cause(chunk, offset)}, for {self._count} steps in a row "
                f"(since step {last + 1 - self._count}). None of them reached the weights; the "
                f"last checkpoint in {self._model_dir} is good. Lower "
                "recipe.optimizer.learning_rate, or look at the data of these steps"
            )

    def _cause(self, chunk: Steps, offset: int) -> str:
        names = self._train_step.statistics.names
        terms = [
            name.removeprefix("loss/")
            for name, value in zip(names, chunk.sums[offset], strict=True)
            if name.startswith("loss/") and not np.isfinite(value)
        ]
        if terms:
            return f"the loss term {', '.join(terms)} is not finite"
        variable = self._train_step.updated[chunk.bad_variables[offset]].path
        return f"the gradient of {variable} is not finite, though every loss term is"
