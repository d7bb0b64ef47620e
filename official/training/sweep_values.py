"""The combinations of values that a sweep runs."""

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from official.utils.errors import UserError

SEED = "seed"  # the key whose values make runs of the same setting

Settings = Mapping[str, Any]  # a value of any YAML type for each key


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The values of each key. Those of the seed come last."""

    values: Mapping[str, tuple[Any, ...]]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> "Sweep":
        """Parses `key=value,value,...`. Each value is YAML.

        Raises:
          UserError: a text has another form, or a key or value is given twice.
        """
        values: dict[str, tuple[Any, ...]] = {}
        for text in texts:
            key, equals, listed = text.partition("=")
            try:
                parsed = yaml.safe_load(f"[{listed}]")
            except yaml.YAMLError:
                parsed = None
            if not key or not equals or not parsed:
                raise UserError(f"--sweep={text}: expected key.subkey=value,value,...")
            if key in values:
                raise UserError(f"--sweep={text}: {key} is swept over twice: list all its values")
            if repeated := [value for value in parsed if parsed.count(value) > 1]:
                raise UserError(f"--sweep={text}: {repeated[0]} is there twice")
            values[key] = tuple(parsed)
        return cls(dict(sorted(values.items(), key=lambda item: item[0] == SEED)))

    def runs(self) -> list[dict[str, Any]]:
        """Returns all combinations: a value for each key."""
        return [
            dict(zip(self.values, chosen, strict=True))
            for chosen in itertools.product(*self.values.values())
        ]

    def short(self, key: str) -> str:
        """Returns the last part of a key, or the whole key if another key ends with that part."""
        last = key.rpartition(".")[2]
        same = [other for other in self.values if other.rpartition(".")[2] == last]
        return last if len(same) == 1 else key

    def name(self, settings: Settings) -> str:
        """Returns the name of a combination, which is also that of its folder."""
        named = (f"{self.short(key)}={as_name(value)}" for key, value in settings.items())
        return ",".join(named) or "as in the config"


def overrides(settings: Settings) -> list[str]:
    """Returns the values of `--override` for a combination."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]


def as_name(value: Any) -> str:
    """Returns a value as a part of a file name."""
    return re.sub(r"[^\w.+-]+", "_", str(value))
