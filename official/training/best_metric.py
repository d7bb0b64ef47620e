"""The figure of an evaluation that picks the best checkpoint, and which of two values is better."""

from official.config import Config
from official.modeling.model import make_objectives
from official.tasks import AVERAGE, Description, MixtureDescription, nearest
from official.utils.errors import UserError

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


def best_metric(config: Config, task: Description | MixtureDescription | None) -> tuple[str, bool]:
    """Returns the figure that picks the best checkpoint, and whether more of it is better.

    Of a loss less is better, whatever it is called: of `loss`, of each term, and of those of one
    of several tasks (`mnli/loss`, `mnli/mnli`). Of a task's metric more is better.

    Args:
      config: resolved.
      task: the `task` of the training data's manifest; None in pretraining.

    Raises:
      UserError: `recipe.best_metric` is the name of no loss and of no metric.
    """
    if not (name := config.recipe.best_metric):
        return (task.metrics[0], True) if task else ("loss", False)
    known = {AVERAGE: True} if isinstance(task, MixtureDescription) else {}
    for prefix, about in _by_prefix(task).items():
        terms = [
            term
            for objective in make_objectives(config)
            if not prefix or f"{getattr(objective.config, 'task', '')}/" == prefix
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
            f"recipe.best_metric: {name!r} is no loss and no metric of this run"
            f"{nearest(name, known)}: known are {', '.join(known)}"
        )
    return name, known[name]


def _by_prefix(task: Description | MixtureDescription | None) -> dict[str, Description | None]:
    """Returns each task by the prefix of the names of its metrics."""
    if isinstance(task, MixtureDescription):
        return {f"{name}/": each for name, each in task.tasks.items()}
    return {"": task}
