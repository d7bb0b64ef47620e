"""Examples of a ranking, from queries, documents, qrels and runs (see `builder`).

The run of a split holds its queries and their candidates. Training examples are triples: a query, a
relevant document, and a candidate of the query that is not relevant. With `list_size` they are
lists: a query and some documents with their grades, or with the scores of the run, in their order.
Lists with fewer documents are filled with empty ones. The other splits have one example for each
candidate, in the order of the lines of `SPLIT.run` in the folder
(`official.shards.side_texts`).
"""

import collections
import dataclasses
import functools
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from official.shards import side_texts
from official.tasks import Description, Task, trec
from official.tokenizers import Tokenizer, pair_packing
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows
from tfrecords_tools.tasks import builder, splits, tables
from tfrecords_tools.tasks.plans.ranking import LIST_LABELS, NEGATIVES
from tfrecords_tools.tasks.splits import Example, Make, Splits

ENCODE_AT_ONCE = 4096

# The first ids of a text, which a sequence may have room for, and the number of all.
Encoded = tuple[np.ndarray, int]
# A query and the documents of an example.
Wanted = tuple[str, tuple[str, ...]]
# The number of an example, its query, its documents, and the grades of a list.
Row = tuple[int, Encoded, list[Encoded], list[float]]


@dataclasses.dataclass
class SplitCounts(splits.SplitCounts):
    """The counts of one split; its examples are triples or candidates.

    Attributes:
      queries: the number of queries with examples.
      queries_left_out: the number of queries without examples, by reason.
    """

    queries: int = 0
    queries_left_out: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )


@dataclasses.dataclass
class Builder(builder.Builder["Row", SplitCounts]):
    """Builds triples to learn from, and the candidates of the other splits, whose files are runs.

    A sequence that is too long is cut, one token at a time, from the text that is longer then.

    Attributes:
      queries: the file with the texts of the queries.
      documents: the file with the texts of the documents.
      qrels: judgments in TREC's format; None = there are none.
      input: the folder of these files.
      header: whether TSV and CSV files name their columns.
      negatives: the number of triples of each relevant document, each with another candidate; or of
        lists that each relevant document is in, or with scores each candidate.
      list_size: the most documents of a training example; None = triples.
      list_labels: where the grades of lists are from: 'grades' = the qrels, 'scores' = the run.
    """

    queries: str | os.PathLike = ""
    documents: str | os.PathLike = ""
    qrels: str | os.PathLike | None = None
    input: str = ""
    header: bool = True
    negatives: int = NEGATIVES
    list_size: int | None = None
    list_labels: str = LIST_LABELS[0]

    counts_type = SplitCounts

    @override
    def prepare(self) -> None:
        bad = BadRows(self.skip_bad_rows)
        self._collection = read_collection(
            self._path(self.queries),
            self._path(self.documents),
            self._path(self.qrels) if self.qrels else None,
            bad,
            self.header,
            self.format,
        )
        if bad.counts:
            self.report(f"left out of queries, documents and qrels: {bad}")
        self.check_max_length(2)
        _check_grades(self.task, self._collection.qrels)
        self._skipped = bad.counts
        self._digests: dict[str, str] = {}
        self._texts = Texts(self._collection.queries, self._collection.documents, self.max_length)

    @property
    @override
    def inputs(self) -> Iterable[str | os.PathLike]:
        names = self.queries, self.documents, self.qrels
        return *self.files.values(), *(self._path(name) for name in names if name)

    def _path(self, name: str | os.PathLike) -> AnyPath:
        return paths.join(self.input, name)

    @override
    def read(self, split: str, counts: SplitCounts, writer: Splits) -> Iterator["Row"]:
        """See `builder.Builder`; the candidates of a split are written beside the shards."""
        qrels = self._collection.qrels
        run = trec.read_run(
            self.files[split], self._collection.queries, self._collection.documents, bad=counts.bad
        )
        wanted: Iterable[Wanted]
        if split == "train" and self.list_size:
            relevant = None if self.list_labels == "scores" else qrels
            wanted = lists(run, relevant, self.list_size, self.negatives, self.seed, counts)
        elif split == "train":
            wanted = triples(run, qrels, self.negatives, self.seed, counts)
        else:
            pairs, written = side_texts.write_candidates(writer.folder, split, run, qrels)
            wanted = ((query, (document,)) for query, document in pairs)
            counts.queries = len(run)
            counts.labeled = f"{split}.qrels" in written
            self._digests |= written
        labels: Mapping[str, Mapping[str, float]] | None = None
        if self.list_size:
            labels = run if self.list_labels == "scores" else qrels
        return self._texts.rows(wanted, writer, labels)

    @override
    def settings(self) -> dict[str, Any]:
        made = {"candidates": self._digests, "negatives": self.negatives}
        if self.list_size:
            made |= {"list_size": self.list_size, "list_labels": self.list_labels}
        return made

    @property
    @override
    def skipped(self) -> Mapping[str, int]:
        return self._skipped

    @override
    def examples(self) -> Make["Row", SplitCounts]:
        return functools.partial(
            _examples, max_length=self.max_length, train_size=self.list_size or 0
        )

    @override
    def nothing(self, split: str, counts: SplitCounts) -> str:
        reasons = {**counts.bad.counts, **counts.queries_left_out}
        return (
            f"{self.files[split]}: nothing to {'learn from' if split == 'train' else 'rank'}: "
            f"{', '.join(f'{n:,} {why}' for why, n in sorted(reasons.items()))}"
        )

    @property
    @override
    def features(self) -> tuple[str, ...]:
        names = "token_ids", "segment_lengths", "sequence_lengths", "row"
        return (*names, "grades") if self.list_size else names

    @override
    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        return {"queries": counts.queries, "left_out": dict(counts.queries_left_out)}

    @override
    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        size = self.list_size or 2
        sequences = {split: size if split == "train" else 1 for split in counts}
        return dataclasses.replace(self.task.description(), sequences=sequences)

    @override
    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        learned = "lists" if self.list_size else "triples"
        examples = learned if split == "train" else "candidates"
        return [
            f"{split}: {counts.queries:,} queries, {counts.examples:,} {examples}",
            f"{counts.tokens:,} tokens",
            f"{counts.truncated:,} cut at {self.max_length} tokens",
            *(f"{count:,} {reason}" for reason, count in sorted(counts.queries_left_out.items())),
            *counts.left_out(),
            *([] if counts.labeled else ["no judgments"]),
        ]


@dataclasses.dataclass(frozen=True)
class Collection:
    """The queries and documents that runs refer to.

    Attributes:
      queries: id → text.
      documents: id → text.
      qrels: query → document → grade; empty where there are no judgments.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    qrels: trec.Qrels


def read_collection(
    queries: AnyPath,
    documents: AnyPath,
    qrels: AnyPath | None,
    bad: BadRows,
    header: bool = True,
    format: str | None = None,
) -> Collection:
    """Reads texts with the columns (or keys) `id` and `text`, and qrels.

    Args:
      queries: a TSV, CSV or JSON Lines file.
      documents: a TSV, CSV or JSON Lines file.
      qrels: judgments in TREC's format; None = there are none.
      bad: is called with rows that cannot be used: a repeated id, an id with white space, an empty
        text, a judgment of an unknown query or document.
      header: whether TSV and CSV files name their columns. Without a header, the first column is
        the id and the second the text.
      format: "tsv", "csv" or "jsonl"; None = by the file names.

    Raises:
      UserError: a file cannot be read, or `bad` raises it.
    """
    query_texts = _read_texts(queries, bad, header, format)
    document_texts = _read_texts(documents, bad, header, format)
    judged = {} if qrels is None else trec.read_qrels(qrels, query_texts, document_texts, bad)
    return Collection(query_texts, document_texts, judged)


def _read_texts(path: AnyPath, bad: BadRows, header: bool, format: str | None) -> dict[str, str]:
    columns = ["id", "text"]
    if not header and tables.file_format(path, format) != "jsonl":
        columns = ["0", "1"]
    texts: dict[str, str] = {}
    rows = tables.read(path, columns, header=header, format=format, bad=bad)
    for _, line, (identity, text), _ in rows:
        where = f"{path}, line {line}"
        try:
            identity = trec.check_id(identity)
        except ValueError as error:
            bad("not an id", f"{where}: {error}")
            continue
        if identity in texts:
            bad("duplicate id", f"{where}: id {identity!r} is already used")
        elif not text.strip():
            bad("empty text", f"{where}: the text of {identity!r} is empty")
        else:
            texts[identity] = text
    if not texts:
        raise UserError(f"{path}: no row can be used: {bad}")
    return texts


def _check_grades(task: Task, qrels: trec.Qrels) -> None:
    if "err_20" not in task.metrics:
        return
    for query, grades in qrels.items():
        for document, grade in grades.items():
            if grade > trec.MAX_GRADE:
                raise UserError(
                    f"qrels: grade {grade} of document {document!r} for query {query!r}: err_20 "
                    f"needs grades of at most {trec.MAX_GRADE}: scale them, or remove it from "
                    "--metrics"
                )


def triples(
    run: trec.Run, qrels: trec.Qrels, negatives: int, seed: int, counts: SplitCounts
) -> Iterator[Wanted]:
    """Yields the triples to learn from; the draws depend on the seed and the query.

    Args:
      run: the candidates of each query.
      qrels: their grades.
      negatives: the number of triples of each relevant document, each with another candidate.
      seed: the seed of the draws.
      counts: queries are counted here, with those without triples.

    Yields:
      (query, (relevant document, other document)).
    """
    for query, scores in run.items():
        grades = qrels.get(query, {})
        relevant = [document for document, grade in grades.items() if grade > 0]
        others = [document for document, _ in trec.ordered(scores) if grades.get(document, 0) < 1]
        if not relevant or not others:
            what = "a relevant document" if not relevant else "a candidate that is not relevant"
            counts.queries_left_out[f"queries without {what}"] += 1
            continue
        counts.queries += 1
        rng = _rng(seed, query)
        size = min(negatives, len(others))
        for document in relevant:
            for other in rng.choice(len(others), size, replace=False):
                yield query, (document, others[other])


def lists(
    run: trec.Run,
    qrels: trec.Qrels | None,
    size: int,
    copies: int,
    seed: int,
    counts: SplitCounts,
) -> Iterator[Wanted]:
    """Yields the lists to learn from; the draws depend on the seed and the query.

    With qrels, the relevant documents of a query are dealt to lists, at most half of each. The
    others are drawn from the candidates that are not relevant. Without, all candidates are dealt.
    The best documents come first, as their grades or scores say.

    Args:
      run: the candidates of each query.
      qrels: their grades; None = the scores of the run take their place.
      size: the most documents of a list.
      copies: how often the documents are dealt, each time in another order.
      seed: the seed of the draws.
      counts: queries are counted here, with those without lists.

    Yields:
      (query, documents).
    """
    for query, scores in run.items():
        candidates = [document for document, _ in trec.ordered(scores)]
        labels: Mapping[str, float] = scores
        dealt, others, share = candidates, list[str](), size
        lacking = "" if len(dealt) > 1 else "a second candidate"
        if qrels is not None:
            labels, share = qrels.get(query, {}), size // 2
            dealt = [document for document, grade in labels.items() if grade > 0]
            others = [document for document in candidates if labels.get(document, 0) < 1]
            lacking = "" if others else "a candidate that is not relevant"
            lacking = lacking if dealt else "a relevant document"
        if lacking:
            counts.queries_left_out[f"queries without {lacking}"] += 1
            continue
        counts.queries += 1
        rng = _rng(seed, query)
        for _ in range(copies):
            order = [dealt[i] for i in rng.permutation(len(dealt))]
            for start in range(0, len(order), share):
                chosen = order[start : start + share]
                drawn = rng.permutation(len(others))[: size - len(chosen)]
                chosen += [others[i] for i in drawn]
                if len(chosen) > 1:
                    yield query, tuple(sorted(chosen, key=lambda name: -labels.get(name, 0)))


def _rng(seed: int, query: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(query.encode())])


class Texts:
    """Queries and documents, each of which is tokenized once.

    Args:
      queries: id → text.
      documents: id → text.
      max_length: the length of the longest sequence in tokens.
    """

    def __init__(self, queries: Mapping[str, str], documents: Mapping[str, str], max_length: int):
        self._texts = {"query": queries, "document": documents}
        self._encoded: dict[tuple[str, str], Encoded] = {}
        self._encode = functools.partial(_encode, max_length=max_length)

    def rows(
        self,
        wanted: Iterable[Wanted],
        writer: Splits,
        labels: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Iterator[Row]:
        """Returns a row for each query and its documents, numbered from 0.

        Args:
          wanted: the queries and documents.
          writer: tokenizes them.
          labels: query → document → grade; others have 0. None = rows have no grades.
        """
        wanted = list(wanted)
        self._read((("query", query) for query, _ in wanted), writer)
        names = (("document", name) for _, documents in wanted for name in documents)
        self._read(names, writer)
        return (
            (
                row,
                self._encoded["query", query],
                [self._encoded["document", document] for document in documents],
                [float(labels.get(query, {}).get(document, 0)) for document in documents]
                if labels is not None
                else [],
            )
            for row, (query, documents) in enumerate(wanted)
        )

    def _read(self, keys: Iterable[tuple[str, str]], writer: Splits) -> None:
        new = [key for key in dict.fromkeys(keys) if key not in self._encoded]
        texts = (self._texts[kind][name] for kind, name in new)
        encoded = writer.apply(self._encode, texts, ENCODE_AT_ONCE)
        self._encoded |= zip(new, (text for texts in encoded for text in texts), strict=True)


def _encode(texts: Sequence[str], tokenizer: Tokenizer, max_length: int) -> list[Encoded]:
    """Returns the ids of some texts."""
    kept = tokenizer.pairs.kept
    encoded = tokenizer.encode(texts)
    return [(ids[kept(len(ids), max_length)].copy(), len(ids)) for ids in encoded]


def _examples(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    max_length: int,
    train_size: int = 0,
) -> Iterator[Example]:
    """Yields the example of each row, which is a query with its documents, and counts it.

    Lists with fewer than `train_size` documents are filled with empty ones. Candidates stand alone.
    """
    specials = pair_packing.num_specials(2, tokenizer)
    for row, query, documents, grades in rows:
        packed = []
        for document in documents:
            texts = [query[0], document[0]]
            packed.append(pair_packing.pack_arrays(texts, tokenizer, max_length))
            counts.truncated += len(packed[-1][0]) < query[1] + document[1] + specials
        if len(documents) > 1 and len(documents) < train_size:
            nothing = pair_packing.pack_arrays([query[0][:0]] * 2, tokenizer, max_length)
            packed += [nothing] * (train_size - len(documents))
        example = builder.example_of_sequences(packed, row)
        counts.count(*example["sequence_lengths"])
        if grades:
            example["grades"] = grades
        yield example
