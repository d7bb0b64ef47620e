"""Compares the labels of a config's objectives with those of the data's tasks."""

from collections.abc import Mapping

from official import config as configs
from official.shards import manifest
from official.utils.errors import UserError


def labels_for(objective, labels: Mapping[str, tuple[str, ...]] | None) -> tuple[str, ...]:
    """Returns the labels that an objective learns: those of its task, or of the only task."""
    labels = labels or {}
    if task := getattr(objective, "task", ""):
        return labels.get(task, ())
    return next(iter(labels.values()), ()) if len(labels) == 1 else ()


def task_labels(content: manifest.Manifest) -> dict[str, tuple[str, ...]]:
    """Returns the labels of each task of a manifest, by the name of the task."""
    tasks = content.task.by_name if content.task else {}
    return {name: task.labels for name, task in tasks.items()}


def check_labels(config: configs.Config, content: manifest.Manifest, folder: str) -> None:
    """Checks that the labels of the data are those of a trained model.

    The names may differ, as they do for converted models. The number of labels must be the same,
    and the same names must have the same ids.

    Args:
      config: the config of the model.
      content: the manifest of the data.
      folder: the folder of the data, for messages.

    Raises:
      UserError: the labels differ.
    """
    for objective in config.objectives:
        ours, labels = getattr(objective, "labels", ()), labels_for(objective, task_labels(content))
        if not ours or not labels:
            continue
        if len(ours) != len(labels) or (ours != labels and set(ours) == set(labels)):
            raise UserError(
                f"{folder}: its labels are {', '.join(labels)}, and the model knows "
                f"{', '.join(ours)}: name the shards of the model's own task"
            )
