"""Margins of a teacher: by how much a ranker prefers the positive of a query to each negative.

A student learns them with the loss `margin_mse` (Hofstätter et al., 2020).
"""

import itertools
import json
import os
from collections.abc import Iterator

import numpy as np

from official.serving.predictor import Predictor
from official.utils import atomic, paths, text_lines
from official.utils.errors import UserError
from official.utils.progress import Progress, Report

ROWS = 32  # whose pairs are scored together, those of similar length in a batch


def write(
    model: Predictor,
    given: str | os.PathLike,
    output: str | os.PathLike,
    scale: float = 1.0,
    report: Report | None = None,
) -> np.ndarray:
    """Scores pairs with negatives, and writes `query`, `positive`, `negative` and `margin`.

    Each negative has a line of its own.

    Args:
      model: a model with the objective `ranking`; see `Predictor.rank`. Its scores are those that
        its loss compared, before a sigmoid.
      given: the file that `official.serving.vectors.negatives` has written.
      output: the JSON Lines to write, which appear when they are complete.
      scale: the factor of the differences of scores.
      report: is called with lines of progress; None = there are none.

    Returns:
      The margins in the order of the lines.

    Raises:
      UserError: a row cannot be read, or the model has no such objective.
    """
    check_output(output)
    found: list[np.ndarray] = []
    progress = Progress(None, report, unit="rows")
    with atomic.file(output) as stream:
        rows = _rows(given)
        while block := list(itertools.islice(rows, ROWS)):
            queries = [row[0] for row in block for _ in row[1:]]
            texts = [text for row in block for text in row[1:]]
            scores = iter(model.rank(queries, texts, raw=True))
            for query, positive, *negatives in block:
                best = next(scores)
                margins = scale * (best - np.array([next(scores) for _ in negatives]))
                found.append(margins)
                for negative, margin in zip(negatives, margins.tolist(), strict=True):
                    line = {"query": query, "positive": positive, "negative": negative}
                    written = json.dumps({**line, "margin": margin}, ensure_ascii=False)
                    stream.write(written + "\n")
            progress(len(block))
        if not found:
            raise UserError(f"{given} has no rows")
    return np.concatenate(found)


def check_output(output: str | os.PathLike) -> None:
    """Refuses a file that `write` cannot write."""
    paths.check_suffix(output, "margins", (".jsonl",))


def _rows(path: str | os.PathLike) -> Iterator[list[str]]:
    """Yields the query, the positive and the negatives of each row."""
    for _, line, row in text_lines.objects(paths.path(path), text_lines.refuse):
        negatives = row.get("negatives") or [None]
        texts = [row.get("query"), row.get("positive"), *negatives]
        if not isinstance(negatives, list) or not all(isinstance(text, str) for text in texts):
            raise UserError(
                f"{path}, line {line}: expected the texts `query` and `positive` and the list "
                "`negatives`, as official.commands.mine_negatives writes them"
            )
        yield texts
