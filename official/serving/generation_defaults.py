"""The defaults of generation that a model folder has, in general and by task: `generation.json`.

`official.convert` writes the file from `generation_config.json` and `task_specific_params` of
Hugging Face. A task also has a prefix, which stands before each text.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from official.saving import model_folder
from official.serving.sampling import Settings
from official.utils import strict
from official.utils.errors import UserError
from official.utils.validators import nearest

_DRAWS = ("temperature", "top_k", "top_p")


@dataclasses.dataclass(frozen=True)
class Task:
    """The defaults of a task.

    Attributes:
      settings: values of `Settings` by name, the general ones among them.
      prefix: stands before each text.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prefix: str = ""


@dataclasses.dataclass(frozen=True)
class GenerationDefaults:
    """The defaults of a model folder.

    Attributes:
      settings: values of `Settings` by name.
      tasks: the defaults of each task by its name.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tasks: Mapping[str, Task] = dataclasses.field(default_factory=dict)

    def of(self, task: str | None) -> Task:
        """Returns the defaults of a task; None = the general ones.

        Raises:
          UserError: the folder has no such task.
        """
        if task is None:
            return Task(self.settings)
        if task not in self.tasks:
            known = ", ".join(self.tasks) or "none"
            raise UserError(
                f"task: {task!r} is not a task of this model's generation.json"
                f"{nearest(task, self.tasks)} (known: {known})"
            )
        return self.tasks[task]

    def values(self, given: Mapping[str, Any], task: str | None = None) -> dict[str, Any]:
        """Returns the settings that are given, and the defaults of the others.

        A default that a given setting excludes is left out: beam search draws no tokens, and greedy
        search has no choice of them.
        """
        defaults = dict(self.of(task).settings)
        draws = given.get("temperature") or given.get("top_k") or given.get("top_p", 1) != 1
        if draws and "num_beams" not in given:
            defaults.pop("num_beams", None)
        if given.get("num_beams", 1) > 1 or given.get("temperature", 1) == 0:
            defaults = {name: value for name, value in defaults.items() if name not in _DRAWS}
        if "max_new_tokens" in given and "min_new_tokens" in defaults:
            least = defaults["min_new_tokens"]
            defaults["min_new_tokens"] = min(least, given["max_new_tokens"])
        return {**defaults, **given}


def read(model_dir: str | os.PathLike) -> GenerationDefaults:
    """Reads the defaults of a model folder; there are none without the file.

    Raises:
      UserError: the file is damaged, or has a setting that is not known or out of range.
    """
    values = model_folder.generation(model_dir)
    source = str(model_folder.generation_file(model_dir))
    found = strict.build(GenerationDefaults, values, source)
    for place, settings in [
        ("settings", found.settings),
        *((f"tasks.{name}.settings", task.settings) for name, task in found.tasks.items()),
    ]:
        try:
            Settings.of(settings)
        except UserError as error:
            raise UserError(f"{source}: {place}: {error}") from None
    return found
