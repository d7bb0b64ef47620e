"""Selects the head to serve from a model of several tasks."""

import dataclasses

from official import config as configs
from official.modeling.model import Model
from official.utils.errors import UserError


def with_one_head(config: configs.Config, model: Model, task: str | None) -> configs.Config:
    """Removes all heads but that of one task from a model; returns the config of the result.

    Raises:
      UserError: no head has the name `task`, or the model has several tasks and `task` is None.
    """
    names = [getattr(objective, "task", "") for objective in config.objectives]
    if task is None and not any(names):
        return config
    if task is None or task not in names:
        known = ", ".join(filter(None, names)) or "none"
        given = "missing" if task is None else f"{task!r} is not known"
        raise UserError(f"--task: {given}: the tasks that this model has heads for are {known}")
    index = names.index(task)
    head = dataclasses.replace(config.objectives[index], task="")
    model.objectives = [model.objectives[index]]
    model.objectives[0].config = head
    return dataclasses.replace(config, objectives=(head,))
