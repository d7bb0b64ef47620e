"""Strict YAML into frozen dataclasses: a system is one choice from each of five parts.

`segments` (how text becomes sequences), `corruption` (what the model gets to see), `encoder`
(how it reads), `objectives` (what it is asked) and `recipe` (optimizer, schedule, sizes).
A key that does not exist, a value of the wrong type and a combination of parts that cannot work
are refused here, with the place, before anything runs.
"""

import dataclasses
import difflib
import hashlib
import math
import os
import reprlib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from official.config import compatibility
from official.config.part import Part
from official.config.registry import CORRUPTIONS, ENCODERS, OBJECTIVES
from official.config.sections import Config
from official.utils import atomic, files
from official.utils.errors import UserError
from official.utils.validators import nearest

# The beginning of the first line of a saved config, before the checksum of the rest.
_SEAL = "# SHA-256 of the text below: "
_MAX_BYTES = 1 << 20
_MAX_VALUES = 100_000
_SHOWN = reprlib.Repr()  # of values in messages
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother = 2, 80, 80
_PARTS = {"corruption": CORRUPTIONS, "encoder": ENCODERS}


def corruption_of(raw: Mapping[str, Any], source: str) -> Any:
    """Builds a corruption's dataclass from plain values, as `to_dict` gives them."""
    return _typed(raw, CORRUPTIONS, "corruption", source)


def load(path: str | os.PathLike, overrides: Sequence[str] = ()) -> Config:
    """Reads a config file.

    Args:
      path: a YAML file.
      overrides: `a.b=value` each; the value is read as YAML. Items of `objectives` are named by
        their number or their type.

    Raises:
      UserError: the file is missing, not YAML or not as it was saved, or something in it cannot
        be.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.yaml"
    if not path.exists():
        raise UserError(f"{path}: no such config file")
    try:
        text = files.read_bytes(path, _MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error})") from None
    _check_seal(text, path)
    try:
        raw = _parsed(text)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: a config is a mapping, such as `name: my_run`")
    for override in overrides:
        _override(raw, override)
    return from_dict(raw, str(path))


def from_dict(raw: Mapping[str, Any], source: str = "config") -> Config:
    """Builds and checks a config; `source` stands at the head of every message."""
    raw = dict(raw)
    config_parts: dict[str, Any] = {}
    for key, table in _PARTS.items():
        value = raw.pop(key, None)
        config_parts[key] = None if value is None else _typed(value, table, key, source)
    objectives = raw.pop("objectives", None) or []
    if not isinstance(objectives, list | tuple):
        raise UserError(f"{source}: objectives: expected a list, each item with a `type`")
    config_parts["objectives"] = tuple(
        _typed(item, OBJECTIVES, f"objectives.{i}", source) for i, item in enumerate(objectives)
    )
    config = _build(Config, raw, "", source, ready=config_parts)
    compatibility.check(config, source)
    return config


def to_dict(config: Any) -> dict[str, Any]:
    """The plain form that `from_dict` takes, with every field."""
    return _plain(config)


def save(config: Config, path: str | os.PathLike) -> None:
    """Writes the resolved config as YAML, below a line with its checksum.

    A changed digit in it may be a valid config of another model that takes the same weights.
    """
    text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    with atomic.file(path) as stream:
        stream.write(f"{_SEAL}{_digest(text)}\n{text}")


def differences(a: Config, b: Config) -> list[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values."""
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


def _check_seal(text: str, path: Path) -> None:
    """Refuses a file that `save` wrote and that has another content now."""
    first, _, rest = text.partition("\n")
    if first.startswith(_SEAL) and first != f"{_SEAL}{_digest(rest)}":
        raise UserError(
            f"{path}: the text below its first line is not what was saved there: copy the file "
            "again; if it was changed on purpose, remove the first line"
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _parsed(text: str) -> Any:
    """The values of a YAML document.

    Raises:
      yaml.YAMLError: it has none, or too many.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None and _expanded(node, {}) > _MAX_VALUES:
            raise yaml.YAMLError(f"its aliases stand for more than {_MAX_VALUES:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError:
        raise
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except Exception as error:  # PyYAML's constructors let many kinds through
        raise yaml.YAMLError(f"a value cannot be read ({error})") from None
    finally:
        loader.dispose()


def _expanded(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """How many values a node stands for, its aliases written out."""
    if node not in known:
        known[node] = math.inf  # what it is while its own values are counted: of a cycle
        children = () if isinstance(node, yaml.ScalarNode) else node.value
        pairs = (child if isinstance(child, tuple) else (child,) for child in children)
        known[node] = 1 + sum(_expanded(item, known) for pair in pairs for item in pair)
    return known[node]


def _override(raw: dict, override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise UserError(f"--override={override}: expected key.subkey=value")
    try:
        value = _parsed(text)
    except yaml.YAMLError:
        raise UserError(f"--override={override}: the value is not YAML") from None
    *parents, last = path.split(".")
    place: Any = raw
    for key in parents:
        place = _item(place, key, override)
    if isinstance(place, list):
        place[_index(place, last, override)] = value
    else:
        place[last] = value


def _item(place: Any, key: str, override: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, key, override)]
    if place.get(key) is None:
        place[key] = {}
    if not isinstance(place[key], dict | list):
        raise UserError(f"--override={override}: {key} is a value and has no keys below it")
    return place[key]


def _index(place: list, key: str, override: str) -> int:
    names = [item.get("type") if isinstance(item, dict) else None for item in place]
    if key in names:
        return names.index(key)
    if key.isdigit() and int(key) < len(place):
        return int(key)
    raise UserError(
        f"--override={override}: no item {key!r}: there are {', '.join(map(str, names))}"
    )


def _typed(value: Any, table: Mapping[str, type[Part]], place: str, source: str) -> Any:
    if not isinstance(value, dict):
        raise UserError(f"{source}: {place}: expected a mapping with a `type`")
    value = dict(value)
    name = value.pop("type", None)
    if not isinstance(name, str) or name not in table:
        found = f"unknown type {_SHOWN.repr(name)}{nearest(name, table)}"
        if name is None:
            meant = difflib.get_close_matches("type", map(str, value), n=1)
            found = "no `type` is given"
            if meant:
                found = f"unknown key {meant[0]!r}; did you mean 'type'?"
        raise UserError(f"{source}: {place}: {found} (known: {', '.join(table)})")
    return _build(table[name], value, place, source)


def _build(cls: type, raw: Any, place: str, source: str, ready: Mapping[str, Any] = {}) -> Any:
    where = f"{source}: {place + '.' if place else ''}"
    if not isinstance(raw, Mapping):
        raise UserError(f"{where.rstrip('.')}: expected a mapping, got {_SHOWN.repr(raw)}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values = dict(ready)
    for key, value in raw.items():
        if key not in fields:
            known = f"{nearest(key, fields)} (known: {', '.join(fields)})"
            raise UserError(f"{where}{key}: unknown key{known}")
        values[key] = typed(hints[key], value, f"{place + '.' if place else ''}{key}", source)
    missing = [
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"{where}{missing[0]}: missing, and it has no default")
    try:
        return cls(**values)
    except ValueError as error:
        raise UserError(f"{where}{error}") from None


def typed(hint: Any, value: Any, place: str, source: str) -> Any:
    """Returns a plain value as what a field wants.

    Args:
      hint: the field's annotation.
      value: as it was read.
      place: the key, for messages.
      source: the file, for messages.

    Raises:
      UserError: it is of another type, or a number that is not finite.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        choices = typing.get_args(hint)
        if value is None and type(None) in choices:
            return None
        return typed(next(c for c in choices if c is not type(None)), value, place, source)
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, place, source)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise UserError(f"{source}: {place}: expected a list, got {_SHOWN.repr(value)}")
        return tuple(typed(item, v, f"{place}.{i}", source) for i, v in enumerate(value))
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        # YAML 1.1 reads 1e-4, without a point, as text.
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    elif hint is Any or (isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
        return value
    expected = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    raise UserError(f"{source}: {place}: expected {expected[hint]}, got {_SHOWN.repr(value)}")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        plain = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Part):
            plain = {"type": value.type, **plain}
        return plain
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value
