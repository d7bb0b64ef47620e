"""Applies `--override` options to the plain values of a config."""

from typing import Any

import yaml

from official.config import yaml_text
from official.utils.errors import UserError


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Changes one value of a config.

    Args:
      raw: the plain values of the config, which are changed in place.
      override: `a.b=value`; the value is YAML. Items of lists are named by their number or `type`.

    Raises:
      UserError: the override has another form, or names an item that does not exist.
    """
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise UserError(f"--override={override}: expected key.subkey=value")
    try:
        value = yaml_text.parse(text)
    except yaml.YAMLError:
        raise UserError(f"--override={override}: the value is not YAML") from None
    *parents, last = path.split(".")
    container: Any = raw
    for key in parents:
        container = _child(container, key, override)
    if isinstance(container, list):
        container[_index(container, last, override)] = value
    else:
        container[last] = value


def _child(container: Any, key: str, override: str) -> Any:
    """Returns the mapping or list under a key; adds a mapping if there is nothing."""
    if isinstance(container, list):
        return container[_index(container, key, override)]
    if container.get(key) is None:
        container[key] = {}
    if not isinstance(container[key], dict | list):
        raise UserError(f"--override={override}: {key} is a value and has no keys below it")
    return container[key]


def _index(items: list, key: str, override: str) -> int:
    """Returns the index of the list item that a key names by its number or type."""
    names = [item.get("type") if isinstance(item, dict) else None for item in items]
    if key in names:
        return names.index(key)
    if key.isdigit() and int(key) < len(items):
        return int(key)
    raise UserError(
        f"--override={override}: no item {key!r}: there are {', '.join(map(str, names))}"
    )
