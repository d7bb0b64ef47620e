"""Writes docs/tokenizer-folders.md from the tables of keys and classes of tokenizers' folders.

python -m docs.make_tokenizer_folders            # writes the page
python -m docs.make_tokenizer_folders --check    # the status is 1 if the page is out of date
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from docs import generated_pages
from official.tokenizers import folder_classes, folder_keys

PAGE = Path(__file__).with_name("tokenizer-folders.md")
_HEAD = """\
# Folders of tokenizers

`python -m docs.make_tokenizer_folders` writes this page from the tables that the code reads.

A folder of another tool says in several files how text becomes ids. `official.convert`, and every
`--tokenizer=` with such a folder, looks each of their keys up here:

* *done*: it is read, and decides what it decides in that tool;
* *harmless*: it decides nothing that is computed here;
* *refused*: it would change what is computed, and cannot be computed here. The command ends with
  its name and the way out.

A key, a component or a class that is on no table is refused by its name. So is a value that a row
does not name.
"""
_TITLES = {
    folder_keys.SETTINGS: "The settings of a tokenizer.",
    folder_keys.SPECIALS: "The special tokens by their names.",
    folder_keys.ADDED: "Tokens and their ids, of transformers 4.",
    folder_keys.LENGTHS: "Of sentence-transformers, under several names.",
    folder_keys.DESCRIBED: "The parts of a tokenizer. [Tokenizers](tokenizers.md) says which of "
    "them may stand beside each other.",
}


def page() -> str:
    """Returns the text of the page."""
    parts = [_HEAD, *_classes()]
    for file, title in _TITLES.items():
        parts.append(f"## {file}\n\n{title}\n")
        parts.append("\n".join(_rows(file)) + "\n")
    return "\n".join(parts)


def _rows(file: str) -> Iterator[str]:
    yield "| key | | what it decides, or why it does not |"
    yield "|---|---|---|"
    rows = [row for row in folder_keys.ROWS if row.file == file]
    for row in sorted(rows, key=lambda row: (row.key.startswith("_"), row.key)):
        values = ", ".join(f"`{json.dumps(v, ensure_ascii=False)}`" for v in row.only)
        only = f"; only {values}" if values else ""
        yield f"| `{row.key}` | {row.verdict} | {row.why}{only} |"


def _classes() -> Iterator[str]:
    yield "## Classes\n"
    yield (
        "`tokenizer_class` of `tokenizer_config.json` names the class, or else that of\n"
        "`config.json`, or else it follows from the `model_type`. `Fast` at its end changes "
        "nothing.\n"
    )
    lines = [
        "| class | kind | lower case unless a file says it | types of tokens in 4.57, 5.24 |",
        "|---|---|---|---|",
    ]
    for each in folder_classes.CLASSES.values():
        case = {None: "never", True: "yes", False: "no"}[each.lower_case]
        types = ", ".join("yes" if given else "no" for given in each.types)
        lines.append(f"| `{each.name}` | {each.kind} | {case} | {types} |")
    yield "\n".join(lines) + "\n"
    yield "Refused, since the rules are others:\n"
    lines = ["| class | what is other | way out |", "|---|---|---|"]
    for name, (other, way) in folder_classes.REFUSED_CLASSES.items():
        lines.append(f"| `{name}` | {other} | {way} |")
    yield "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the status of the process."""
    return generated_pages.update(
        {PAGE: page()}, "docs.make_tokenizer_folders", check="--check" in arguments
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
