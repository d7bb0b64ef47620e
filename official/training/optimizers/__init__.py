"""Optimizers for every strategy, and the one that a recipe asks for."""

from official import config
from official.modeling.model import Model
from official.training import schedules
from official.training.optimizers import layer_rates
from official.training.optimizers.adamw import AdamW
from official.training.optimizers.base import Optimizer
from official.training.optimizers.lamb import LAMB

__all__ = ["LAMB", "AdamW", "Optimizer", "make"]


def make(recipe: config.Recipe, steps: int, model: Model) -> Optimizer:
    """The optimizer of a recipe that runs for `steps` updates, with its slots for a model."""
    settings = recipe.optimizer
    options = {
        "beta_1": settings.beta_1,
        "beta_2": settings.beta_2,
        "epsilon": settings.epsilon,
        "weight_decay": settings.weight_decay,
        "no_decay": settings.no_decay,
        "clip_norm": settings.clip_norm,
        "bias_correction": settings.bias_correction,
    }
    if settings.layer_decay != 1:
        options["rate_factors"] = layer_rates.factors(
            model, settings.layer_decay, settings.layer_decay_from
        )
    options["heads"] = heads(model)
    schedule = schedules.make(recipe, steps)
    if settings.type == "lamb":
        optimizer = LAMB(schedule, no_adaptation=settings.no_adaptation, **options)
    else:
        optimizer = AdamW(schedule, **options)
    optimizer.build(model.trainable_variables)
    return optimizer


def heads(model: Model) -> dict[str, str]:
    """The head of each variable of one, by its path, in a model that learns several tasks.

    A batch asks one task (`official.data.mixture`), and the heads of the others are left out then.
    """
    found = {
        variable.path: objective.name
        for objective in model.objectives
        if getattr(objective.config, "task", "")
        for variable in objective.trainable_variables
    }
    return found if len(set(found.values())) > 1 else {}
