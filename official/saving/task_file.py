"""`task.json` of a model folder: the task of its training data, for prediction and export."""

import os
from typing import Any

from official.shards import manifest
from official.tasks import Description, MixtureDescription, description_from_dict
from official.utils import atomic, json_files, paths, strict
from official.utils.paths import AnyPath


def path(model_dir: str | os.PathLike) -> AnyPath:
    """Returns the path of the file."""
    return paths.path(model_dir) / "task.json"


def read(model_dir: str | os.PathLike) -> dict[str, Any]:
    """Reads the task: `pair`, `max_length` and more; empty if unknown, as in pretraining."""
    return json_files.optional(path(model_dir))


def description(model_dir: str | os.PathLike) -> Description | MixtureDescription | None:
    """Returns the task that a model was trained on; None in pretraining."""
    values = read(model_dir)
    values.pop("max_length", None)
    return description_from_dict(values, str(path(model_dir))) if values else None


def save(content: manifest.Manifest, model_dir: AnyPath) -> None:
    """Writes the task of the training data to the model folder."""
    if content.task is not None:
        with atomic.file(path(model_dir)) as stream:
            json_files.dump(
                {**strict.to_dict(content.task), "max_length": content.max_length}, stream
            )
