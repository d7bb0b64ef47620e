"""Builds the shard folder of a ranking from queries, documents, qrels and runs.

The run of a split holds its queries and their candidates. Training examples are triples: a query, a
relevant document, and a candidate of the query that is not relevant. The other splits have one
example for each candidate, in the order of the lines of `SPLIT.run` in the folder
(`official.shards.side_texts`).
"""

import collections
import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import flags

from official.shards import manifest, side_texts
from official.shards.manifest import TaskSettings
from official.tasks import SPLITS, Task, trec
from official.tokenizers import Tokenizer, pair_packing
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import folder as task_folder
from tfrecords_tools.tasks import splits, tables
from tfrecords_tools.tasks.folder import Example
from tfrecords_tools.writing.execution import Execution

ENCODE_AT_ONCE = 4096
EXAMPLES_AT_ONCE = 4096

# The first ids of a text, which a sequence may have room for, and the number of all.
Encoded = tuple[np.ndarray, int]
# The number of an example, its query and its documents.
Row = tuple[int, Encoded, list[Encoded]]


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


@dataclasses.dataclass
class SplitCounts(task_folder.SplitCounts):
    """The counts of one split; its examples are triples or candidates.

    Attributes:
      queries: the number of queries with examples.
      left_out: the number of queries without examples, by reason.
    """

    queries: int = 0
    left_out: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def from_flags(
    options: flags.FlagValues,
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    max_length: int,
    execution: Execution,
    report: Callable[[str], None],
) -> manifest.Manifest:
    """Builds the folder that the flags of `build_task_shards` describe; see `build`."""
    bad = tables.BadRows(options.skip_bad_rows)
    collection = read_collection(
        paths.join(options.input, options.queries),
        paths.join(options.input, options.documents),
        paths.join(options.input, options.qrels) if options.qrels else None,
        bad,
        options.header,
        options.format,
    )
    if bad.counts:
        report(f"left out of queries, documents and qrels: {bad}")
    return build(
        task,
        collection,
        files,
        tokenizer,
        options.output,
        max_length,
        options.negatives,
        options.seed,
        bad,
        execution,
        report,
    )


def build(
    task: Task,
    collection: Collection,
    runs: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    output: AnyPath,
    max_length: int = 128,
    negatives: int = 4,
    seed: int = 0,
    bad: tables.BadRows | None = None,
    execution: Execution = Execution(),  # noqa: B008
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Builds the shard folder of a ranking and returns its manifest.

    Args:
      task: a task of the kind "ranking".
      collection: the queries and documents of the runs.
      runs: the run of each split.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to create.
      max_length: the length of the longest sequence in tokens, special tokens counted. Longer
        sequences are cut, one token at a time, from the text that is longer then.
      negatives: the number of triples of each relevant document, each with another candidate.
      seed: the seed of the draw of these candidates, and of the order of the triples.
      bad: the rows left out so far, and whether to leave more out.
      execution: where the work is done; this does not change the shards.
      report: is called with lines of progress and the summary.

    Raises:
      UserError: lines cannot be used, there is no triple to train on, or a grade is too large.
    """
    task_folder.check_max_length(2, tokenizer, max_length)
    _check_grades(task, collection.qrels)
    read = bad or tables.BadRows()
    make = functools.partial(_examples, max_length=max_length)
    shards: list[manifest.Shard] = []
    digests: dict[str, str] = {}
    counts: dict[str, SplitCounts] = {}
    with splits.new_folder(output, tokenizer, execution, seed) as writer:
        texts = _Texts(collection, max_length, writer)
        for split in (s for s in SPLITS if s in runs):
            counts[split] = each = SplitCounts(tables.BadRows(read.skip))
            run = trec.read_run(runs[split], collection.queries, collection.documents, bad=each.bad)
            if split == "train":
                wanted = _triples(run, collection.qrels, negatives, seed, each)
            else:
                wanted, written = _write_candidates(
                    writer.folder, split, run, collection.qrels, each
                )
                digests |= written
                each.labelled = f"{split}.qrels" in written
            shards += writer.write(split, texts.rows(wanted), EXAMPLES_AT_ONCE, make, each)
            _check_examples(runs[split], split, each)
            report(_summary(split, each, max_length))
        names = task_folder.file_names(runs)
        settings = TaskSettings(names, candidates=digests, negatives=negatives)
        built = _manifest(task, tokenizer, max_length, shards, counts, settings, seed, read.counts)
        manifest.write(writer.folder, built)
    return built


def _check_grades(task: Task, qrels: trec.Qrels) -> None:
    if "err_20" not in task.metrics:
        return
    for query, grades in qrels.items():
        for document, grade in grades.items():
            if grade > trec.MAX_GRADE:
                raise UserError(
                    f"qrels: grade {grade} of document {document!r} for query {query!r}: err_20 "
                    f"wants grades of at most {trec.MAX_GRADE}: scale them, or leave it out of "
                    "--metrics"
                )


def _triples(
    run: trec.Run, qrels: trec.Qrels, negatives: int, seed: int, counts: SplitCounts
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields (query, (relevant document, other document)); draws depend on seed and query."""
    for query, scores in run.items():
        grades = qrels.get(query, {})
        relevant = [document for document, grade in grades.items() if grade > 0]
        others = [document for document, _ in trec.ordered(scores) if grades.get(document, 0) < 1]
        if not relevant or not others:
            what = "a relevant document" if not relevant else "a candidate that is not relevant"
            counts.left_out[f"queries without {what}"] += 1
            continue
        counts.queries += 1
        rng = np.random.default_rng([seed, zlib.crc32(query.encode())])
        size = min(negatives, len(others))
        for document in relevant:
            for other in rng.choice(len(others), size, replace=False):
                yield query, (document, others[other])


def _write_candidates(
    folder: AnyPath, split: str, run: trec.Run, qrels: trec.Qrels, counts: SplitCounts
) -> tuple[Iterator[tuple[str, tuple[str]]], Mapping[str, str]]:
    """Writes the candidates of a split beside the shards.

    Returns:
      (query, (document,)) for each candidate, and the SHA-256 of the written files by name.
    """
    pairs, written = side_texts.write_candidates(folder, split, run, qrels)
    counts.queries = len(run)
    return ((query, (document,)) for query, document in pairs), written


def _check_examples(run: AnyPath, split: str, counts: SplitCounts) -> None:
    if counts.examples:
        return
    reasons = {**counts.bad.counts, **counts.left_out}
    raise UserError(
        f"{run}: nothing to {'learn from' if split == 'train' else 'rank'}: "
        f"{', '.join(f'{n:,} {why}' for why, n in sorted(reasons.items()))}"
    )


class _Texts:
    """Queries and documents, each of which is tokenized once."""

    def __init__(self, collection: Collection, max_length: int, writer: splits.Splits):
        self._texts = {"query": collection.queries, "document": collection.documents}
        self._encoded: dict[tuple[str, str], Encoded] = {}
        self._encode = functools.partial(_encode, max_length=max_length)
        self._writer = writer

    def rows(self, wanted: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[Row]:
        """Returns a row for each query and its documents, numbered from 0."""
        wanted = list(wanted)
        self._read(("query", query) for query, _ in wanted)
        self._read(("document", document) for _, documents in wanted for document in documents)
        return (
            (
                row,
                self._encoded["query", query],
                [self._encoded["document", document] for document in documents],
            )
            for row, (query, documents) in enumerate(wanted)
        )

    def _read(self, keys: Iterable[tuple[str, str]]) -> None:
        new = [key for key in dict.fromkeys(keys) if key not in self._encoded]
        texts = (self._texts[kind][name] for kind, name in new)
        encoded = self._writer.apply(self._encode, texts, ENCODE_AT_ONCE)
        self._encoded |= zip(new, (text for texts in encoded for text in texts), strict=True)


def _encode(texts: Sequence[str], tokenizer: Tokenizer, max_length: int) -> list[Encoded]:
    """Returns the ids of some texts."""
    return [(ids[:max_length].copy(), len(ids)) for ids in tokenizer.encode(texts)]


def _examples(
    rows: Sequence[Row], tokenizer: Tokenizer, counts: SplitCounts, max_length: int
) -> Iterator[Example]:
    """Yields the example of each row and counts it."""
    specials = pair_packing.num_specials(2, tokenizer)
    for row, query, documents in rows:
        packed = []
        for document in documents:
            texts = [query[0], document[0]]
            packed.append(pair_packing.pack_arrays(texts, tokenizer, max_length))
            counts.truncated += len(packed[-1][0]) < query[1] + document[1] + specials
        example = task_folder.example_of_sequences(packed, row)
        counts.count(*example["sequence_lengths"])
        yield example


def _manifest(
    task: Task,
    tokenizer: Tokenizer,
    max_length: int,
    shards: list[manifest.Shard],
    counts: Mapping[str, SplitCounts],
    settings: TaskSettings,
    seed: int,
    skipped: Mapping[str, int],
) -> manifest.Manifest:
    description = dataclasses.replace(
        task.description(),
        sequences={split: 2 if split == "train" else 1 for split in counts},
    )
    totals = {
        split: each.totals(queries=each.queries, left_out=dict(each.left_out))
        for split, each in counts.items()
    }
    return task_folder.make_manifest(
        description,
        ("token_ids", "segment_lengths", "sequence_lengths", "row"),
        tokenizer,
        max_length,
        shards,
        totals,
        counts,
        settings,
        seed,
        skipped=skipped,
    )


def _summary(split: str, counts: SplitCounts, max_length: int) -> str:
    examples = "triples" if split == "train" else "candidates"
    parts = [
        f"{split}: {counts.queries:,} queries, {counts.examples:,} {examples}",
        f"{counts.tokens:,} tokens",
        f"{counts.truncated:,} cut at {max_length} tokens",
        *(f"{count:,} {reason}" for reason, count in sorted(counts.left_out.items())),
    ]
    if counts.bad.counts:
        parts.append(f"left out: {counts.bad}")
    if not counts.labelled:
        parts.append("no judgements")
    return "; ".join(parts)
