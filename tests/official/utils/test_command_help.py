"""`--help` of each command: all its flags, as on docs/commands.md, in a form that can be read."""

import re
import subprocess
import sys

import pytest
from absl import flags

from docs import make_commands
from official.commands import garden
from official.utils import command_help
from official.utils.command_help import Block
from tests import ROOT, commands
from tests.test_packaging import SCRIPTS

GARDEN = "official.commands.garden"
MODULES = [module for script in SCRIPTS.values() if (module := script.split(":")[0]) != GARDEN]
SHOWN = re.compile(r"^  --(?:\[no\])?(\w+)", re.MULTILINE)


def sections():
    """The section of each command in docs/commands.md."""
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def check(shown, name, call):
    """The same flags in the same order, the same titles, and the same examples line by line."""
    section = sections()[name]
    names = SHOWN.findall(shown)
    assert names == re.findall(r"^\| `--(\w+)`", section, re.MULTILINE)
    assert len(set(names)) == len(names)
    # A long title has several lines.
    titles = re.findall(r"\n\n(\S(?:(?!\n\n).)*):\n\n  --", shown, re.DOTALL)
    assert [" ".join(title.split()) for title in titles] == re.findall(
        r"^\*\*(.*)\*\*$", section, re.MULTILINE
    )
    for example in re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        assert "".join(f"  {line}\n" for line in example.splitlines()) in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert f"\n\n  {call} " in shown
    return names


@pytest.mark.parametrize("module", MODULES)
def test_help_is_the_section_of_the_page(module):
    shown = commands.run(module, "--help", status=0).stdout
    assert len(check(shown, module, f"python -m {module}")) > 1


def test_every_command_is_on_the_page():
    assert set(make_commands.COMMANDS) == set(MODULES)
    assert set(sections()) == {*MODULES, "garden", *(f"garden {name}" for name in garden.COMMANDS)}


def test_help_and_the_flags_that_are_missed_agree():
    """What a command says is missing, its help marks as required."""
    for mode, missed in (("train", "data"), ("fill_mask", "model_dir"), ("search", "output")):
        done = commands.run("official.main", f"--mode={mode}", status=2)
        assert f"--{missed} is missing (--mode={mode})" in done.stderr
    shown = commands.run("official.main", "-h", status=0).stdout
    [required] = re.findall(r"^Required:\n(.*?)^With any", shown, re.MULTILINE | re.DOTALL)
    assert SHOWN.findall(required) == ["data", "model_dir", "output", "texts"]
    assert "--output (string, required with --mode=" in required
    assert "--model_dir (string, required with --mode=" in required


def test_no_help_loads_tensorflow_and_a_console_command_has_the_same():
    """In one process: help of the modules; and one as its console command prints it."""
    program = f"""
import importlib, sys
for name in {MODULES}:
    print(importlib.import_module(name).run.help().text(80))
    assert not {{"tensorflow", "keras"}} & sys.modules.keys(), name
sys.argv = ["garden-build-vocab", "--help"]
importlib.import_module("tfrecords_tools.build_vocab").run()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    shown = commands.run("tfrecords_tools.build_vocab", "--help", status=0).stdout
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(shown) == 2 and "--vocab_size (int, required)" in shown


@pytest.fixture
def defined():
    """Flags of a command that --mode rules."""
    values = flags.FlagValues()
    flags.DEFINE_string("text", "", "what to read", flag_values=values)
    flags.DEFINE_enum("mode", "a", ["a", "b", "c"], "What to do.", flag_values=values)
    flags.DEFINE_bool("fast", True, "b, with --text: as fast as\n can be", flag_values=values)
    flags.DEFINE_multi_string("of", [], "a and c: of these.", flag_values=values)
    flags.DEFINE_list("both", ["x"], "a: one. c, of x: two; b: 3", flag_values=values)
    flags.DEFINE_integer("k", None, "about a: nothing", 1, flag_values=values)
    flags.DEFINE_float("rate", 0.5, "c: a rate", flag_values=values)
    return [values[name] for name in values]


def test_flags_are_grouped_by_what_their_descriptions_begin_with(defined):
    made = command_help.make(
        "x.y", "[FLAGS]", "Does.", defined,
        {"a": ("text", "rate"), "b": ("text",), "c": ("text",)}, command_help.Topics("mode"),
    )  # fmt: skip
    found = {group.title: [(o.name, o.meaning) for o in group.options] for group in made.groups}
    assert list(found.items()) == [
        ("Required", [("text", "what to read"), ("rate", "c: a rate")]),
        ("With any --mode", [("mode", "What to do"), ("k", "about a: nothing")]),
        ("With --mode=a, b, c", [("both", "a: one. c, of x: two; b: 3")]),
        ("With --mode=a, c", [("of", "of these")]),
        ("With --mode=b", [("fast", "with --text: as fast as can be")]),
    ]
    facts = {o.name: (o.kind, o.default, o.required) for g in made.groups for o in g.options}
    assert facts["text"] == ("string", "", "required")
    assert facts["rate"] == ("float", "0.5", "required with --mode=a")
    assert facts["of"] == ("string, repeatable", "", "")
    assert facts["fast"] == ("bool", "true", "")


def test_a_text_has_its_paragraphs_and_the_lines_of_its_examples(defined):
    text = "Does.\n\nOne\ntwo:\n  x \\\n    --y\nthree\n"
    made = command_help.make("x.y", "DIR [FLAGS]", text, defined, {"": ("text",)}, None)
    assert made.blocks[1:] == (
        Block(("One", "two:"), False), Block(("x \\", "  --y"), True), Block(("three",), False),
    )  # fmt: skip
    assert [group.title for group in made.groups] == ["Required", "Optional"]
    assert made.text(40).startswith(
        "Does.\n\n  python -m x.y DIR [FLAGS]\n\nOne two:\n\n  x \\\n    --y\n\nthree\n\n"
        "Required:\n\n"
        "  --text (string, required)\n      what to read\n\nOptional:\n\n"
        "  --mode (enum, default: a)\n      What to do\n      one of: a, b, c\n\n"
    )
