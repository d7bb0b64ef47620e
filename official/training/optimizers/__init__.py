"""Optimizers for all strategies, and `make`, which returns the optimizer of a recipe."""

from collections.abc import Callable

from official import config
from official.config.recipe import OPTIMIZERS
from official.modeling.model import Model
from official.training import schedules, trainable
from official.training.optimizers.adafactor import Adafactor
from official.training.optimizers.adagrad import Adagrad
from official.training.optimizers.base import Optimizer
from official.training.optimizers.moments import LAMB, AdamW, StableAdamW

__all__ = ["LAMB", "Adafactor", "Adagrad", "AdamW", "Optimizer", "StableAdamW", "make"]

_CLASSES: dict[str, Callable[..., Optimizer]] = {
    "adamw": AdamW,
    "stable_adamw": StableAdamW,
    "lamb": LAMB,
    "adafactor": Adafactor,
    "adagrad": Adagrad,
}


def make(recipe: config.Recipe, steps: int, model: Model) -> Optimizer:
    """Returns the optimizer of a recipe for `steps` updates, with its slots for a model."""
    settings = recipe.optimizer
    own = {name: getattr(settings, name) for name in OPTIMIZERS[settings.type].settings}
    optimizer = _CLASSES[settings.type](
        schedules.make(recipe, steps),
        clip_norm=settings.clip_norm,
        heads=heads(model),
        first_steps=trainable.first_steps(model, recipe),
        rate_factors=rate_factors(model, settings),
        **own,
    )
    optimizer.build(model.trainable_variables)
    return optimizer


def rate_factors(model: Model, settings: config.Optimizer) -> dict[str, float]:
    """Returns the factor of the learning rate of each trainable variable by its path."""
    factors = {variable.path: 1.0 for variable in model.trainable_variables}
    if settings.layer_decay != 1:
        factors = schedules.layer_factors(model, settings.layer_decay, settings.layer_decay_from)
    for objective in model.objectives:
        own = getattr(objective.config, "rate_factor", 1.0)
        factors |= {v.path: own * factors[v.path] for v in objective.trainable_variables}
    return factors


def heads(model: Model) -> dict[str, str]:
    """Returns the head of each variable of a head by the path of the variable.

    The result is empty for a model of one task. With several tasks, a batch has examples of one
    task (`official.data.mixture`), and the heads of the other tasks are not updated.
    """
    names = {
        variable.path: objective.name
        for objective in model.objectives
        if objective.config.task
        for variable in objective.trainable_variables
    }
    return names if len(set(names.values())) > 1 else {}
