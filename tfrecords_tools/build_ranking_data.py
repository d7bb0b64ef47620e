"""Turns a test collection as distributed into the files that a ranking is made from.

  python -m tfrecords_tools.build_ranking_data --format=cranfield --input=DIR --output=DIR
  python -m tfrecords_tools.build_task_shards --task=ranking --input=DIR --queries=queries.tsv \
    --documents=documents.tsv --qrels=qrels --train_file=train.run \
    --validation_file=validation.run --test_file=test.run --tokenizer=DIR --output=DIR

Formats, and the files wanted in --input:
  cranfield  cran.all.1400, cran.qry and cranqrel. `cranqrel` numbers the queries in the order of
             cran.qry, whose own numbers have gaps. Its grades 1 (a complete answer) to 4 (of some
             interest) become 4 to 1, any other 0. A text opens with its title: .T is left out.
  cisi       CISI.ALL, CISI.QRY and CISI.REL; what CISI.REL lists is relevant.
  wikiqa     train.tsv, dev.tsv and test.tsv with qid, question, answer and label.

It writes queries.tsv, documents.tsv, qrels, and for each split a run of BM25: of a collection, the
--depth best documents of every query and a random --validation and --test share of the queries; of
WikiQA, the answers of each question, and its own splits. Its figures are the baseline.
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from absl import flags

from official.tasks import SPLITS, trec
from official.utils import atomic, errors
from official.utils.errors import UserError

FORMATS = ("cranfield", "cisi", "wikiqa")
K1, B = 1.2, 0.75  # of BM25, as is usual

_FIELD = re.compile(r"\.([A-Z])\s*")
_NUMBER = re.compile(r"\.I\s+(\d+)\s*")


@dataclasses.dataclass
class Collection:
    """What a format holds.

    Attributes:
      queries: id → text.
      documents: id → text.
      qrels: query → document → grade.
      splits: split → query → the documents to choose from; None = all of them.
      left_out: what could not be used, counted by reason.
    """

    queries: dict[str, str]
    documents: dict[str, str]
    qrels: trec.Qrels
    splits: dict[str, dict[str, list[str] | None]] = dataclasses.field(default_factory=dict)
    left_out: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def read_fields(path: Path, fields: str) -> Iterator[tuple[str, str]]:
    """Yields the number and the text of each entry of a file of .I, .T, .A, .B and .W fields.

    Args:
      path: the file.
      fields: the fields that make the text, such as "TW", in the order in which they stand.

    Raises:
      UserError: no such file, not UTF-8, or text before the first .I line.
    """
    number, field, words = None, "", []
    for line, text in enumerate(_lines(path), 1):
        if found := _NUMBER.fullmatch(text):
            if number is not None:
                yield number, " ".join(words)
            number, field, words = found[1], "", []
        elif number is None and text.strip():
            raise UserError(f"{path}, line {line}: {text[:40]!r} where .I and a number is wanted")
        elif found := _FIELD.fullmatch(text):
            field = found[1]
        elif field in fields and field:
            words += text.split()
    if number is None:
        raise UserError(f"{path} is empty: it has no entries")
    yield number, " ".join(words)


def read_cranfield(folder: Path) -> Collection:
    """Reads the Cranfield collection (see above)."""
    documents = _unique(folder / "cran.all.1400", read_fields(folder / "cran.all.1400", "W"))
    listed = enumerate(read_fields(folder / "cran.qry", "W"), 1)
    queries = {str(place): text for place, (_, text) in listed}
    made = Collection(queries, documents, {})
    for place, cells in _rows(folder / "cranqrel", 3):
        query, document, grade = cells[0], cells[1], _whole(place, cells[2])
        _judge(made, place, query, document, 5 - grade if 1 <= grade <= 4 else 0)
    return _usable(made)


def read_cisi(folder: Path) -> Collection:
    """Reads the CISI collection (see above)."""
    documents = _unique(folder / "CISI.ALL", read_fields(folder / "CISI.ALL", "TW"))
    queries = _unique(folder / "CISI.QRY", read_fields(folder / "CISI.QRY", "TW"))
    made = Collection(queries, documents, {})
    for place, cells in _rows(folder / "CISI.REL", 4):
        _judge(made, place, cells[0], cells[1], 1)
    return _usable(made)


def read_wikiqa(folder: Path) -> Collection:
    """Reads WikiQA (see above); answers of the same words are one document."""
    made = Collection({}, {}, {})
    numbers: dict[str, str] = {}
    files = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    for split, name in files.items():
        path = folder / name
        candidates = made.splits.setdefault(split, {})
        for line, text in enumerate(_lines(path), 1):
            cells = text.split("\t")
            place = f"{path}, line {line}"
            if len(cells) != 4:
                raise UserError(
                    f"{place}: {len(cells)} columns where 4 are wanted (qid question answer label)"
                )
            if line == 1 and cells[0] == "qid":
                continue
            query = f"{split}-{cells[0]}"
            if made.queries.setdefault(query, cells[1]) != cells[1]:
                raise UserError(f"{place}: question {cells[0]!r} has another text further up")
            document = numbers.setdefault(cells[2], f"a{len(numbers) + 1}")
            made.documents[document] = cells[2]
            label = _whole(place, cells[3])
            if label not in (0, 1):
                raise UserError(f"{place}: label {label} is neither 0 nor 1")
            if document in candidates.setdefault(query, []):
                made.left_out["answers given twice"] += 1
            else:
                candidates[query].append(document)
            grades = made.qrels.setdefault(query, {})
            grades[document] = max(label, grades.get(document, 0))
    return _usable(made)


def split_queries(
    queries: Iterable[str], validation: float, test: float, seed: int
) -> dict[str, dict[str, None]]:
    """Shares queries out at random; a function of the seed and the queries in their order."""
    queries = list(queries)
    order = np.random.default_rng(seed).permutation(len(queries))
    held_out = round(validation * len(queries)), round(test * len(queries))
    ends = {"validation": held_out[0], "test": sum(held_out), "train": len(queries)}
    made, start = {}, 0
    for name, end in ends.items():
        chosen = sorted(order[start:end])
        made[name] = {queries[i]: None for i in chosen}
        start = end
    return made


def rank(
    collection: Collection, candidates: Mapping[str, list[str] | None], depth: int
) -> trec.Run:
    """Ranks by BM25 (Robertson and Zaragoza, 2009); words are runs of letters and digits.

    Args:
      collection: the documents that the counts are of, and the queries.
      candidates: query → the documents to rank; None = all that share a word with it.
      depth: the most documents of a query.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=r"(?u)\w+", dtype=np.float64)
    counts = vectorizer.fit_transform(collection.documents.values()).tocsr()  # [documents, words]
    lengths = np.asarray(counts.sum(axis=1))[:, 0]
    frequencies = np.diff(counts.tocsc().indptr)
    weights = np.log1p((len(lengths) - frequencies + 0.5) / (frequencies + 0.5))
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    rows = np.repeat(np.arange(len(lengths)), np.diff(counts.indptr))
    counts.data *= (K1 + 1) * weights[counts.indices] / (counts.data + norms[rows])
    words = vectorizer.transform(collection.queries[query] for query in candidates)
    scores = (words @ counts.T).toarray()  # [queries, documents]
    names = list(collection.documents)
    numbers = {name: i for i, name in enumerate(names)}
    run: trec.Run = {}
    for (query, given), row in zip(candidates.items(), scores, strict=True):
        among = np.nonzero(row)[0] if given is None else [numbers[name] for name in given]
        found = trec.ordered({names[i]: float(np.float32(row[i])) for i in among})[:depth]
        if found:
            run[query] = dict(found)
    return run


def write(collection: Collection, folder: Path, depth: int) -> dict[str, int]:
    """Writes the files of a ranking.

    Returns:
      How many queries each split has.

    Raises:
      UserError: a split without queries.
    """
    sizes = {}
    with atomic.folder(folder) as temporary:
        for name in ("queries", "documents"):
            with open(temporary / f"{name}.tsv", "w", encoding="utf-8") as stream:
                stream.write("id\ttext\n")
                texts = getattr(collection, name).items()
                stream.writelines(f"{key}\t{' '.join(text.split())}\n" for key, text in texts)
        with open(temporary / "qrels", "w", encoding="utf-8") as stream:
            trec.write_qrels(stream, collection.qrels)
        for split in (s for s in SPLITS if s in collection.splits):
            run = rank(collection, collection.splits[split], depth)
            if not run:
                raise UserError(f"the {split} split has no query: give it a larger share")
            sizes[split] = len(run)
            with open(temporary / f"{split}.run", "w", encoding="utf-8") as stream:
                trec.write_run(stream, run, "bm25")
    return sizes


def _usable(made: Collection) -> Collection:
    """Leaves out empty documents, what is judged of them, and queries without a relevant one."""
    empty = {name for name, text in made.documents.items() if not text}
    for name in empty:
        del made.documents[name]
    made.left_out["empty documents"] += len(empty)
    for query, grades in list(made.qrels.items()):
        for name in empty & grades.keys():
            del grades[name]
            made.left_out["judgements of empty documents"] += 1
        if not any(grade > 0 for grade in grades.values()):
            del made.qrels[query]
    for query in list(made.queries):
        if query not in made.qrels:
            del made.queries[query]
            made.left_out["queries without a relevant document"] += 1
            for candidates in made.splits.values():
                candidates.pop(query, None)
    return made


def _judge(made: Collection, place: str, query: str, document: str, grade: int) -> None:
    if query not in made.queries:
        raise UserError(f"{place}: there is no query {query!r}")
    if document not in made.documents:
        raise UserError(f"{place}: there is no document {document!r}")
    if document in made.qrels.setdefault(query, {}):
        raise UserError(f"{place}: document {document!r} is judged again for {query!r}")
    made.qrels[query][document] = grade


def _unique(path: Path, entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, text in entries:
        if number in found:
            raise UserError(f"{path}: .I {number} is there twice")
        found[number] = text
    return found


def _lines(path: Path) -> Iterator[str]:
    try:
        with open(path, "rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield line.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise UserError(f"{path}, line {number}: not UTF-8: convert the file") from None
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None


def _rows(path: Path, columns: int) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(_lines(path), 1):
        cells = line.split()
        if cells and len(cells) != columns:
            raise UserError(
                f"{path}, line {number}: {len(cells)} columns where {columns} are wanted"
            )
        if cells:
            yield f"{path}, line {number}", cells


def _whole(place: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{place}: {text!r} is not a whole number") from None


READERS = {"cranfield": read_cranfield, "cisi": read_cisi, "wikiqa": read_wikiqa}


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the options of this command line."""
    flags.DEFINE_enum("format", None, FORMATS, "what the files are", flag_values=values)
    flags.DEFINE_string("input", None, "folder that they are in", flag_values=values)
    flags.DEFINE_string("output", None, "folder to make", flag_values=values)
    flags.DEFINE_integer("depth", 100, "the most candidates of a query", 1, flag_values=values)
    flags.DEFINE_float("validation", 0.2, "share of the queries", 0, 1, flag_values=values)
    flags.DEFINE_float("test", 0.2, "share of the queries", 0, 1, flag_values=values)
    flags.DEFINE_integer("seed", 0, "of the shares", 0, flag_values=values)


def main(argv: list[str]) -> None:
    """Runs the command line."""
    del argv
    options = flags.FLAGS
    errors.require(options, "format", "input", "output")
    if options.validation + options.test >= 1:
        raise UserError(
            f"--validation={options.validation} and --test={options.test} leave nothing to learn "
            "from: their sum must be less than 1"
        )
    collection = READERS[options.format](Path(options.input))
    if not collection.splits:
        collection.splits = split_queries(
            collection.queries, options.validation, options.test, options.seed
        )
        collection.splits = {name: them for name, them in collection.splits.items() if them}
    sizes = write(collection, Path(options.output), options.depth)
    for reason, count in sorted(collection.left_out.items()):
        if count:
            print(f"left out: {count:,} {reason}")
    queries = ", ".join(f"{split} {count:,}" for split, count in sizes.items())
    print(
        f"{options.output}: {len(collection.documents):,} documents; queries: {queries}; "
        f"{sum(len(grades) for grades in collection.qrels.values()):,} judgements"
    )


def run() -> None:
    """The console entry."""
    define_flags()
    errors.run(main)


if __name__ == "__main__":
    run()
