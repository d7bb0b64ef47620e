"""Flags as data: one declaration, from which every command that has the flag is made."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
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
