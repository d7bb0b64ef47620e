"""Reads the texts and the judgements of a ranking task."""

import dataclasses
from collections.abc import Mapping

from official.tasks import trec
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks.readers import tables


@dataclasses.dataclass(frozen=True)
class Collection:
    """The queries and documents that runs refer to.

    Attributes:
      queries: id → text.
      documents: id → text.
      qrels: query → document → grade; empty where there are no judgements.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    qrels: trec.Qrels


def read_collection(
    queries: AnyPath,
    documents: AnyPath,
    qrels: AnyPath | None,
    bad: tables.BadRows,
    header: bool = True,
    format: str | None = None,
) -> Collection:
    """Reads texts with the columns (or keys) `id` and `text`, and qrels.

    Args:
      queries: a TSV, CSV or JSON Lines file.
      documents: a TSV, CSV or JSON Lines file.
      qrels: judgements in TREC's format; None = there are none.
      bad: is called with rows that cannot be used: a repeated id, an id with white space, an empty
        text, a judgement of an unknown query or document.
      header: whether TSV and CSV files name their columns. Without a header, the first column is
        the id and the second the text.
      format: "tsv", "csv" or "jsonl"; None = by the file names.

    Raises:
      UserError: a file cannot be read, or `bad` raises it.
    """
    texts = [_read_texts(path, bad, header, format) for path in (queries, documents)]
    judged = {} if qrels is None else trec.read_qrels(qrels, *texts, bad=bad)
    return Collection(*texts, judged)


def _read_texts(
    path: AnyPath, bad: tables.BadRows, header: bool, format: str | None
) -> dict[str, str]:
    columns = ["id", "text"]
    if not header and tables.file_format(path, format) != "jsonl":
        columns = ["0", "1"]
    texts: dict[str, str] = {}
    rows = tables.read(path, columns, header=header, format=format, bad=bad)
    for _, line, (identity, text) in rows:
        where = f"{path}, line {line}"
        try:
            identity = trec.check_id(identity)
        except ValueError as error:
            bad("not an id", f"{where}: {error}")
            continue
        if identity in texts:
            bad("duplicate id", f"{where}: id {identity!r} is there already")
        elif not text.strip():
            bad("empty text", f"{where}: nothing in the text of {identity!r}")
        else:
            texts[identity] = text
    if not texts:
        raise UserError(f"{path}: no row can be used: {bad}")
    return texts
