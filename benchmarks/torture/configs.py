"""Typing errors in configs: each is refused with its key, and with the nearest known name."""

import copy
import difflib
import functools
import re
import string
import tempfile
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from benchmarks import environments
from benchmarks.torture import parts
from benchmarks.torture.materials import Materials
from official import config
from official.config import yaml_files
from official.utils.errors import UserError

_MEANT = "did you mean '{}'"
# Texts that may say anything, or name what a config does not know.
_FREE = ("name", "best_metric", "task", "no_decay", "no_adaptation", "labels")
# Names that are one typing error away from another name.
_NAMES = ("relu",)
# What may be written in place of a value, by its type.
_WRONG = {
    bool: ["maybe", 1, [True], {"a": 1}, None],
    int: ["many", 2.5, True, [1], {"a": 1}, None],
    float: ["fast", True, [0.1], {"a": 1}, None, float("nan"), float("inf")],
    str: [5, True, ["pairs"], {"a": 1}],
    list: [5, "bias", {"a": 1}, [[1]]],
    dict: [5, "adamw", [1]],
}


class Place(NamedTuple):
    """A key of a config.

    Attributes:
      mapping: that it stands in.
      key: its name.
      dotted: its name with those above it.
      read: what its value was read as.
      nullable: whether it may be null: its part, or its own value, is then left out.
    """

    mapping: dict
    key: str
    dotted: str
    read: Any
    nullable: bool


class Typos(parts.Part):
    """One typing error a case."""

    name = "configs"
    things = "typing errors and wrong types in published configs"
    promise = "refused, with the key and the nearest known name"
    whole, quick = 500, 500

    def __init__(
        self,
        seed: int,
        materials: Materials | None = None,
        load: Callable[[Path], Any] = config.load,
    ):
        super().__init__(seed)
        self._load = load
        self._files = [environments.ROOT / name for name in yaml_files.published()]

    def run(self, case: int) -> parts.Outcome:
        """Spoils one value or key of one config."""
        outcome, rng = parts.Outcome(), self.rng(case)
        path = self._files[case % len(self._files)]
        whole, loaded, read = _published(path)
        spoil = (_key, _type, _name)[case % 3]
        wanted = None
        while wanted is None:
            raw = copy.deepcopy(whole)
            places = list(_places(raw, ""))
            mapping, key, dotted = places[rng.integers(len(places))]
            place = Place(mapping, key, dotted, read.get(dotted), _may_be_null(loaded, dotted))
            wanted = spoil(place, rng)
        what = f"{path.name}, {place.dotted}: {_shown(raw, whole)}"
        with tempfile.TemporaryDirectory() as scratch:
            spoiled = Path(scratch) / "spoiled.yaml"
            spoiled.write_text(yaml.safe_dump(raw, sort_keys=False))
            try:
                self._load(spoiled)
            except UserError as error:
                if lacking := _lacking(str(error), [str(spoiled), *wanted]):
                    outcome.fail(f"{what}: the message lacks {lacking}: {str(error)[:200]}")
                else:
                    outcome.add("refused")
            except Exception as error:  # noqa: BLE001
                outcome.fail(f"{what}: {type(error).__name__}: {str(error)[:200]}")
            else:
                outcome.fail(f"{what}: taken")
        return outcome


@functools.cache
def _published(path: Path) -> tuple[dict, config.Config, dict[str, Any]]:
    """Returns the values that YAML has, those of bases too, the config, and its dotted values."""
    loaded = config.load(path)
    values = dict(config.flatten(config.to_dict(loaded)))
    return yaml_files.read(path).values, loaded, values


def _places(value: Any, dotted: str) -> Iterator[tuple[dict, str, str]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        inner = f"{dotted}.{key}" if dotted else str(key)
        if isinstance(value, dict):
            yield value, key, inner
        if key == "change":
            continue  # Its keys are dotted ones of the whole config.
        if isinstance(item, dict) or (isinstance(item, list) and item and key not in _FREE):
            yield from _places(item, inner)


def _key(place: Place, rng: np.random.Generator) -> list[str] | None:
    """Misspells a key; the message has to have it, and the right one."""
    wrong = _misspelt(place.key, rng)
    if wrong in place.mapping:
        return None
    items = [(wrong if key == place.key else key, value) for key, value in place.mapping.items()]
    place.mapping.clear()
    place.mapping.update(items)
    return [wrong, _MEANT.format(place.key)]


def _name(place: Place, rng: np.random.Generator) -> list[str] | None:
    """Misspells a value that is one of some names."""
    right = place.mapping[place.key]
    if not isinstance(right, str) or place.key in _FREE or _is_number(right):
        return None
    wrong = _misspelt(right, rng)
    if wrong in _NAMES:
        return None
    place.mapping[place.key] = wrong
    return [wrong, _MEANT.format(right), *_named(place)]


def _type(place: Place, rng: np.random.Generator) -> list[str] | None:
    """Writes a value of another type."""
    right = place.mapping[place.key]
    kind = float if isinstance(place.read, float) else type(right)
    choices = [v for v in _WRONG.get(kind, []) if not (v is None and place.nullable)]
    if not choices or place.dotted == "objectives":
        return None
    place.mapping[place.key] = choices[rng.integers(len(choices))]
    return _named(place)


def _lacking(message: str, words: list[str]) -> list[str]:
    """The words that a message lacks; another name that is as near as the right one will do."""
    # What concerns the whole config is said of an objective as "objectives.1: its type: its key".
    message = re.sub(r"(objectives\.\d+): \w+: ", r"\1.", message)
    lacking = [word for word in words if word not in message]
    actual = re.search(_MEANT.format("(.*?)"), message)
    if actual and len(lacking) == 1 and (right := re.fullmatch(_MEANT.format("(.*)"), lacking[0])):
        likeness = [difflib.SequenceMatcher(None, words[1], m[1]).ratio() for m in (actual, right)]
        return [] if likeness[0] >= likeness[1] else lacking
    return lacking


def _named(place: Place) -> list[str]:
    """What a message says of a key; of the type of a part, the part."""
    return [place.dotted.removesuffix(".type") if place.key == "type" else place.dotted]


def _may_be_null(loaded: config.Config, dotted: str) -> bool:
    """Whether null is a value of a key, by the annotation of its field."""
    *above, key = dotted.split(".")
    part: Any = loaded
    for name in above:
        part = part[int(name)] if isinstance(part, tuple) else getattr(part, name)
    hint = typing.get_type_hints(type(part)).get(key)
    return dotted == "objectives" or types.NoneType in typing.get_args(hint)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _misspelt(word: str, rng: np.random.Generator) -> str:
    """A word with two letters exchanged, one left out, one doubled, or another in its place."""
    while True:
        place = int(rng.integers(max(1, len(word) - 1)))
        before, after = word[:place], word[place + 1 :]
        wrong = [
            before + after[:1] + word[place] + after[1:],
            before + after,
            before + 2 * word[place] + after,
            before + str(rng.choice(list(string.ascii_lowercase))) + after,
        ][rng.integers(4)]
        if wrong != word and len(wrong) > 1:
            return wrong


def _shown(raw: Any, whole: Any) -> str:
    """What is otherwise than in the config."""
    ours, theirs = dict(config.flatten(raw)), dict(config.flatten(whole))
    changed = {key: value for key, value in ours.items() if repr(theirs.get(key)) != repr(value)}
    return ", ".join(f"{key} = {value!r}" for key, value in changed.items())[:120]
