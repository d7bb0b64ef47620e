r"""Converts a test collection, as distributed, into the files of a ranking task.

  python -m tfrecords_tools.build_ranking_data --format=cranfield --input=DIR \
      --output=DIR
  python -m tfrecords_tools.build_task_shards --task=ranking --input=DIR \
      --queries=queries.tsv --documents=documents.tsv --qrels=qrels \
      --train_file=train.run --validation_file=validation.run \
      --test_file=test.run --tokenizer=DIR --output=DIR

Formats, and the files that --input must contain:

  cranfield  cran.all.1400, cran.qry and cranqrel, which numbers the queries in
             the order of cran.qry, whose own numbers have gaps. Its grades 1
             (a complete answer) to 4 (of some interest) become 4 to 1, all
             others 0. .T is ignored, because .W begins with the title.
  cisi       CISI.ALL, CISI.QRY and CISI.REL; documents that CISI.REL lists are
             relevant.
  wikiqa     train.tsv, dev.tsv and test.tsv with qid, question, answer, label.
  squad      *.json of SQuAD's form, or --input is such a file. Each different
             paragraph is a document, which is relevant for its questions.
  beir       corpus.jsonl, queries.jsonl and qrels/train.tsv, qrels/dev.tsv or
             qrels/test.tsv.
  ranking    what this command writes: queries.tsv, documents.tsv, qrels, and a
             run for each split.

It writes queries.tsv, documents.tsv, qrels, and a BM25 run for each split. For Cranfield, CISI and
SQuAD, a run has the --depth best documents of each query, and --validation and --test are random
shares of the queries. For WikiQA, a run has the answers of each question, in the splits of WikiQA.
For BEIR, splits are those of the judgments. The metrics of the runs are a baseline.

With --to=beir it writes a folder of BEIR, which `official.main --mode=search` searches and scores.
Where a query and a document have the same number, as in Cranfield and CISI, the ids of all queries
begin with `q` there: a document with the id of the query would be no hit.
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np
from absl import flags

from official.tasks import SPLITS, beir, bm25, text_files, trec
from official.utils import atomic, command_line, errors, input_files, paths, text_lines
from official.utils.errors import UserError
from official.utils.input_files import Inputs
from official.utils.paths import AnyPath

_BEIR_SPLITS = {"train": "train", "validation": "dev", "test": "test"}
_FIELD = re.compile(r"\.([A-Z])\s*")
_Value = TypeVar("_Value")
_NUMBER = re.compile(r"\.I\s+(\d+)\s*")


@dataclasses.dataclass
class Collection:
    """The documents, queries and judgments of a collection.

    Attributes:
      queries: id → text.
      documents: id → text.
      qrels: query → document → grade.
      splits: split → query → its candidate documents; None = all documents.
      left_out: the number of entries that could not be used, by reason.
    """

    queries: dict[str, str]
    documents: dict[str, str]
    qrels: trec.Qrels
    splits: dict[str, dict[str, list[str] | None]] = dataclasses.field(default_factory=dict)
    left_out: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def read_fields(path: AnyPath, fields: str) -> Iterator[tuple[str, str]]:
    """Yields the number and the text of each entry of a file of .I, .T, .A, .B and .W fields.

    Args:
      path: the file.
      fields: the fields that form the text, such as "TW", in their order in the file.

    Raises:
      UserError: the file is missing, not UTF-8, or has text before the first .I line.
    """
    number, field = None, ""
    words: list[str] = []
    for line, text in enumerate(_lines(path), 1):
        if match := _NUMBER.fullmatch(text):
            if number is not None:
                yield number, " ".join(words)
            number, field, words = match[1], "", []
        elif number is None and text.strip():
            raise UserError(f"{path}, line {line}: expected .I and a number, got {text[:40]!r}")
        elif match := _FIELD.fullmatch(text):
            field = match[1]
        elif field in fields and field:
            words += text.split()
    if number is None:
        raise UserError(f"{path} is empty: it has no entries")
    yield number, " ".join(words)


def read_cranfield(folder: AnyPath) -> Collection:
    """Reads the Cranfield collection (see the module)."""
    documents = _unique(folder / "cran.all.1400", read_fields(folder / "cran.all.1400", "W"))
    listed = enumerate(read_fields(folder / "cran.qry", "W"), 1)
    queries = {str(number): text for number, (_, text) in listed}
    collection = Collection(queries, documents, {})
    for location, cells in _rows(folder / "cranqrel", 3):
        query, document, grade = cells[0], cells[1], _whole(location, cells[2])
        _judge(collection, location, query, document, 5 - grade if 1 <= grade <= 4 else 0)
    return _usable(collection)


def read_cisi(folder: AnyPath) -> Collection:
    """Reads the CISI collection (see the module)."""
    documents = _unique(folder / "CISI.ALL", read_fields(folder / "CISI.ALL", "TW"))
    queries = _unique(folder / "CISI.QRY", read_fields(folder / "CISI.QRY", "TW"))
    collection = Collection(queries, documents, {})
    for location, cells in _rows(folder / "CISI.REL", 4):
        _judge(collection, location, cells[0], cells[1], 1)
    return _usable(collection)


def read_wikiqa(folder: AnyPath) -> Collection:
    """Reads WikiQA (see the module); equal answers are one document."""
    collection = Collection({}, {}, {})
    numbers: dict[str, str] = {}
    files = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    for split, name in files.items():
        path = folder / name
        candidates: dict[str, list[str]] = {}
        for line, text in enumerate(_lines(path), 1):
            cells = text.split("\t")
            location = f"{path}, line {line}"
            if len(cells) != 4:
                raise UserError(
                    f"{location}: {len(cells)} columns, expected 4 (qid question answer label)"
                )
            if line == 1 and cells[0] == "qid":
                continue
            query = f"{split}-{cells[0]}"
            if collection.queries.setdefault(query, cells[1]) != cells[1]:
                raise UserError(
                    f"{location}: question {cells[0]!r} has another text in an earlier line"
                )
            document = numbers.setdefault(cells[2], f"a{len(numbers) + 1}")
            collection.documents[document] = cells[2]
            label = _whole(location, cells[3])
            if label not in (0, 1):
                raise UserError(f"{location}: label {label} is neither 0 nor 1")
            if document in candidates.setdefault(query, []):
                collection.left_out["answers given twice"] += 1
            else:
                candidates[query].append(document)
            grades = collection.qrels.setdefault(query, {})
            grades[document] = max(label, grades.get(document, 0))
        collection.splits[split] = dict(candidates)
    return _usable(collection)


def read_squad(folder: AnyPath) -> Collection:
    """Reads files of SQuAD's form (see the module); equal paragraphs are one document."""
    from tfrecords_tools.tasks import span  # loads TensorFlow

    files: list[AnyPath] = [folder]
    if folder.is_dir():
        files = sorted(folder.glob("*.json"), key=str)
    if not files:
        raise UserError(f"{folder} has no .json: --format=squad reads files of SQuAD's form")
    collection = Collection({}, {}, {})
    numbers: dict[str, str] = {}
    for path in files:
        for context, questions, where in span.paragraphs(path):
            document = numbers.setdefault(context, f"p{len(numbers) + 1}")
            collection.documents[document] = " ".join(context.split())
            for key, text in span.asked(questions, where):
                try:
                    query = trec.check_id(key)
                except ValueError as error:
                    raise UserError(f"{where}: {error}") from None
                if query in collection.queries:
                    raise UserError(f"{where}: the id {query!r} is that of an earlier question")
                collection.queries[query] = " ".join(text.split())
                collection.qrels[query] = {document: 1}
    return _usable(collection)


def read_beir(folder: AnyPath) -> Collection:
    """Reads a folder of BEIR (see the module)."""
    collection = Collection({}, {}, {})
    for split, name in _BEIR_SPLITS.items():
        if not (folder / beir.QRELS / f"{name}.tsv").exists():
            continue
        judged = beir.read(folder, name)
        collection.documents = collection.documents or dict(text_files.unique(judged.documents))
        collection.queries |= judged.queries
        collection.splits[split] = dict.fromkeys(judged.queries)
        collection.left_out["judgments of unknown queries"] += judged.left_out
        collection.left_out["judgments of unknown documents"] += judged.unknown(
            collection.documents
        )
        for query, grades in judged.qrels.items():
            known = {name: grade for name, grade in grades.items() if name in collection.documents}
            collection.qrels.setdefault(query, {}).update(known)
    if not collection.splits:
        names = ", ".join(f"{name}.tsv" for name in _BEIR_SPLITS.values())
        raise UserError(f"{folder / beir.QRELS} has none of {names}")
    return _usable(collection)


def read_ranking(folder: AnyPath) -> Collection:
    """Reads what `write` has written."""
    queries, documents = (
        dict(text_files.unique(folder / f"{name}.tsv")) for name in ("queries", "documents")
    )
    qrels = trec.read_qrels(folder / "qrels", queries, documents)
    collection = Collection(queries, documents, qrels)
    for split in SPLITS:
        if (folder / f"{split}.run").exists():
            run = trec.read_run(folder / f"{split}.run", queries, documents)
            collection.splits[split] = {query: list(found) for query, found in run.items()}
    return _usable(collection)


def split_queries(
    queries: Iterable[str], validation: float, test: float, seed: int
) -> dict[str, dict[str, list[str] | None]]:
    """Assigns queries to splits at random; depends on the seed and the order of the queries."""
    queries = list(queries)
    order = np.random.default_rng(seed).permutation(len(queries))
    held_out = round(validation * len(queries)), round(test * len(queries))
    ends = {"validation": held_out[0], "test": sum(held_out), "train": len(queries)}
    splits: dict[str, dict[str, list[str] | None]] = {}
    start = 0
    for name, end in ends.items():
        chosen = sorted(order[start:end])
        splits[name] = {queries[i]: None for i in chosen}
        start = end
    return splits


def _usable(collection: Collection) -> Collection:
    """Removes empty documents, their judgments, and queries without a relevant document."""
    empty = {name for name, text in collection.documents.items() if not text}
    for name in empty:
        del collection.documents[name]
    collection.left_out["empty documents"] += len(empty)
    for query, grades in list(collection.qrels.items()):
        for name in empty & grades.keys():
            del grades[name]
            collection.left_out["judgments of empty documents"] += 1
        if not any(grade > 0 for grade in grades.values()):
            del collection.qrels[query]
    for query in list(collection.queries):
        if query not in collection.qrels:
            del collection.queries[query]
            collection.left_out["queries without a relevant document"] += 1
            for candidates in collection.splits.values():
                candidates.pop(query, None)
    return collection


def _judge(collection: Collection, location: str, query: str, document: str, grade: int) -> None:
    if query not in collection.queries:
        raise UserError(f"{location}: there is no query {query!r}")
    if document not in collection.documents:
        raise UserError(f"{location}: there is no document {document!r}")
    if document in collection.qrels.setdefault(query, {}):
        raise UserError(f"{location}: document {document!r} is judged twice for {query!r}")
    collection.qrels[query][document] = grade


def _unique(path: AnyPath, entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, text in entries:
        if number in texts:
            raise UserError(f"{path}: .I {number} occurs twice")
        texts[number] = text
    return texts


def _lines(path: AnyPath) -> Iterator[str]:
    damaged: list[int] = []
    for line in text_lines.lines(path, damaged):
        if damaged:
            raise UserError(f"{path}, line {damaged[0]}: not UTF-8: convert the file")
        yield line


def _rows(path: AnyPath, columns: int) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(_lines(path), 1):
        cells = line.split()
        if cells and len(cells) != columns:
            raise UserError(f"{path}, line {number}: {len(cells)} columns, expected {columns}")
        if cells:
            yield f"{path}, line {number}", cells


def _whole(location: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{location}: {text!r} is not a whole number") from None


READERS = {
    "cranfield": read_cranfield,
    "cisi": read_cisi,
    "wikiqa": read_wikiqa,
    "squad": read_squad,
    "beir": read_beir,
    "ranking": read_ranking,
}


def read(format: str, given: AnyPath) -> Collection:
    """Reads a collection, whose files must not change meanwhile: some are read several times.

    Args:
      format: one of `READERS`.
      given: the folder of the files, or a file.

    Raises:
      UserError: a file is missing or not valid, or has changed.
    """
    places = (given, *given.glob("*"), *given.glob(f"{beir.QRELS}/*"))
    inputs = Inputs(place for place in places if place.is_file())
    with input_files.explained(inputs.check):
        collection = READERS[format](given)
    inputs.check()
    return collection


def rank(
    collection: Collection, candidates: Mapping[str, list[str] | None], depth: int
) -> trec.Run:
    """Returns a ranking by BM25.

    Args:
      collection: the queries and documents; the word counts are those of its documents.
      candidates: query → the documents to rank; None = all that share a word with it.
      depth: the largest number of documents of a query.
    """
    names = list(collection.documents)
    numbers = {name: i for i, name in enumerate(names)}
    scorer = bm25.Scorer(collection.documents.values())
    rows = scorer.scores(collection.queries[query] for query in candidates)
    run: trec.Run = {}
    for (query, given), row in zip(candidates.items(), rows, strict=True):
        among = np.nonzero(row)[0]
        if given is not None:
            among = np.array([numbers[name] for name in given], np.int64)
        scores = row[among].astype(np.float32)
        if len(scores) > depth:  # those that are equal to the last one are kept for `ordered`
            best = scores >= np.partition(scores, -depth)[-depth]
            among, scores = among[best], scores[best]
        pairs = zip(among, scores.tolist(), strict=True)
        if ranked := trec.ordered({names[i]: score for i, score in pairs})[:depth]:
            run[query] = dict(ranked)
    return run


def write(collection: Collection, folder: AnyPath, depth: int) -> dict[str, int]:
    """Writes the files of a ranking.

    Returns:
      The number of queries of each split.

    Raises:
      UserError: a split has no queries, or none that shares a word with a document.
    """
    sizes = {}
    with atomic.folder(folder, "qrels") as temporary:
        for name in ("queries", "documents"):
            with open(temporary / f"{name}.tsv", "w", encoding="utf-8") as stream:
                stream.write("id\ttext\n")
                texts = getattr(collection, name).items()
                stream.writelines(f"{key}\t{' '.join(text.split())}\n" for key, text in texts)
        with open(temporary / "qrels", "w", encoding="utf-8") as stream:
            trec.write_qrels(stream, collection.qrels)
        for split in (s for s in SPLITS if s in collection.splits):
            run = rank(collection, collection.splits[split], depth)
            if not run and collection.splits[split]:
                raise UserError(f"no query of the {split} split shares a word with a document")
            if not run:
                raise UserError(f"the {split} split has no queries: increase its share")
            without = len(collection.splits[split]) - len(run)
            collection.left_out[f"queries of {split} that share no word with a document"] += without
            sizes[split] = len(run)
            with open(temporary / f"{split}.run", "w", encoding="utf-8") as stream:
                trec.write_run(stream, run, "bm25")
    return sizes


def apart(collection: Collection) -> Collection:
    """Returns a collection whose queries have other ids than its documents: `q` stands before them.

    Searches of a folder of BEIR take a document with the id of the query for the query itself, and
    collections number both from 1.
    """
    if not collection.queries.keys() & collection.documents.keys():
        return collection

    def renamed(by_query: Mapping[str, _Value]) -> dict[str, _Value]:
        return {f"q{name}": value for name, value in by_query.items()}

    return dataclasses.replace(
        collection,
        queries=renamed(collection.queries),
        qrels=renamed(collection.qrels),
        splits={split: renamed(queries) for split, queries in collection.splits.items()},
    )


def write_beir(collection: Collection, folder: AnyPath) -> dict[str, int]:
    """Writes a folder of BEIR; returns the number of queries of each split."""
    qrels = {
        split: {query: collection.qrels[query] for query in collection.splits[split]}
        for split in SPLITS
        if split in collection.splits
    }
    beir.write(folder, collection.queries, collection.documents.items(), qrels)
    return {split: len(judged) for split, judged in qrels.items()}


_REQUIRED = ("format", "input", "output")


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum("format", None, list(READERS), "format of the collection", flag_values=values)
    flags.DEFINE_string("input", None, "folder of the files", flag_values=values)
    flags.DEFINE_string("output", None, "folder to create", flag_values=values)
    flags.DEFINE_enum(
        "to",
        "ranking",
        ["ranking", "beir"],
        "what to write: the files of a ranking task, or a folder of BEIR",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "depth", 100, "largest number of candidates of a query", 1, flag_values=values
    )
    flags.DEFINE_float("validation", 0.2, "share of the queries", 0, 1, flag_values=values)
    flags.DEFINE_float("test", 0.2, "share of the queries", 0, 1, flag_values=values)
    flags.DEFINE_integer("seed", 0, "seed of the random shares", 0, flag_values=values)


def main(argv: list[str]) -> None:
    """Runs the command line."""
    del argv
    options = flags.FLAGS
    errors.require(options, *_REQUIRED)
    held_out = options.validation + options.test
    if held_out > 1 or held_out == 1 > options.test:
        raise UserError(
            f"--validation={options.validation} and --test={options.test} leave nothing to learn "
            "from: their sum must be less than 1 (--validation=0 --test=1 makes a test set of all)"
        )
    collection = read(options.format, paths.path(options.input))
    if not collection.splits:
        collection.splits = split_queries(
            collection.queries, options.validation, options.test, options.seed
        )
        collection.splits = {name: them for name, them in collection.splits.items() if them}
    if options.to == "beir":
        if options.format != "beir":  # whose ids say which document is the query itself
            collection = apart(collection)
        sizes = write_beir(collection, paths.path(options.output))
    else:
        sizes = write(collection, paths.path(options.output), options.depth)
    for reason, count in sorted(collection.left_out.items()):
        if count:
            print(f"left out: {count:,} {reason}")
    queries = ", ".join(f"{split} {count:,}" for split, count in sizes.items())
    print(
        f"{options.output}: {len(collection.documents):,} documents; queries: {queries}; "
        f"{sum(len(grades) for grades in collection.qrels.values()):,} judgments"
    )


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
