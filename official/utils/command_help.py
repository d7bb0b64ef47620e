"""The help of a command as one structure, made from its flags: for `--help` and docs/commands.md.

The text of a command's module comes first: paragraphs, and examples, whose lines are indented. The
flags are in groups: the required ones, those for any value of the flag that rules the command (such
as `--mode`), and those for some of its values. The description of such a flag begins with them:
`embed, search: whether vectors are divided by their lengths.`
"""

import dataclasses
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from absl import flags

# The names that the help shows for absl's types.
_TYPES = {
    "multi string": "string",
    "string enum": "enum",
    "comma separated list of strings": "list",
}
ENDING = (
    "Every command also has --help, --version (of this project, TensorFlow, Keras and NumPy) and "
    "--helpfull, which adds the flags of absl, such as --flagfile."
)


@dataclasses.dataclass(frozen=True)
class Topics:
    """How the flags of a command are grouped.

    Attributes:
      flag: the name of the flag that rules the command.
      names: what the descriptions of other flags may begin with; empty = the values of `flag`,
        which is an enum.
    """

    flag: str
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Block:
    """A paragraph, or an example, of a module's text.

    Attributes:
      lines: its lines; those of an example without the indent that they share.
      example: whether the block is an example.
    """

    lines: tuple[str, ...]
    example: bool


@dataclasses.dataclass(frozen=True)
class Option:
    """A flag.

    Attributes:
      name: its name.
      kind: its type, such as `int`.
      default: its default value as text; empty = there is none.
      meaning: its description, without the values of an enum.
      values: the values of an enum.
      boolean: whether `--noNAME` gives false.
      required: such as `required with --mode=embed`; empty = it never is.
    """

    name: str
    kind: str
    default: str
    meaning: str
    values: tuple[str, ...]
    boolean: bool
    required: str


@dataclasses.dataclass(frozen=True)
class Group:
    """Flags under a title."""

    title: str
    options: tuple[Option, ...]


@dataclasses.dataclass(frozen=True)
class Help:
    """The help of a command.

    Attributes:
      command: the name of its module, or what is typed, such as `garden train`.
      usage: what follows the name.
      blocks: the text of the module; the first block begins with its summary.
      groups: the flags.
    """

    command: str
    usage: str
    blocks: tuple[Block, ...]
    groups: tuple[Group, ...]

    @property
    def call(self) -> str:
        """The command with its arguments, as it is typed."""
        of_module = "." in self.command
        return f"{'python -m ' * of_module}{self.command} {self.usage}"

    def text(self, width: int) -> str:
        """Returns the help for a terminal.

        Args:
          width: the largest number of characters of a line; examples keep theirs.
        """
        first, *rest = self.blocks
        usage = Block((self.call,), example=True)
        parts = [_shown(block, width) for block in (first, usage, *rest)]
        for group in self.groups:
            parts.append(_filled(f"{group.title}:", width))
            parts += [_described(option, width) for option in group.options]
        return "\n\n".join([*parts, _filled(ENDING, width)]) + "\n"


def make(
    command: str,
    usage: str,
    text: str,
    defined: Sequence[flags.Flag],
    required: Mapping[str, Sequence[str]],
    topics: Topics | None,
) -> Help:
    """Returns the help of a command.

    Args:
      command: the name of its module, or what is typed.
      usage: what follows the name.
      text: the docstring of the module.
      defined: the flags in the order of their definition.
      required: the names of the flags that are required, by the values of the flag that rules the
        command. The key of a command without such a flag is empty.
      topics: what the flags are grouped by; None = nothing.
    """
    names: tuple[str, ...] = ()
    if topics is not None:
        ruler = next(flag for flag in defined if flag.name == topics.flag)
        names = topics.names or _values(ruler)
        defined = [ruler, *(flag for flag in defined if flag is not ruler)]
    needed: list[Option] = []
    grouped: dict[tuple[str, ...], list[Option]] = {(): []}
    for flag in defined:
        option, about = _option(flag, names)
        if using := [value for value, listed in required.items() if flag.name in listed]:
            note = "required"
            if topics is not None and len(using) < len(required):
                note = f"required with --{topics.flag}={', '.join(using)}"
            # The description keeps its topics, which the title of the group does not name.
            needed.append(dataclasses.replace(option, meaning=_meaning(flag), required=note))
        else:
            grouped.setdefault(about, []).append(option)
    groups = [Group("Required", tuple(needed))]
    # A group for several values comes before the group for the first of these alone.
    for about in sorted(grouped, key=lambda a: (names.index(a[0]) if a else -1, -len(a))):
        groups.append(Group(_title(topics, about), tuple(grouped[about])))
    return Help(command, usage, tuple(_blocks(text)), tuple(g for g in groups if g.options))


def _title(topics: Topics | None, about: Sequence[str]) -> str:
    if topics is None:
        return "Optional"
    if not about:
        return f"With any --{topics.flag}"
    joined = ", ".join(about)
    return joined.capitalize() if topics.names else f"With --{topics.flag}={joined}"


def _option(flag: flags.Flag, names: Sequence[str]) -> tuple[Option, tuple[str, ...]]:
    """Returns a flag, and the topics that its description names."""
    meaning = _meaning(flag)
    found = list(_pattern(names).finditer(meaning)) if names else []
    named = {name for match in found for name in re.split(r",? and |, ", match["topics"])}
    if len(found) == 1 and found[0].start() == 0:
        # The title of the group names the topics.
        condition = found[0]["condition"].removeprefix(",").strip()
        meaning = f"{condition}: " * bool(condition) + meaning[found[0].end() :]
    option = Option(
        name=flag.name,
        kind=_kind(flag),
        default=_default(flag),
        meaning=meaning,
        values=_values(flag),
        boolean=flag.boolean,
        required="",
    )
    return option, tuple(name for name in names if name in named)


def _pattern(names: Sequence[str]) -> re.Pattern:
    """Returns what finds `embed, search: ` and `embed, with --pieces: ` before a sentence."""
    name = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    topics = rf"(?P<topics>(?:{name})(?:(?:,? and |, )(?:{name}))*)"
    return re.compile(rf"(?:^|(?<=[.;] )){topics}(?P<condition>(?:,? (?:with|of|for) [^:.;]*)?): ")


def _values(flag: flags.Flag) -> tuple[str, ...]:
    return tuple(getattr(flag.parser, "enum_values", None) or ())


def _kind(flag: flags.Flag) -> str:
    kind = _TYPES.get(flag.flag_type(), flag.flag_type())
    return f"{kind}, repeatable" if isinstance(flag, flags.MultiFlag) else kind


def _default(flag: flags.Flag) -> str:
    if flag.default in (None, "", []):
        return ""
    return str(flag.default).lower() if flag.boolean else str(flag.default)


def _meaning(flag: flags.Flag) -> str:
    # absl adds the values of an enum in front, and a remark on repeated flags behind.
    text = re.sub(r"^<[^>]*>: |;\s+repeat this option.*$", "", flag.help, flags=re.DOTALL)
    return " ".join(text.split()).rstrip(".")


def _blocks(text: str) -> Iterator[Block]:
    """Splits a docstring into paragraphs and examples."""
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.splitlines()
        for example, group in itertools.groupby(lines, key=lambda line: line.startswith(" ")):
            yield Block(tuple(textwrap.dedent("\n".join(group)).splitlines()), example)


def _shown(block: Block, width: int) -> str:
    if block.example:
        return textwrap.indent("\n".join(block.lines), "  ")
    return _filled(" ".join(block.lines), width)


def _described(option: Option, width: int) -> str:
    name = f"--[no]{option.name}" if option.boolean else f"--{option.name}"
    default = option.default and f"default: {option.default}"
    facts = ", ".join(filter(None, (option.kind, default, option.required)))
    values = f"one of: {', '.join(option.values)}" if option.values else ""
    lines = [_filled(text, width, "      ") for text in (option.meaning, values) if text]
    return "\n".join([_filled(f"{name} ({facts})", width, "  ", "    "), *lines])


def _filled(text: str, width: int, indent: str = "", following: str | None = None) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if following is None else following,
        break_long_words=False,
        break_on_hyphens=False,
    )
