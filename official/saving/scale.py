"""The scale of metrics: the best value of each is 1, but for losses and perplexities.

Model folders of earlier versions have exact match and F1 of answers, BLEU and ROUGE in percent,
beside fractions. What is written now has the entry `scale`, and what lacks it is converted.
"""

from collections.abc import Collection, Mapping
from typing import Any

from official.tasks import AVERAGE, Description, MixtureDescription

KEY = "scale"
SCALE = {KEY: 1}

_Task = Description | MixtureDescription | None
_WHICH = ("", "has_answer_", "no_answer_", "best_")
_PERCENT = {
    "span": tuple(f"{which}{name}" for which in _WHICH for name in ("exact_match", "f1")),
    "generation": ("bleu", "rouge_1", "rouge_2", "rouge_l"),
}


def percentages(task: _Task) -> Collection[str]:
    """Returns the names of the metrics of a task that earlier versions had in percent."""
    if isinstance(task, MixtureDescription):
        names = {f"{name}/{each}" for name, t in task.tasks.items() for each in percentages(t)}
        return names | {AVERAGE} if names else names
    return _PERCENT.get((task.answers or task.kind) if task else "", ())


def fractions(metrics: Mapping[str, float], task: _Task) -> dict[str, float]:
    """Returns metrics of an earlier version in today's scale.

    The average of several tasks is made again of the first metric of each, if all are given.
    """
    percent = percentages(task)
    found = {name: v / 100 if name in percent else v for name, v in metrics.items()}
    if AVERAGE in percent and AVERAGE in metrics:
        firsts = [found.get(f"{name}/{each.metrics[0]}") for name, each in task.tasks.items()]
        found[AVERAGE] = metrics[AVERAGE] if None in firsts else sum(firsts) / len(firsts)
    return found


def of_state(state: Mapping[str, Any], best: Mapping[str, Any], task: _Task) -> dict[str, Any]:
    """Returns the figures and the best evaluation of `state.json` in today's scale.

    Args:
      state: of a checkpoint of this or an earlier version, with `figures` and `best`.
      best: the figures of the best evaluation, as far as they are known.
      task: the task of the run.
    """
    if KEY in state:
        return dict(state)
    record = state["best"]
    if record:
        metric = record["metric"]
        value = fractions({**best, metric: record["value"]}, task)[metric]
        record = {**record, "value": value}
    return {**state, "figures": fractions(state["figures"], task), "best": record}
