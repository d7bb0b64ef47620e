"""Collects English text from the documentation of Python's standard library.

`passages()` collects the topics of `pydoc`, and docstrings and block comments from the sources of
the standard library. Sources are parsed, never imported or run. The same Python gives the same
passages in the same order. `write(folder)` writes them as

* `text/train.txt` and `text/heldout.txt`: documents for pretraining, one sentence a line and a
  blank line between documents;
* `task/train.tsv` and `task/dev.tsv`: a labeled task, columns `text` and `area`: which part of
  the standard library does this paragraph come from?

The passages about a function, class or module are either all held out, from pretraining and from
the training rows, or all used. The names of modules are blanked in the rows of the task, so that
the text does not contain the label.
"""

import ast
import hashlib
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data import topics
from typing import NamedTuple

from official.utils import atomic
from tfrecords_tools.text import sentences

# The area of each top-level module. Not every Python has all of them.
AREAS = {
    "concurrency": "asyncio concurrent multiprocessing queue sched selectors signal subprocess "
    "threading _threading_local",
    "debugging": "bdb cProfile doctest logging pdb profile pstats trace traceback tracemalloc "
    "unittest warnings",
    "files": "_compression _pyio bz2 dbm filecmp fileinput fnmatch genericpath glob gzip io lzma "
    "mailbox ntpath os pathlib posixpath shelve shutil stat tarfile tempfile zipfile",
    "internet": "cgi email ftplib http imaplib nntplib poplib smtpd smtplib socket socketserver "
    "ssl telnetlib urllib webbrowser wsgiref xmlrpc",
    "language": "_collections_abc _py_abc abc ast code codeop collections contextlib copy dis "
    "enum functools importlib inspect keyword modulefinder opcode operator pickle pickletools "
    "pkgutil pydoc runpy symtable types typing weakref",
    "numbers": "_pydatetime _pydecimal _strptime bisect calendar colorsys datetime decimal "
    "fractions heapq ipaddress numbers random statistics zoneinfo",
    "text": "argparse codecs configparser csv difflib gettext html json locale netrc optparse "
    "plistlib pprint re reprlib shlex string textwrap tokenize xml",
}
AREA_OF = {module: area for area, modules in AREAS.items() for module in modules.split()}
# Tests, generated tables, and packages outside the standard library.
LEFT_OUT = {"dist-packages", "encodings", "ensurepip", "idle_test", "lib2to3", "pydoc_data"}
LEFT_OUT |= {"site-packages", "test", "tests"}
HELD_OUT = 0.15  # The share of described objects.
MIN_WORDS, MAX_WORDS = 6, 60  # Of a row of the task.
BLANK = "module"  # Replaces the names of modules.

_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"(?:^[ \t]*#(?!!)[^\n]*\n){2,}", re.MULTILINE)
_MODULE_NAME = re.compile(
    r"\b({})\b".format("|".join(sorted({name.strip("_") for name in AREA_OF}))), re.IGNORECASE
)


class Passage(NamedTuple):
    """The text about one object.

    Attributes:
      module: the dotted name of the module, or "pydoc" for its topics.
      name: the object: a topic, a qualified name in the module ("" = the module), or the line of a
        comment.
      paragraphs: the text; line breaks inside a paragraph are removed.
    """

    module: str
    name: str
    paragraphs: list[str]

    @property
    def held_out(self) -> bool:
        """Whether it is kept for validation; depends on the two names only."""
        digest = hashlib.sha256(f"{self.module}:{self.name}".encode()).digest()
        return int.from_bytes(digest[:4], "big") < HELD_OUT * 2**32

    def sentences(self) -> list[str]:
        """Returns the sentences of its paragraphs."""
        return [s.strip() for text in self.paragraphs for s in sentences.split(text)]


def passages(library: Path | None = None) -> Iterator[Passage]:
    """Yields all passages, in the order of file names and lines.

    Args:
      library: the folder of the standard library; None = the one of this Python.
    """
    for topic, text in sorted(topics.topics.items()):
        yield Passage("pydoc", topic, paragraphs(text))
    library = library or Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).with_suffix("").parts
        if not LEFT_OUT & set(parts):
            yield from _of_source(path, ".".join(parts).removesuffix(".__init__"))


def paragraphs(text: str) -> list[str]:
    """Returns the paragraphs of a text that are prose, not code, tables or signatures."""
    prose = []
    for block in re.split(r"\n\s*\n", text):
        block = " ".join(re.sub(r"[*`\"|]+", "", block).split())
        letters = sum(c.isalpha() or c == " " for c in block)
        if letters > 0.85 * len(block) and len(_WORD.findall(block)) >= 4 and ">>>" not in block:
            prose.append(block)
    return prose


def _of_source(path: Path, module: str) -> Iterator[Passage]:
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (UnicodeDecodeError, SyntaxError):
        return  # Such a file is a test input.
    texts = []  # (line, name, text)
    for comment in _COMMENT.finditer(source):
        line = source.count("\n", 0, comment.start()) + 1
        text = re.sub(r"^[ \t]*#+", "", comment.group(), flags=re.MULTILINE)
        texts.append((line, f"line {line}", text))

    def walk(node: ast.AST, name: str) -> None:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            texts.append((getattr(node, "lineno", 0), name, ast.get_docstring(node) or ""))
        for child in ast.iter_child_nodes(node):
            own = getattr(child, "name", None)
            walk(child, f"{name}.{own}".strip(".") if isinstance(own, str) else name)

    walk(tree, "")
    for _, name, text in sorted(texts):
        if prose := paragraphs(text):
            yield Passage(module, name, prose)


def documents(texts: Sequence[Passage]) -> tuple[list[list[str]], list[list[str]]]:
    """Returns documents of sentences for training and held out, one for each module and topic.

    No sentence is in both.
    """
    kept_back = {s for passage in texts if passage.held_out for s in passage.sentences()}
    sides: tuple[dict, dict] = ({}, {})
    for passage in texts:
        title = passage.name if passage.module == "pydoc" else ""
        document = sides[passage.held_out].setdefault((passage.module, title), [])
        document += [s for s in passage.sentences() if passage.held_out or s not in kept_back]
    train, held_out = ([document for document in side.values() if document] for side in sides)
    return train, held_out


def rows(texts: Sequence[Passage]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns (text, area) of every paragraph, for training and for validation.

    No text occurs twice in the two lists.
    """
    train, validation = [], []
    seen = set()
    # Held-out passages come first, so a text that is in both is not used for training.
    for passage in sorted(texts, key=lambda passage: not passage.held_out):
        area = AREA_OF.get(passage.module.partition(".")[0])
        for text in passage.paragraphs if area else ():
            text = _MODULE_NAME.sub(BLANK, text)
            words = _WORD.findall(text.lower())
            if MIN_WORDS <= len(words) and tuple(words) not in seen:
                seen.add(tuple(words))
                cut = " ".join(text.split()[:MAX_WORDS])
                (validation if passage.held_out else train).append((cut, area))
    return train, validation


def write(folder: Path, every: int = 1) -> dict[str, int]:
    """Writes the corpus and the task to a folder, and returns their sizes by name.

    Args:
      folder: the folder.
      every: N, to take each N-th passage; 1 = all.
    """
    texts = list(passages())[::every]
    sizes = {}
    for name, side in zip(("train", "heldout"), documents(texts), strict=True):
        with atomic.file(folder / "text" / f"{name}.txt") as file:
            file.writelines("\n".join(document) + "\n\n" for document in side)
        sizes[f"{name} documents"] = len(side)
        sizes[f"{name} sentences"] = sum(map(len, side))
        sizes[f"{name} bytes"] = (folder / "text" / f"{name}.txt").stat().st_size
    for name, split in zip(("train", "dev"), rows(texts), strict=True):
        with atomic.file(folder / "task" / f"{name}.tsv") as file:
            file.write("text\tarea\n")
            file.writelines(f"{text}\t{area}\n" for text, area in split)
        sizes[f"{name} rows"] = len(split)
    return sizes
