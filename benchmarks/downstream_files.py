"""Reads the texts and targets of the data sets for `benchmarks.downstream`.

All files are read with the readers that build the shards, so the plain baselines see the same rows
as the encoder, and the rows have the same numbers as in the predictions.
"""

import json
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from official import tasks
from tfrecords_tools.tasks.readers import choice_files, tables


class Rows(NamedTuple):
    """Texts of a split.

    Attributes:
      numbers: of the rows in their file.
      texts: one or two of each row.
      targets: class ids or scores; None where the file has none.
    """

    numbers: list[int]
    texts: list[tuple[str, ...]]
    targets: np.ndarray | None


def read_rows(task: tasks.Task, split: str, path: Path) -> Rows:
    """Reads a split of a classification or a regression, without the rows that shards leave out."""
    columns = task.columns_for(split, tables.file_format(path))
    texts = [name for name in (columns.text, columns.text_pair) if name is not None]
    labels = [] if columns.label is None else [columns.label]
    bad = tables.BadRows(known=task.skipped)
    optional = labels if split.startswith("test") else ()
    source = tables.read(path, texts + labels, optional, columns.header, bad=bad)
    ids = {name: i for names in (task.labels, task.values) for i, name in enumerate(names)}
    rows = [
        row for row in source if all(text.strip() for text in row.cells[: len(texts)])
    ]  # fmt: skip
    cells = [row.cells[: len(texts)] for row in rows]
    if task.line_break:
        cells = [tuple(text.replace(task.line_break, " ") for text in row) for row in cells]
    targets = None
    if labels and rows[0].cells[-1] is not None:
        values = [row.cells[-1].strip() for row in rows]
        kind = task.kind == "regression"
        targets = np.array([float(v) if kind else ids[v] for v in values])
    return Rows([row.number for row in rows], cells, targets)


def read_choices(task: tasks.Task, path: Path) -> list[choice_files.Question]:
    """Reads the questions of a choice task."""
    return list(choice_files.read(task, path, False, tables.BadRows()))


def join_squad(source: Path, files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Joins files in the format of SQuAD, whose names are given with + between them."""
    prepared = {}
    for split, names in files.items():
        articles = []
        for name in names.split(" + "):
            articles += json.loads((source / name).read_text(encoding="utf-8"))["data"]
        prepared[split] = str(folder / f"{split}.json")
        Path(prepared[split]).write_text(json.dumps({"data": articles}), encoding="utf-8")
    return prepared


def split_race(source: Path, files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Holds out a fifth of the articles of race_1000.jsonl, drawn at random."""
    lines = (source / "race_1000.jsonl").read_text(encoding="utf-8").splitlines()
    articles = [json.loads(line)["article"] for line in lines]
    order = sorted(set(articles))
    random.Random(0).shuffle(order)
    held_out = set(order[: len(order) // 5])
    prepared = dict(files)
    for split in ("train", "validation"):
        prepared[split] = str(folder / files[split])
        chosen = [
            line
            for line, article in zip(lines, articles, strict=True)
            if (article in held_out) == (split == "validation")
        ]
        Path(prepared[split]).write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return prepared


_TITLE = re.compile(r" = [^=].*[^=] = ")


def articles(source: Path, files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Converts the text of WikiText to documents, one paragraph on each line, without titles."""
    prepared = {}
    for split, name in files.items():
        paragraphs: list[str] = []
        for line in (source / name).read_text(encoding="utf-8").splitlines():
            if _TITLE.fullmatch(line):
                paragraphs.append("")
            elif line.strip() and not line.startswith(" = "):
                paragraphs.append(line.strip())
        prepared[split] = str(folder / f"{split}.txt")
        Path(prepared[split]).write_text("\n".join(paragraphs).strip() + "\n", encoding="utf-8")
    return prepared


PREPARE: dict[str, Callable[[Path, Mapping[str, str], Path], dict[str, str]]] = {
    "join_squad": join_squad,
    "split_race": split_race,
    "articles": articles,
}
