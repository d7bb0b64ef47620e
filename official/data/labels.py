"""The class names of a config's objectives and of the data's tasks."""

from collections.abc import Mapping

from official import config as configs
from official.shards import manifest
from official.utils.errors import UserError


def labels_for(objective, labels: Mapping[str, tuple[str, ...]] | None) -> tuple[str, ...]:
    """The class names that an objective learns: of its task, or of the only one."""
    labels = labels or {}
    if task := getattr(objective, "task", ""):
        return labels.get(task, ())
    return next(iter(labels.values()), ()) if len(labels) == 1 else ()


def task_labels(found: manifest.Manifest) -> dict[str, tuple[str, ...]]:
    """Returns the class names of a manifest's tasks, by the name of each task."""
    return {name: task.labels for name, task in found.task.by_name.items()} if found.task else {}


def check_labels(config: configs.Config, found: manifest.Manifest, folder: str) -> None:
    """Refuses data whose classes are not those of a trained model.

    Names may differ, as those of a model from elsewhere do, but not how many there are, and the
    same names must have the same numbers.

    Args:
      config: of the model.
      found: the data's manifest.
      folder: that the data is in.
    """
    for objective in config.objectives:
        ours, labels = getattr(objective, "labels", ()), labels_for(objective, task_labels(found))
        if not ours or not labels:
            continue
        if len(ours) != len(labels) or (ours != labels and set(ours) == set(labels)):
            raise UserError(
                f"{folder}: its labels are {', '.join(labels)}, and the model knows "
                f"{', '.join(ours)}: name the shards of the model's own task"
            )
