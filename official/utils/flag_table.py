"""Flags as data: one declaration, from which every command that has the flag is made."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import flags

_DEFINE: dict[type, Callable[..., Any]] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
    list: flags.DEFINE_list,
}


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag of a command.

    Attributes:
      name: its name.
      kind: str, int, float, bool, or list for texts with commas between them.
      default: its value where it is not given.
      meaning: its description.
      values: the allowed values; empty = any text.
      least: the smallest allowed number; None = any.
      repeated: whether it may be given many times; its value is a list.
    """

    name: str
    kind: type
    default: Any
    meaning: str
    values: Sequence[str] = ()
    least: int | None = None
    repeated: bool = False

    def define(self, given: flags.FlagValues = flags.FLAGS) -> None:
        """Defines the flag."""
        if self.values:
            flags.DEFINE_enum(
                self.name, self.default, list(self.values), self.meaning, flag_values=given
            )
        elif self.repeated:
            flags.DEFINE_multi_string(self.name, self.default, self.meaning, flag_values=given)
        else:
            bound = {} if self.least is None else {"lower_bound": self.least}
            _DEFINE[self.kind](self.name, self.default, self.meaning, flag_values=given, **bound)


def define(table: Iterable[Flag], given: flags.FlagValues = flags.FLAGS) -> None:
    """Defines flags in their order."""
    for flag in table:
        flag.define(given)


def prefixed(flag: Flag, topics: Sequence[str]) -> Flag:
    """Returns a flag whose description begins with what it is for, as `command_help` reads it."""
    joint = ", " if flag.meaning.startswith(("with ", "of ", "for ")) else ": "
    return dataclasses.replace(flag, meaning=", ".join(topics) + joint + flag.meaning)


def merged(tables: Mapping[str, Iterable[Flag]]) -> list[Flag]:
    """Returns the flags of several tables, each once.

    What differs from table to table says of which it is. The default is that of the first one.

    Args:
      tables: the flags by what they are for.
    """
    found: dict[str, dict[str, list[str]]] = {}  # name → meaning → what for
    first: dict[str, Flag] = {}
    for topic, table in tables.items():
        for flag in table:
            first.setdefault(flag.name, flag)
            found.setdefault(flag.name, {}).setdefault(flag.meaning, []).append(topic)
    result = []
    for name, topics_of in found.items():
        meanings = [
            prefixed(dataclasses.replace(first[name], meaning=meaning.rstrip(".")), topics).meaning
            for meaning, topics in topics_of.items()
        ]
        everywhere = [[*tables]] == [*topics_of.values()]
        meaning = first[name].meaning if everywhere else ". ".join(meanings)
        result.append(dataclasses.replace(first[name], meaning=meaning))
    return result


class Values:
    """The values of the flags of a table, as attributes.

    A flag that is not given has the default of the table, which may be another one than that of a
    command with several tables.
    """

    def __init__(self, table: Iterable[Flag], given: flags.FlagValues):
        self._table = {flag.name: flag for flag in table}
        self._given = given

    def __getattr__(self, name: str) -> Any:
        if name not in self._table:
            raise AttributeError(f"the command has no flag --{name}")
        return self._given[name].value if self.is_given(name) else self._table[name].default

    def is_given(self, name: str) -> bool:
        """Returns whether the command line has a flag."""
        return bool(self._given[name].present)
