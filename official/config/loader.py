"""Reads and writes configs: strict YAML, built into frozen dataclasses.

A config has five parts: `segments` (how text becomes sequences), `corruption` (what the model sees
of them), `encoder` (the network), `objectives` (what is predicted) and `recipe` (optimizer,
schedule, sizes). Unknown keys, values of the wrong type and parts that do not fit together raise a
UserError with the dotted key.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from official.config import compatibility, published, yaml_text
from official.config.overrides import apply_override
from official.config.part import CorruptionConfig
from official.config.registry import CORRUPTIONS, ENCODERS, OBJECTIVES
from official.config.sections import Config
from official.utils import atomic, checksums, paths, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# The beginning of the first line of a saved config, before the checksum of the rest.
_SEAL = "# SHA-256 of the text below: "
_MAX_BYTES = 1 << 20


def load(path: str | os.PathLike, overrides: Sequence[str] = ()) -> Config:
    """Reads a config file.

    Example:
    ```python
    config = official.config.load("configs/finetune/sst2.yaml", ["recipe.epochs=1"])
    ```

    Args:
      path: a YAML file, a folder with a `config.yaml`, or the name of a published config
        (see `official.config.published`).
      overrides: `a.b=value` each; the value is read as YAML. Items of `objectives` are named by
        their number or their type.

    Raises:
      UserError: the file is missing, is not YAML, is not as it was saved, or has a value that is
        not valid.
    """
    path = published.find(path)
    if path.is_dir():
        path = path / "config.yaml"
    if not path.exists():
        like = published.nearest(path)
        hint = f"; is it {' or '.join(like)}?" if like else "; --list_configs prints the published"
        raise UserError(f"{path}: no such config file{hint}")
    try:
        text = paths.read_bytes(path, _MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error})") from None
    _check_seal(text, path)
    try:
        raw = yaml_text.parse(text)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: a config is a mapping, such as `name: my_run`")
    for override in overrides:
        apply_override(raw, override)
    return from_dict(raw, str(path))


def from_dict(raw: Mapping[str, Any], source: str = "config") -> Config:
    """Builds and checks a config.

    Args:
      raw: plain values, as `to_dict` returns them; fields with defaults may be missing.
      source: the file, for messages.

    Raises:
      UserError: a key is unknown, a value is not valid, or the parts do not fit together.
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
    return config


def corruption_from_dict(raw: Any, source: str, place: str = "corruption") -> CorruptionConfig:
    """Builds the config of a corruption from plain values, as `to_dict` returns them."""
    return strict.build_tagged(CORRUPTIONS, raw, source, place)


def to_dict(config: Any) -> dict[str, Any]:
    """Returns the plain form of a config or of a part, with every field."""
    return strict.to_dict(config)


def save(config: Config, path: str | os.PathLike) -> None:
    """Writes a config as YAML, below a line with the checksum of the text.

    Without the checksum, a changed digit could give a valid config of another model with the same
    weights.
    """
    text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    with atomic.file(path) as stream:
        stream.write(f"{_seal(text)}\n{text}")


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


def _seal(text: str) -> str:
    """Returns the first line of a saved config."""
    return f"{_SEAL}{checksums.hash_bytes(text.encode())}"


def _check_seal(text: str, path: AnyPath) -> None:
    """Refuses a file that `save` wrote and that has changed since."""
    first, _, rest = text.partition("\n")
    if first.startswith(_SEAL) and first != _seal(rest):
        raise UserError(
            f"{path}: the text below its first line is not what was saved there: copy the file "
            "again; if it was changed on purpose, remove the first line"
        )
