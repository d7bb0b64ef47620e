"""Which head of a model of several tasks is served."""

import dataclasses

from official import config as configs
from official.modeling.model import Model
from official.utils.errors import UserError


def with_one_head(config: configs.Config, model: Model, task: str | None) -> configs.Config:
    """Leaves a model of several tasks the head of one; returns the config of what it is now.

    Raises:
      UserError: `task` names no head, or none is named where there are several.
    """
    names = [getattr(objective, "task", "") for objective in config.objectives]
    if task is None and not any(names):
        return config
    if task is None or task not in names:
        known = ", ".join(filter(None, names)) or "none"
        given = "missing" if task is None else f"{task!r} is not known"
        raise UserError(f"--task: {given}: the tasks that this model has heads for are {known}")
    place = names.index(task)
    head = dataclasses.replace(config.objectives[place], task="")
    model.objectives = [model.objectives[place]]
    model.objectives[0].config = head
    return dataclasses.replace(config, objectives=(head,))
