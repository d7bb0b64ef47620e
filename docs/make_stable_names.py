"""Writes docs/stable-names.md from the docstrings of the names that `official` exports.

python -m docs.make_stable_names            # writes the page
python -m docs.make_stable_names --check    # the status is 1 if the page is out of date
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import official
from docs import generated_pages

PAGE = Path(__file__).with_name("stable-names.md")
_HEAD = """\
# Stable names

`python -m docs.make_stable_names` writes this page from docstrings.

These names of the package `official` change with a new major version only, with their arguments.
So do the flags of the [commands](commands.md), the [keys of configs](config-keys.md), and the
formats of shards, model folders and exports: what an earlier version wrote is read. All other
modules may change with any version. A name is imported when it is used, so `import official` is
light.
"""
# The exported module, and its function that is stable.
_FUNCTIONS = {"config": "config.load"}
_TITLES = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises", "Example": "Example"}


def page() -> str:
    """Returns the text of the page."""
    names = [_FUNCTIONS.get(name, name) for name in official.__all__]
    return "\n".join([_HEAD, *("\n".join(_section(name)) for name in sorted(names))])


def _section(name: str) -> Iterator[str]:
    value = official
    for part in name.split("."):
        value = getattr(value, part)
    yield f"## official.{name}\n"
    if inspect.isfunction(value):
        yield f"```python\n{_signature(name.split('.')[-1], value)}\n```\n"
    yield "\n".join(_rendered(inspect.getdoc(value))) + "\n"


def _signature(name: str, function: object) -> str:
    """Returns a signature without annotations, which the text explains."""
    arguments: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        text = str(parameter.replace(annotation=inspect.Parameter.empty))
        arguments.append(re.sub(r"<function (\w+) at 0x\w+>", r"\1", text).replace("'", '"'))
    if len(line := f"{name}({', '.join(arguments)})") <= 76:
        return line
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), ")"])


def _rendered(docstring: str) -> Iterator[str]:
    """Yields the lines of a docstring as Markdown: sections become lists."""
    listed = fenced = False
    for line in docstring.splitlines():
        title = re.fullmatch(r"(\w+):", line)
        fenced ^= line.startswith("```")
        if fenced:
            yield line
        elif title and title[1] in _TITLES:
            listed = title[1] in ("Args", "Raises")
            yield f"*{_TITLES[title[1]]}*\n"
        elif listed and (item := re.fullmatch(r"  ([\w.*]+): (.*)", line)):
            yield f"* `{item[1].lstrip('*')}`: {item[2]}"
        elif listed and line.startswith("    "):
            yield "  " + line.strip()
        else:
            if not line.startswith(" "):
                listed = False
            yield line.strip()


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the status of the process."""
    return generated_pages.update(
        {PAGE: page()}, "docs.make_stable_names", check="--check" in arguments
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
