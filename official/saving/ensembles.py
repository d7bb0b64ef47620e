"""The members of an ensemble: model folders with heads of one task, whose outputs have a mean.

The encoders may differ in everything. Spans and tags are read in windows of a text, and there the
outputs of tokens are averaged: the members need the same tokenizer and the same windows.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from official import config as configs
from official import tokenizers
from official.config.parts import ObjectiveConfig
from official.modeling.model import Model
from official.modeling.objectives.base import Objective
from official.saving import model_folder, task_file
from official.tasks import KINDS, no_such_head
from official.utils import paths
from official.utils.errors import UserError

# The objectives whose outputs have a mean, and those of them that read windows.
_MEANS = (
    objective
    for kind in KINDS.values()
    if kind.signatures and not kind.generates
    for objective in kind.objectives
)
HEADS = tuple(dict.fromkeys(_MEANS))
WINDOWED = ("span_answer", "token_classification")
# What decides the predictions, in the config of a head and in `task.json`.
_HEAD_KEYS = (
    *("labels", "num_labels", "thresholds"),
    *("form", "candidates", "max_answer_length", "n_best", "null_threshold", "threshold"),
)
_TASK_KEYS = (
    *("name", "kind", "pair", "labels", "best", "blank", "no_answers"),
    *("doc_stride", "max_query_length", "span_bounds", "split_words"),
    *("choice_first", "max_choice_length"),
)


@dataclasses.dataclass(frozen=True)
class Member:
    """A model folder of an ensemble.

    Attributes:
      folder: the model folder.
      config: its config.
      index: the number of the head among the objectives.
    """

    folder: str
    config: configs.ResolvedConfig
    index: int

    @property
    def head(self) -> ObjectiveConfig:
        """The config of the head."""
        return self.config.objectives[self.index]

    @property
    def windowed(self) -> bool:
        """Whether the head reads windows of a text."""
        return self.head.type in WINDOWED

    def head_of(self, model: Model) -> Objective:
        """Returns the head of the model of this folder."""
        return model.objectives[self.index]


def members(folders: Sequence[str | os.PathLike], task: str | None = None) -> list[Member]:
    """Reads the configs of model folders, and checks that they can be one ensemble.

    Args:
      folders: the model folders.
      task: the name of the head, of models of several tasks.

    Raises:
      UserError: there are less than two; one is not a model folder, or has no head, or several;
        two differ in the task, the labels or another setting of predictions; of spans and tags
        also in the tokenizer; the predictions of a head are not those of a mean.
    """
    if len(folders) < 2:
        raise UserError(
            "--model_dir: an ensemble has two members or more: give the flag once for each"
        )
    found = [_member(os.fspath(folder), task) for folder in folders]
    first = found[0]
    for member in found:
        _check_head(member)
        _check_alike(
            (first.folder, {"type": first.head.type, **_values(first)}),
            (member.folder, {"type": member.head.type, **_values(member)}),
        )
    check_tasks((member.folder, _task(member.folder, task)) for member in found)
    if first.windowed:
        prints = [_reading(member) for member in found]
        for member, values in zip(found, prints, strict=True):
            _check_alike((first.folder, prints[0]), (member.folder, values))
    return found


def check_tasks(descriptions: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Checks that the tasks of folders are the same, where they are known.

    Args:
      descriptions: the folders, and the fields of `official.tasks.Description` of each; {} = the
        task is not known.

    Raises:
      UserError: two differ.
    """
    known = [
        (folder, {key: values.get(key) or None for key in _TASK_KEYS})
        for folder, values in descriptions
        if values
    ]
    for folder, values in known[1:]:
        _check_alike(known[0], (folder, values))


def _member(folder: str, task: str | None) -> Member:
    config = model_folder.config_of(folder)
    heads = [i for i, o in enumerate(config.objectives) if o.type in HEADS]
    if any(config.objectives[i].task for i in heads):
        names = [config.objectives[i].task for i in heads]
        heads = [i for i in heads if config.objectives[i].task == task]
        if not heads:
            raise no_such_head(task, names, holder=f"that {folder} has heads for")
    if len(heads) != 1:
        types = ", ".join(o.type for o in config.objectives) or "none"
        raise UserError(
            f"--model_dir: {folder} has the objectives {types}: a member of an ensemble has one "
            f"of {', '.join(HEADS)}"
        )
    return Member(folder, config, heads[0])


def _check_head(member: Member) -> None:
    """Refuses heads whose predictions are not a function of outputs for each token or row."""
    head, reason = member.head, ""
    if getattr(head, "form", "independent") != "independent":
        reason = "its ends depend on its starts (form: conditional)"
    if getattr(head, "crf", False):
        reason = "its tags are a chain (crf: true)"
    if reason:
        raise UserError(
            f"--model_dir: {member.folder}: {reason}, so its outputs have no mean: an ensemble "
            "needs members without it"
        )


def _values(member: Member) -> dict[str, Any]:
    """Returns the settings of the head that decide predictions, and the dtype of the weights."""
    found = {key: getattr(member.head, key) for key in _HEAD_KEYS if hasattr(member.head, key)}
    found["num_labels"] = member.head.num_outputs
    return {**found, "recipe.weights_dtype": member.config.recipe.weights_dtype}


def _task(folder: str, task: str | None) -> Mapping[str, Any]:
    about = task_file.read(folder)
    return about.get("tasks", {}).get(task, about)


def _reading(member: Member) -> dict[str, Any]:
    """Returns what members that read the same windows share."""
    tokenizer = tokenizers.load(paths.path(member.folder) / "tokenizer")
    layout = member.config.encoder.layout
    return {"tokenizer": f"{tokenizer.fingerprint[:16]}…", "encoder.layout": layout}


def _check_alike(one: tuple[str, Mapping[str, Any]], other: tuple[str, Mapping[str, Any]]) -> None:
    """Raises UserError with the first value that differs."""
    for key, value in one[1].items():
        if other[1][key] != value:
            raise UserError(
                f"{one[0]} has {key}: {_shown(value)}, and {other[0]} has {key}: "
                f"{_shown(other[1][key])}: the members of an ensemble need the same"
            )


def _shown(value: Any) -> str:
    """Returns a value for a message."""
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
