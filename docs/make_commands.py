"""Writes docs/commands.md from the flags that the commands define.

python -m docs.make_commands            # writes the page
python -m docs.make_commands --check    # the status is 1 if the page is out of date
"""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from docs import generated_pages

PAGE = Path(__file__).with_name("commands.md")
# Each command, and its arguments that are no flags.
COMMANDS = {
    "tfrecords_tools.build_vocab": "",
    "tfrecords_tools.build_phrases": "",
    "tfrecords_tools.build_shards": "",
    "tfrecords_tools.build_task_shards": "",
    "tfrecords_tools.build_ranking_data": "",
    "tfrecords_tools.inspect_shards": "DIR",
    "official.main": "",
    "official.export": "",
    "official.ensemble": "",
    "official.convert": "",
    "official.explain": "",
    "official.playground": "",
    "official.parameters": "CONFIG...",
    "official.students": "",
    "official.extend_vocabulary": "",
    "official.enlarge": "",
    "official.augment": "",
    "official.mine_negatives": "",
    "official.teacher_outputs": "",
    "official.submission": "",
    "official.score_answers": "",
    "official.score_run": "",
    "official.score_tags": "",
}
# What the page calls absl's types.
_TYPES = {
    "multi string": "string",
    "string enum": "enum",
    "comma separated list of strings": "list",
}
_HEAD = """\
# Commands

`python -m docs.make_commands` writes this page from the flags of the commands. `--help` prints the
same in the shell, with examples.

A flag is given as `--name=value`. A flag of the type *bool* is given by its name alone, or with
`no` in front of the name for *false*. A flag that is marked *repeatable* may be given many times.
A *list* has commas between its values.
"""


def command_flags(command: str) -> list[flags.Flag]:
    """Returns the flags of a command in the order of their definition.

    Args:
      command: a module with `define_flags`.
    """
    module = importlib.import_module(command)
    before = set(flags.FLAGS)
    module.define_flags()
    # Two commands may define the same flag: the flags are removed again.
    made = {name: flags.FLAGS[name] for name in flags.FLAGS if name not in before}
    for name in made:
        delattr(flags.FLAGS, name)
    return list(made.values())


def page() -> str:
    """Returns the text of the page."""
    return "\n".join([_HEAD, *("\n".join(_section(*item)) for item in COMMANDS.items())])


def _section(command: str, arguments: str) -> Iterator[str]:
    yield f"## {command}\n"
    yield f"{importlib.import_module(command).__doc__.splitlines()[0]}\n"
    yield f"```\npython -m {command} {arguments} [FLAGS]\n```\n".replace("  ", " ")
    yield "| flag | type | default | meaning |\n|---|---|---|---|"
    for flag in command_flags(command):
        yield f"| `--{flag.name}` | {_type(flag)} | {_default(flag)} | {_meaning(flag)} |"
    yield ""


def _type(flag: flags.Flag) -> str:
    kind = _TYPES.get(flag.flag_type(), flag.flag_type())
    return f"{kind}, repeatable" if isinstance(flag, flags.MultiFlag) else kind


def _default(flag: flags.Flag) -> str:
    if flag.default in (None, "", []):
        return ""
    return f"`{str(flag.default).lower() if flag.boolean else flag.default}`"


def _meaning(flag: flags.Flag) -> str:
    # absl adds the values of an enum in front, and a remark on repeated flags behind.
    text = re.sub(r"^<[^>]*>: |;\s+repeat this option.*$", "", flag.help, flags=re.DOTALL)
    text = " ".join(text.split()).rstrip(".").replace("|", r"\|")
    values = getattr(flag.parser, "enum_values", None)
    return f"{text}: {', '.join(f'`{value}`' for value in values)}" if values else text


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the status of the process."""
    return generated_pages.update(
        {PAGE: page()}, "docs.make_commands", check="--check" in arguments
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
