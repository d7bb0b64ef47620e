"""BEIR's folder of a test collection (Thakur et al., 2021), read and written.

  corpus.jsonl       documents: an object with `_id`, `title` and `text` on each line
  queries.jsonl      queries: an object with `_id` and `text` on each line
  qrels/SPLIT.tsv    a line `query-id corpus-id score` of names, then a judgment on each, with tabs

The text of a document is its title, a blank and its text. BEIR scores as trec_eval does: the gain
of a document is its grade, and a mean is over the queries with judgments. A document whose id is
that of the query is no hit: some collections have their queries among the documents.
"""

import dataclasses
import json
import os
from collections.abc import Collection, Iterable, Mapping

from official.tasks import text_files, trec
from official.utils import atomic, paths, text_lines
from official.utils.errors import UserError
from official.utils.names import listed
from official.utils.paths import AnyPath

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
# The measures that are printed of a search; see `official.evaluation.rankings`.
METRICS = ("ndcg_10", "mrr_10", "recall_100")
_COLUMNS = ("query-id", "corpus-id", "score")
# BEIR's names of splits.
_SPLITS = {"validation": "dev"}


@dataclasses.dataclass(frozen=True)
class Judged:
    """The queries of a split that have judgments.

    Attributes:
      queries: id → text.
      documents: the file of the documents; `official.tasks.text_files` reads it.
      qrels: query → document → grade, of each of the queries.
      unjudged: the number of queries of the folder without judgments.
      left_out: the number of judgments of queries that the folder does not have.
    """

    queries: Mapping[str, str]
    documents: AnyPath
    qrels: trec.Qrels
    unjudged: int
    left_out: int

    def unknown(self, documents: Collection[str]) -> int:
        """Returns the number of judgments of documents that are not in `documents`.

        These judgments still count: a relevant document that is not there counts as missed.
        """
        return sum(name not in documents for grades in self.qrels.values() for name in grades)


def is_folder(folder: str | os.PathLike) -> bool:
    """Returns whether a folder has BEIR's documents."""
    return (paths.path(folder) / CORPUS).exists()


def read(folder: str | os.PathLike, split: str = "test") -> Judged:
    """Reads queries and judgments.

    Args:
      folder: the folder.
      split: `train`, `test`, `dev` or `validation`, which is `dev`, or another one of `qrels`.

    Raises:
      UserError: a file is missing or not valid, an id occurs twice, or no query has a judgment.
    """
    folder = paths.path(folder)
    for name in (CORPUS, QUERIES):
        paths.check_file(folder / name, None, f"a folder of BEIR has {CORPUS}, {QUERIES}, {QRELS}/")
    texts = dict(text_files.unique(folder / QUERIES))
    path = _qrels_path(folder, split)
    qrels, left_out = _read_qrels(path, texts)
    if not qrels:
        raise UserError(f"{path} judges none of the {len(texts):,} queries of {folder / QUERIES}")
    queries = {name: text for name, text in texts.items() if name in qrels}
    return Judged(queries, folder / CORPUS, qrels, len(texts) - len(queries), left_out)


def _qrels_path(folder: AnyPath, split: str) -> AnyPath:
    path = folder / QRELS / f"{split}.tsv"
    if split in _SPLITS and not path.exists():
        path = path.with_name(f"{_SPLITS[split]}.tsv")
    if not path.is_file():
        there = sorted(file.stem for file in (folder / QRELS).glob("*.tsv"))
        raise UserError(f"{path} is missing: the splits of {folder} are {listed(there) or 'none'}")
    return path


def _read_qrels(path: AnyPath, queries: Collection[str]) -> tuple[trec.Qrels, int]:
    """Returns the judgments of known queries, and the number of others."""
    qrels: trec.Qrels = {}
    left_out = 0
    damaged: list[int] = []
    for number, line in enumerate(text_lines.lines(path, damaged), 1):
        where, cells = f"{path}, line {number}", tuple(line.split("\t"))
        if damaged:
            raise UserError(f"{where}: not UTF-8: convert the file")
        if not line.strip() or (number == 1 and cells == _COLUMNS):
            continue
        if number == 1 or len(cells) != 3:
            expected = "the names" if number == 1 else "a judgment of"
            raise UserError(f"{where}: expected {expected} {' '.join(_COLUMNS)}, separated by tabs")
        query, document, grade = cells
        try:
            query, document, value = trec.check_id(query), trec.check_id(document), int(grade)
        except ValueError:
            raise UserError(
                f"{where}: {line!r}: expected ids without blanks and a whole number"
            ) from None
        if query not in queries:
            left_out += 1
        elif document in qrels.setdefault(query, {}):
            raise UserError(f"{where}: document {document!r} is judged twice for {query!r}")
        else:
            qrels[query][document] = value
    return qrels, left_out


def without_own(run: Mapping[str, Mapping[str, float]]) -> trec.Run:
    """Returns a run without the documents whose id is that of their query."""
    return {
        query: {name: score for name, score in scores.items() if name != query}
        for query, scores in run.items()
    }


def write(
    folder: str | os.PathLike,
    queries: Mapping[str, str],
    documents: Iterable[tuple[str, str]],
    qrels: Mapping[str, trec.Qrels],
) -> None:
    """Writes a folder; documents have empty titles.

    Args:
      folder: the folder to create.
      queries: id → text.
      documents: ids and texts.
      qrels: the judgments of each split. `validation` is written as `dev`.

    Raises:
      UserError: the folder is there already, or cannot be written.
    """
    with atomic.folder(folder, CORPUS) as temporary:
        with open(temporary / QUERIES, "w", encoding="utf-8") as stream:
            for name, text in queries.items():
                stream.write(_line({"_id": name, "text": text}))
        (temporary / QRELS).mkdir()
        for split, judged in qrels.items():
            file = temporary / QRELS / f"{_SPLITS.get(split, split)}.tsv"
            with open(file, "w", encoding="utf-8") as stream:
                stream.write("\t".join(_COLUMNS) + "\n")
                for query, grades in judged.items():
                    lines = (f"{query}\t{name}\t{grade}\n" for name, grade in grades.items())
                    stream.writelines(lines)
        with open(temporary / CORPUS, "w", encoding="utf-8") as stream:
            for name, text in documents:
                stream.write(_line({"_id": name, "title": "", "text": text}))


def _line(value: dict[str, str]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
