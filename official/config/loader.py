"""Reads and writes configs: strict YAML, built into frozen dataclasses.

A config has five parts: `segments` (how text becomes sequences), `corruption` (how tokens are
hidden from the model), `encoder` (the network), `objectives` (what is predicted) and `recipe`
(optimizer, schedule, sizes). `phases` change them during a pretraining. Unknown keys, values of the
wrong type and parts that do not match each other raise a UserError with the dotted key.
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from official.config import compatibility, yaml_files
from official.config.parts import Config, CorruptionConfig, ResolvedConfig
from official.config.registry import CORRUPTIONS, ENCODERS, OBJECTIVES
from official.utils import atomic, strict
from official.utils.errors import UserError


def load(path: str | os.PathLike, overrides: Sequence[str] = ()) -> Config:
    """Reads a config file.

    Example:
    ```python
    config = official.config.load("configs/finetune/sst2.yaml", ["recipe.epochs=1"])
    ```

    Args:
      path: a YAML file, a folder with a `config.yaml`, or the name of a published config (see
        `official.config.yaml_files`). It may name a `base`, another config, and then has only the
        lines that differ from it.
      overrides: `a.b=value` each; the value is read as YAML. Items of `objectives` are named by
        index or type.

    Raises:
      UserError: the file is missing, is not YAML, was changed since it was saved, or has an invalid
        value.
    """
    document = yaml_files.read(path)
    for override in overrides:
        document.override(apply_override(document.values, override))
    try:
        return from_dict(document.values, str(document.path))
    except UserError as error:
        raise UserError(document.located(str(error))) from None


def load_resolved(path: str | os.PathLike, overrides: Sequence[str] = ()) -> ResolvedConfig:
    """Reads the config of a trained model, as `load` does.

    Raises:
      UserError: as in `load`; or the config has no encoder, or an encoder that does not support an
        objective.
    """
    config = ResolvedConfig.of(load(path, overrides), str(path))
    compatibility.check_encoder(config.objectives, config.encoder, str(path))
    return config


def from_dict(raw: Mapping[str, Any], source: str = "config") -> Config:
    """Builds and checks a config.

    Args:
      raw: plain values, as `to_dict` returns them; fields with defaults may be missing.
      source: the file, for messages.

    Raises:
      UserError: a key is unknown, a value is not valid, or the parts do not match each other.
    """
    parts: dict[str, Any] = {}
    for key, table in (("corruption", CORRUPTIONS), ("encoder", ENCODERS)):
        value = raw.get(key)
        parts[key] = None if value is None else strict.build_tagged(table, value, source, key)
    objectives = raw.get("objectives") or []
    if not isinstance(objectives, list | tuple):
        raise UserError(f"{source}: objectives: expected a list, each item with a `type`")
    parts["objectives"] = tuple(
        strict.build_tagged(OBJECTIVES, item, source, f"objectives.{i}")
        for i, item in enumerate(objectives)
    )
    config = strict.build(Config, raw, source, ready=parts)
    compatibility.check(config, source)
    phases(config, source)
    return config


# Keys that a phase cannot change: they belong to the whole run.
_OF_ALL_PHASES = ("name", "phases", "recipe.steps", "recipe.epochs", "recipe.schedule",
                  "recipe.init_weights", "recipe.optimizer.type")  # fmt: skip


def phases(config: Config, source: str = "config") -> list[Config]:
    """Returns the config of each phase of a run; a run without phases has one.

    A phase ends at the last of its `recipe.steps`, which count the steps of the whole run, as its
    schedule does. From the second on, a phase continues the one before (`init_weights: run`).

    Args:
      config: the config.
      source: the file, for messages.

    Raises:
      UserError: the config is not a pretraining with a number of steps, a phase has no step, or its
        changes are not valid.
    """
    if not config.phases:
        return [config]
    if config.segments is None or not config.recipe.steps:
        missing = "segments" if config.segments is None else "recipe.steps"
        raise UserError(
            f"{source}: phases: phases divide the steps of a pretraining, but {missing} is "
            "missing: give it, or remove phases"
        )
    ends = list(itertools.accumulate(phase.share for phase in config.phases))
    steps = [round(end / ends[-1] * config.recipe.steps) for end in ends]
    for number, (begin, end) in enumerate(itertools.pairwise([0, *steps])):
        if begin == end:
            raise UserError(
                f"{source}: phases.{number}.share: {config.phases[number].share} of "
                f"{config.recipe.steps} steps is less than a step: raise it or recipe.steps, or "
                "remove the phase"
            )
    return [
        _phase(config, number, end, f"{source}: phases.{number}")
        for number, end in enumerate(steps)
    ]


def _phase(config: Config, number: int, end: int, place: str) -> Config:
    """Returns the config of a phase whose last step is `end`."""
    raw = to_dict(config)
    del raw["phases"]
    for key, value in config.phases[number].change.items():
        if any(f"{key}.".startswith(f"{fixed}.") for fixed in _OF_ALL_PHASES):
            raise UserError(f"{place}.change: {key}: this key belongs to the whole run: remove it")
        _set(raw, key, value, f"{place}.change")
    recipe = raw["recipe"]
    recipe["schedule"]["steps"] = recipe["schedule"]["steps"] or recipe["steps"]
    recipe["steps"] = end
    if number:
        recipe["init_weights"] = "run"
    if number == len(config.phases) - 1:
        return from_dict(raw, place)
    raw["name"] += f"_phase_{number + 1}"
    if patience := recipe["patience"]:
        raise UserError(
            f"{place}: recipe.patience: {patience}: the next phase begins after the last step of "
            "this phase, so only the last phase may end early: set it in the change of the last "
            "phase"
        )
    return from_dict(raw, place)


def corruption_from_dict(raw: Any, source: str, place: str = "corruption") -> CorruptionConfig:
    """Builds the config of a corruption from plain values, as `to_dict` returns them."""
    return strict.build_tagged(CORRUPTIONS, raw, source, place)


def to_dict(config: Any) -> dict[str, Any]:
    """Returns a config or a part as plain dicts, lists and values, with every field."""
    return strict.to_dict(config)


def save(config: Config, path: str | os.PathLike) -> None:
    """Writes a config as YAML, after a line with the checksum of the text.

    The checksum detects changes that leave the config valid, such as a changed digit.
    """
    text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    with atomic.file(path) as stream:
        stream.write(f"{yaml_files.seal(text)}\n{text}")


def differences(a: Config, b: Config) -> list[tuple[str, Any, Any]]:
    """Returns the dotted keys whose values differ, with both values."""
    flat_a, flat_b = dict(flatten(to_dict(a))), dict(flatten(to_dict(b)))
    keys = list(dict.fromkeys([*flat_a, *flat_b]))
    return [
        (key, flat_a.get(key), flat_b.get(key))
        for key in keys
        if flat_a.get(key) != flat_b.get(key)
    ]


def flatten(value: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yields the values of nested dicts and lists, each with its dotted key."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from flatten(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def apply_override(raw: dict[str, Any], override: str) -> str:
    """Changes one value of a config.

    Args:
      raw: the plain values of the config, which are changed in place.
      override: `a.b=value`; the value is YAML. Items of lists are named by index or `type`.

    Returns:
      The dotted key, with indices for items of lists.

    Raises:
      UserError: the override does not have this form, or names an item that does not exist.
    """
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise UserError(f"--override={override}: expected key.subkey=value")
    try:
        value = yaml_files.parse(text)
    except yaml.YAMLError:
        raise UserError(f"--override={override}: the value is not YAML") from None
    return _set(raw, path, value, f"--override={override}")


def _set(raw: dict[str, Any], path: str, value: Any, said: str) -> str:
    """Changes the value of a dotted key (see `apply_override`); `said` is the start of messages."""
    *parents, last = path.split(".")
    container: Any = raw
    place = []
    for key in parents:
        place.append(_key(container, key, said))
        container = _child(container, place[-1], said)
    place.append(_key(container, last, said))
    container[place[-1]] = value
    return ".".join(map(str, place))


def _key(container: dict | list, key: str, said: str) -> str | int:
    """Returns the key of a mapping, or the index of the list item that a key names."""
    return _index(container, key, said) if isinstance(container, list) else key


def _child(container: Any, key: str | int, said: str) -> Any:
    """Returns the mapping or list under a key; adds a mapping if the key is missing."""
    if isinstance(container, list):
        return container[int(key)]
    if container.get(key) is None:
        container[key] = {}
    if not isinstance(container[key], dict | list):
        raise UserError(f"{said}: {key} is a value and has no keys below it")
    return container[key]


def _index(items: list, key: str, said: str) -> int:
    """Returns the index of the list item that a key names by index or type."""
    names = [item.get("type") if isinstance(item, dict) else None for item in items]
    if key in names:
        return names.index(key)
    if key.isdigit() and int(key) < len(items):
        return int(key)
    raise UserError(f"{said}: no item {key!r}: there are {', '.join(map(str, names))}")
