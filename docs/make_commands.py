"""Writes docs/commands.md from the help of the commands.

python -m docs.make_commands            # writes the page
python -m docs.make_commands --check    # the status is 1 if the page is out of date
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from docs import generated_pages
from official.commands import garden
from official.utils.command_help import Block, Help, Option

PAGE = Path(__file__).with_name("commands.md")
COMMANDS = (
    "tfrecords_tools.build_vocab",
    "tfrecords_tools.build_phrases",
    "tfrecords_tools.build_shards",
    "tfrecords_tools.build_task_shards",
    "tfrecords_tools.build_ranking_data",
    "tfrecords_tools.inspect_shards",
    "official.main",
    "official.export",
    "official.commands.ensemble",
    "official.convert",
    "official.commands.explain",
    "official.commands.playground",
    "official.commands.parameters",
    "official.commands.students",
    "official.commands.extend_vocabulary",
    "official.commands.enlarge",
    "official.commands.mine_negatives",
    "official.commands.teacher_outputs",
    "official.commands.teacher_margins",
    "official.commands.smaller_vectors",
    "official.commands.submission",
    "official.commands.score_answers",
    "official.commands.score_run",
    "official.commands.score_tags",
)
_HEAD = """\
# Commands

`python -m docs.make_commands` writes this page: it is what `--help` prints of each command. The
console commands `garden train`, `garden eval` and so on are the modes of `official.main`, each with
its own flags alone.

A flag is given as `--name=value`. A flag of the type *bool* is given by its name alone, or with
`no` in front of the name for *false*. A flag that is marked *repeatable* may be given many times.
A *list* has commas between its values. Every command also has `--help`, `--version` (of this
project, TensorFlow, Keras and NumPy) and `--helpfull`, which adds the flags of absl, such as
`--flagfile`.
"""


def page() -> str:
    """Returns the text of the page."""
    of_modules = [importlib.import_module(name).run for name in COMMANDS]
    of_garden = [garden.OVERVIEW, *garden.COMMANDS.values()]
    sections = ["\n".join(_section(each.help())) for each in (*of_garden, *of_modules)]
    return "\n".join([_HEAD, *sections])


def _section(shown: Help) -> Iterator[str]:
    first, *rest = shown.blocks
    usage = Block((shown.call,), example=True)
    yield f"## {shown.command}\n"
    for block in (first, usage, *rest):
        yield from ("```", *block.lines, "```\n") if block.example else (*block.lines, "")
    for group in shown.groups:
        yield f"**{group.title}**\n"
        yield "| flag | type | default | meaning |\n|---|---|---|---|"
        yield from map(_row, group.options)
        yield ""


def _row(option: Option) -> str:
    default = f"`{option.default}`" if option.default else ""
    meaning = option.meaning.replace("|", r"\|")
    if option.values:
        meaning += f": {', '.join(f'`{value}`' for value in option.values)}"
    if option.required.startswith("required with"):
        meaning += f" ({option.required})"
    return f"| `--{option.name}` | {option.kind} | {default} | {meaning} |"


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the status of the process."""
    return generated_pages.update(
        {PAGE: page()}, "docs.make_commands", check="--check" in arguments
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
