"""Reads and writes TREC's qrels (which documents are relevant) and runs (which were retrieved).

  qrels   query 0 document grade          relevant from grade 1 on; higher is better
  run     query Q0 document rank score tag

Columns are separated by blanks or tabs. As in trec_eval, the order of a run is that of its scores,
not of its ranks or lines; see `ordered`.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import IO

import numpy as np

from official.utils import text_lines
from official.utils.errors import UserError
from official.utils.paths import AnyPath

SUFFIX = ".run"  # of a file with a run
Qrels = dict[str, dict[str, int]]  # query → document → grade
MAX_GRADE = 4  # the highest grade of TREC's web track, which satisfies 15 of 16 users
Run = dict[str, dict[str, float]]  # query → document → score
_FUSED_RANKS = 60  # Cormack et al., section 2: what is added to each rank

# Called for an invalid line, with the kind of error and the whole message.
Bad = Callable[[str, str], None]


def ordered(scores: Mapping[str, float]) -> list[tuple[str, float]]:
    """Returns the documents of one query from best to worst, in the order of trec_eval.

    The order is by score as float32, and for equal scores by id, the greater one first.
    """
    by_id = sorted(scores.items(), reverse=True)
    return sorted(by_id, key=lambda item: -np.float32(item[1]))


def fused(runs: Iterable[Run]) -> Run:
    """Joins runs by ranks alone: reciprocal rank fusion (Cormack et al., 2009).

    The score of a document is the sum of 1 / (60 + rank) over the runs that have it. Ranks are
    those of `ordered`, from 1. A run without a document, or without a query, adds nothing.
    """
    result: Run = {}
    for run in runs:
        for query, scores in run.items():
            sums = result.setdefault(query, {})
            for rank, (document, _) in enumerate(ordered(scores), 1):
                sums[document] = sums.get(document, 0.0) + 1 / (_FUSED_RANKS + rank)
    return result


def read_qrels(
    path: AnyPath,
    queries: Container[str] | None = None,
    documents: Container[str] | None = None,
    bad: Bad = text_lines.refuse,
) -> Qrels:
    """Reads qrels.

    Args:
      path: the file; `.gz` is decompressed.
      queries: the ids of known queries; None = any.
      documents: the ids of known documents; None = any.
      bad: called for a line that is not UTF-8 or has another number of columns, a grade that is no
        whole number, an unknown query or document, or a document that is judged twice for a query.
        The line is left out if `bad` returns.

    Raises:
      UserError: the file is missing, damaged or empty, or `bad` raises it.
    """
    qrels: Qrels = {}
    for place, (query, _, document, grade) in _records(
        path, 4, "query 0 document grade", queries, documents, bad
    ):
        try:
            number = int(grade)
        except ValueError:
            bad("grade not a whole number", f"{place}: grade {grade!r} is not a whole number")
            continue
        if document in qrels.setdefault(query, {}):
            bad("judged twice", f"{place}: document {document!r} is judged twice for {query!r}")
            continue
        qrels[query][document] = number
    return qrels


def read_run(
    path: AnyPath,
    queries: Container[str] | None = None,
    documents: Container[str] | None = None,
    bad: Bad = text_lines.refuse,
) -> Run:
    """Reads a run; arguments and errors as for `read_qrels`, with scores in place of grades."""
    run: Run = {}
    for place, (query, _, document, _, score, _) in _records(
        path, 6, "query Q0 document rank score tag", queries, documents, bad
    ):
        number = _number(score)
        if not math.isfinite(number):
            bad("score not a number", f"{place}: score {score!r} is not a number")
            continue
        if document in run.setdefault(query, {}):
            bad("found twice", f"{place}: document {document!r} is listed twice for {query!r}")
            continue
        run[query][document] = number
    return run


def write_qrels(stream: IO[str], qrels: Qrels) -> None:
    """Writes qrels to a text stream."""
    for query, grades in qrels.items():
        stream.writelines(f"{query} 0 {document} {grade}\n" for document, grade in grades.items())


def write_run(
    stream: IO[str], run: Mapping[str, Mapping[str, float]], tag: str, top: int = 0
) -> None:
    """Writes a run to a text stream, the documents of each query from best to worst.

    Args:
      stream: the stream.
      run: query → document → score.
      tag: the name of the run; blanks become underscores.
      top: the largest number of documents of a query; 0 = all.
    """
    tag = "_".join(tag.split()) or "run"
    for query, scores in run.items():
        best = ordered(scores)[: top or None]
        stream.writelines(
            f"{query} Q0 {document} {rank} {score!s} {tag}\n"
            for rank, (document, score) in enumerate(best, 1)
        )


def check_id(text: str) -> str:
    """Returns the id of a query or document without outer space.

    Raises:
      ValueError: the id is empty or contains a blank, which TREC's files do not allow.
    """
    parts = text.split()
    if len(parts) != 1:
        raise ValueError(f"{text!r} cannot be an id: it is empty or has a blank in it")
    return parts[0]


def _records(
    path: AnyPath,
    columns: int,
    names: str,
    queries: Container[str] | None,
    documents: Container[str] | None,
    bad: Bad,
) -> Iterator[tuple[str, list[str]]]:
    """Yields 'file, line n' and the columns of each valid line."""
    lines = 0
    for number, line in enumerate(_lines(path), 1):
        place = f"{path}, line {number}"
        try:
            cells = line.decode("utf-8").split()
        except UnicodeDecodeError:
            bad("not UTF-8", f"{place}: not UTF-8: convert the file")
            continue
        lines += bool(cells)
        if not cells:
            continue
        if len(cells) != columns:
            count = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
            bad("wrong number of columns", f"{place}: {count}, expected {columns} ({names})")
        elif queries is not None and cells[0] not in queries:
            bad("unknown query", f"{place}: there is no query {cells[0]!r}")
        elif documents is not None and cells[2] not in documents:
            bad("unknown document", f"{place}: there is no document {cells[2]!r}")
        else:
            yield place, cells
    if not lines:
        raise UserError(f"{path} is empty: it has no lines")


def _lines(path: AnyPath) -> Iterable[bytes]:
    with text_lines.opened(path) as stream:
        for number, line in enumerate(text_lines.whole(stream, path)):
            yield line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
