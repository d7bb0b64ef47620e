"""The names that `official` exports."""

import inspect
import re
import subprocess
import sys

import pytest

import official
from official.utils import errors


@pytest.mark.parametrize("name", [n for n in official.__all__ if n != "config"])
def test_a_stable_name_has_its_arguments_and_an_example_in_its_docstring(name):
    value = getattr(official, name)
    text = inspect.getdoc(value)
    assert f"official.{name}" in text[text.index("Example:\n```python") :] or name == "UserError"
    if inspect.isfunction(value):
        arguments = text[text.index("Args:") :]
        for argument in inspect.signature(value).parameters:
            assert re.search(rf"^  \**{argument}: \S", arguments, re.MULTILINE), argument


def test_names_are_imported_when_they_are_used():
    """In a new process: nothing is imported before, and a command's module hides no function."""
    program = (
        "import importlib, inspect, sys, official\n"
        "heavy = lambda: sorted({'tensorflow', 'keras', 'numpy', 'yaml'} & sys.modules.keys())\n"
        "print(heavy(), set(official.__all__) <= set(dir(official)))\n"
        "official.UserError\n"
        "print(heavy(), inspect.isfunction(official.config.load))\n"
        "for name in ('export', 'convert'):\n"
        "    importlib.import_module(f'official.{name}')\n"
        "    command = sys.modules[f'official.{name}']\n"
        "    print(inspect.isfunction(getattr(official, name)), inspect.ismodule(command))\n"
        "try:\n    official.exports\nexcept AttributeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, second, third, fourth, last = done.stdout.splitlines()
    assert first == "[] True" and third == fourth == "True True"
    assert second == "[] True"
    assert last == "module 'official' has no attribute 'exports'"
    assert official.UserError is errors.UserError
