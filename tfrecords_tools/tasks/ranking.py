"""Makes the shard folder of a ranking from queries, documents, qrels and runs.

The run of a split holds its queries and their candidates. Training reads triples: a query, a
relevant document, and one of the query's candidates that is not relevant. Other splits have an
example for each candidate, numbered as the lines of `SPLIT.run` in the folder
(`official.shards.candidates`).
"""

import collections
import dataclasses
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from official.shards import candidates, features, manifest
from official.shards.provenance import TaskSettings
from official.tasks import SPLITS, Task, trec
from official.tokenizers import Tokenizer, packing
from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.tasks.folder import (
    SplitCounts,
    check_room,
    make_manifest,
    names,
    several,
    write_shards,
)
from tfrecords_tools.tasks.readers import tables

MAX_GRADE = 4  # that the expected reciprocal rank knows
ENCODE_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True)
class Collection:
    """What the runs speak of.

    Attributes:
      queries: id → text.
      documents: id → text.
      qrels: query → document → grade; empty where there are none.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    qrels: trec.Qrels


@dataclasses.dataclass
class SplitCounts(SplitCounts):
    """What one split holds; its examples are triples, or candidates.

    Attributes:
      queries: those that have examples.
      left_out: queries without any, by reason.
    """

    queries: int = 0
    left_out: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def read_collection(
    queries: Path,
    documents: Path,
    qrels: Path | None,
    bad: tables.BadRows,
    header: bool = True,
    format: str | None = None,
) -> Collection:
    """Reads texts with the columns (or keys) `id` and `text`, and qrels.

    Args:
      queries: TSV, CSV or JSON Lines.
      documents: the same.
      qrels: TREC's format; None = there are none.
      bad: is told of rows that cannot be used: an id that is there already or has a blank in it,
        an empty text, a judgement of an unknown query or document.
      header: whether TSV and CSV name their columns; without, the first is the id, the second the
        text.
      format: "tsv", "csv" or "jsonl"; None to go by the names of the files.

    Raises:
      UserError: files that cannot be read, or what `bad` raises.
    """
    texts = []
    for path in (queries, documents):
        columns = ["id", "text"]
        if not header and tables.format_of(path, format) != "jsonl":
            columns = ["0", "1"]
        found: dict[str, str] = {}
        for _, line, (identity, text) in tables.read(
            path, columns, header=header, format=format, bad=bad
        ):
            place = f"{path}, line {line}"
            try:
                identity = trec.check_id(identity)
            except ValueError as error:
                bad("not an id", f"{place}: {error}")
                continue
            if identity in found:
                bad("duplicate id", f"{place}: id {identity!r} is there already")
            elif not text.strip():
                bad("empty text", f"{place}: nothing in the text of {identity!r}")
            else:
                found[identity] = text
        if not found:
            raise UserError(f"{path}: no row can be used: {bad}")
        texts.append(found)
    judged = {} if qrels is None else trec.read_qrels(qrels, *texts, bad=bad)
    return Collection(*texts, judged)


def from_flags(
    options: flags.FlagValues,
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    max_length: int,
    report: Callable[[str], None],
) -> manifest.Manifest:
    """Builds what the flags of `build_task_shards` say; see `build`."""
    bad = tables.BadRows(options.skip_bad_rows)
    collection = read_collection(
        Path(options.input, options.queries),
        Path(options.input, options.documents),
        Path(options.input, options.qrels) if options.qrels else None,
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
        Path(options.output),
        max_length,
        options.negatives,
        options.seed,
        bad,
        report=report,
    )


def build(
    task: Task,
    collection: Collection,
    runs: Mapping[str, Path],
    tokenizer: Tokenizer,
    output: Path,
    max_length: int = 128,
    negatives: int = 4,
    seed: int = 0,
    bad: tables.BadRows | None = None,
    examples_per_shard: int = 100_000,
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Writes the shard folder of a ranking.

    Args:
      task: of the kind "ranking".
      collection: what the runs speak of.
      runs: the run of each split.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to make.
      max_length: longest sequence in tokens, special ones counted; what is longer is cut, from the
        longer text at the time.
      negatives: triples of each relevant document, each with another candidate.
      seed: of the draw of these candidates.
      bad: the rows left out so far, and whether to leave more out.
      examples_per_shard: where a new shard is begun.
      report: takes lines of progress and the summary.

    Returns:
      The manifest as written.

    Raises:
      UserError: files or lines that cannot be used, no triple to train on, a grade too great.
    """
    check_room(2, tokenizer, max_length)
    _check_grades(task, collection.qrels)
    read = bad or tables.BadRows()
    made = _Maker(collection, tokenizer, max_length)
    shards: list[manifest.Shard] = []
    digests: dict[str, str] = {}
    unlabelled: list[str] = []
    tallies: dict[str, SplitCounts] = {}
    with atomic.folder(output) as folder:
        for split in (s for s in SPLITS if s in runs):
            tally = tallies[split] = SplitCounts(tables.BadRows(read.skip))
            run = trec.read_run(
                runs[split], collection.queries, collection.documents, bad=tally.bad
            )
            if split == "train":
                examples = _triples(run, collection.qrels, negatives, seed, tally)
            else:
                pairs, written = candidates.write(folder, split, run, collection.qrels)
                digests |= written
                if f"{split}.qrels" not in written:
                    unlabelled.append(split)
                examples = ((query, (document,)) for query, document in pairs)
                tally.queries = len(run)
            records = made.examples(examples, tally)
            shards += write_shards(folder, split, records, examples_per_shard)
            if not tally.examples:
                reasons = {**tally.bad.counts, **tally.left_out}
                raise UserError(
                    f"{runs[split]}: nothing to {'learn from' if split == 'train' else 'rank'}: "
                    f"{', '.join(f'{n:,} {why}' for why, n in sorted(reasons.items()))}"
                )
            report(_summary(split, tally, max_length, split in unlabelled))
        tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
        description = dataclasses.replace(
            task.description(),
            unlabelled=tuple(unlabelled),
            sequences={split: 2 if split == "train" else 1 for split in tallies},
        )
        whole = make_manifest(
            description,
            ("token_ids", "segment_lengths", "sequence_lengths", "row"),
            tokenizer,
            max_length,
            shards,
            {
                split: tally.totals(queries=tally.queries, left_out=dict(tally.left_out))
                for split, tally in tallies.items()
            },
            tallies,
            TaskSettings(names(runs), candidates=digests, negatives=negatives),
            seed=seed,
            skipped=read.counts,
        )
        manifest.write(folder, whole)
    return whole


def _check_grades(task: Task, qrels: trec.Qrels) -> None:
    if "err_20" not in task.metrics:
        return
    for query, grades in qrels.items():
        for document, grade in grades.items():
            if grade > MAX_GRADE:
                raise UserError(
                    f"qrels: grade {grade} of document {document!r} for query {query!r}: err_20 "
                    f"wants grades of at most {MAX_GRADE}: scale them, or leave it out of --metrics"
                )


def _triples(
    run: trec.Run, qrels: trec.Qrels, negatives: int, seed: int, tally: SplitCounts
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields (query, (relevant document, other document)); a draw depends on seed and query."""
    for query, scores in run.items():
        grades = qrels.get(query, {})
        relevant = [document for document, grade in grades.items() if grade > 0]
        others = [document for document, _ in trec.ordered(scores) if grades.get(document, 0) < 1]
        if not relevant or not others:
            what = "a relevant document" if not relevant else "a candidate that is not relevant"
            tally.left_out[f"queries without {what}"] += 1
            continue
        tally.queries += 1
        draw = np.random.default_rng([seed, zlib.crc32(query.encode())])
        for document in relevant:
            for other in draw.choice(len(others), min(negatives, len(others)), replace=False):
                yield query, (document, others[other])


class _Maker:
    """Packs pairs of texts; each text is tokenized once."""

    def __init__(self, collection: Collection, tokenizer: Any, max_length: int):
        self._texts = {"query": collection.queries, "document": collection.documents}
        self._ids: dict[tuple[str, str], tuple[np.ndarray, int]] = {}
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._specials = packing.num_specials(2, tokenizer)

    def examples(
        self, wanted: Iterable[tuple[str, tuple[str, ...]]], tally: SplitCounts
    ) -> Iterator[bytes]:
        """Yields serialized examples, numbered from 0, and keeps the tally."""
        wanted = list(wanted)
        self._encode(("query", query) for query, _ in wanted)
        self._encode(("document", document) for _, documents in wanted for document in documents)
        for row, (query, documents) in enumerate(wanted):
            packed = [self._pair(query, document, tally) for document in documents]
            example = several(packed, row)
            tally.add(*example["sequence_lengths"])
            yield features.serialize(example)

    def _encode(self, keys: Iterable[tuple[str, str]]) -> None:
        new = [key for key in dict.fromkeys(keys) if key not in self._ids]
        for start in range(0, len(new), ENCODE_AT_ONCE):
            some = new[start : start + ENCODE_AT_ONCE]
            texts = [self._texts[kind][identity] for kind, identity in some]
            for key, ids in zip(some, self._tokenizer.encode(texts), strict=True):
                # What no sequence has room for need not be kept.
                self._ids[key] = ids[: self._max_length].copy(), len(ids)

    def _pair(self, query: str, document: str, tally: SplitCounts) -> tuple[np.ndarray, np.ndarray]:
        found = [self._ids["query", query], self._ids["document", document]]
        packed = packing.pack_arrays([ids for ids, _ in found], self._tokenizer, self._max_length)
        tally.truncated += len(packed[0]) < sum(length for _, length in found) + self._specials
        return packed


def _summary(split: str, tally: SplitCounts, max_length: int, unlabelled: bool) -> str:
    what = "triples" if split == "train" else "candidates"
    parts = [
        f"{split}: {tally.queries:,} queries, {tally.examples:,} {what}",
        f"{tally.tokens:,} tokens",
        f"{tally.truncated:,} cut at {max_length} tokens",
        *(f"{count:,} {why}" for why, count in sorted(tally.left_out.items())),
    ]
    if tally.bad.counts:
        parts.append(f"left out: {tally.bad}")
    if unlabelled:
        parts.append("no judgements")
    return "; ".join(parts)
