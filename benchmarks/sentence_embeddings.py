"""Trains sentence encoders with this project and sentence-transformers, and evaluates both.

  python -m benchmarks.sentence_embeddings --data=DATA --init=PRETRAINED [--precision=bfloat16]

Both sides start from the same weights (`--init`, a model folder of a BERT), and train on the same
pairs in the same batches, with the multiple negatives loss, mean pooling, AdamW, and the same
learning rate, linear schedule, dropout and clipping. Ours is
configs/finetune/sentence_embedding.yaml, whose batches have distinct texts of similar length. Their
Trainer gets the same batches in the same order. Each side is a process in a separate environment
(made as by `make parity` when missing). The two take turns, a seed at a time, on the same cores; a
seed decides the batches and the dropout. Times run from the initial weights on disk to the trained
weights, without imports: wall-clock seconds, and CPU seconds of all cores, which depend less on
other work on the machine. Without dropout the sides end with the same vectors, up to rounding.

With --results=FILE.jsonl the results are appended to a file, and the table has all results of the
file, so seeds and precisions can be run by separate commands.

DATA has these files:
  glue/MNLI/train_sample.tsv glue/QNLI/train_sample.tsv glue/QQP/train_sample.tsv wikiqa/train.tsv
    the pairs: entailments, questions with their answers, duplicate questions
  glue/STS-B/dev.tsv    Spearman's correlation of the cosine with the score of a pair
  wikiqa/test.tsv       mean reciprocal rank of the first right answer among those of a question
  cranfield             NDCG@10 of all queries and all documents; the grades are those that
                        `tfrecords_tools.build_ranking_data` gives
Beside them are the measures of the encoder before the training, of TF-IDF (scikit-learn's, with the
words of a measure's texts), and of BM25.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks import environments
from benchmarks.environments import Process
from official.tasks import text_rows, trec
from official.utils import paths, quiet_import
from official.utils.text_lines import BadRows
from tfrecords_tools import build_ranking_data
from tfrecords_tools.build_ranking_data import Collection

OURS, THEIRS = "encoder garden", "sentence-transformers"
CONFIG = environments.ROOT / "configs" / "finetune" / "sentence_embedding.yaml"
TOLERANCE = 1e-4  # for the initial vectors, which have length 1
# The files of the pairs, their columns, and the label of positive pairs.
PAIRS = {
    "glue/MNLI/train_sample.tsv": ("sentence1", "sentence2", "gold_label", "entailment"),
    "glue/QNLI/train_sample.tsv": ("question", "sentence", "label", "entailment"),
    "glue/QQP/train_sample.tsv": ("question1", "question2", "is_duplicate", "1"),
    "wikiqa/train.tsv": ("question", "answer", "label", "1"),
}
MEASURES = ("STS-B, Spearman", "WikiQA, MRR", "Cranfield, NDCG@10")

Encode = Callable[[Sequence[str]], np.ndarray]  # texts -> vectors [number of texts, V]
Candidates = dict[str, list[str] | None]  # {query: documents to rank; None = all}
_STSB = ("sentence1", "sentence2", "score")
_PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def read_pairs(data: Path) -> Iterator[tuple[str, str]]:
    """Yields the pairs of all files, without pairs of two equal texts."""
    for name, (*columns, label) in PAIRS.items():
        for _, (first, second, value) in _texts(data / name, columns):
            if value == label and first != second:
                yield first, second


def _texts(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    return text_rows.Rows(paths.path(path), columns).texts(BadRows(False))


class Measures:
    """Three measures of vectors.

    Args:
      data: the folder DATA; see the module.
    """

    def __init__(self, data: Path):
        pairs = [texts for _, texts in _texts(data / "glue/STS-B/dev.tsv", _STSB)]
        self._first, self._second, scores = zip(*pairs, strict=True)
        self._scores = np.array(scores, np.float64)
        wikiqa = build_ranking_data.read_wikiqa(paths.path(data / "wikiqa"))
        cranfield = build_ranking_data.read_cranfield(paths.path(data / "cranfield"))
        self._rankings = (
            ("mrr", wikiqa, wikiqa.splits["test"]),
            ("ndcg_10", cranfield, dict.fromkeys(cranfield.queries)),
        )

    @property
    def texts(self) -> list[str]:
        """All texts whose vectors are measured, each once."""
        texts = [*self._first, *self._second]
        for _, collection, candidates in self._rankings:
            texts += [text for part in _ranked(collection, candidates) for text in part.values()]
        return list(dict.fromkeys(texts))

    def of_vectors(self, encode: Encode) -> list[float]:
        """Returns the three measures of vectors."""
        from official.evaluation import embeddings, rows

        vectors = encode([*self._first, *self._second]).reshape(2, len(self._first), -1)
        cosines = embeddings.similarities(vectors.swapaxes(0, 1))[:, 0]
        found = [rows.compute(["spearman"], self._scores, cosines)["spearman"]]
        for metric, collection, candidates in self._rankings:
            run = _run(collection, candidates, encode)
            found.append(_score(metric, collection, run))
        return found

    def of_bm25(self) -> list[float]:
        """Returns the measures of BM25, which cannot score STS-B."""
        found = [np.nan]
        for metric, collection, candidates in self._rankings:
            run = build_ranking_data.rank(collection, candidates, len(collection.documents))
            found.append(_score(metric, collection, run))
        return found


def _ranked(collection: Collection, candidates: Candidates) -> tuple[dict[str, str], ...]:
    """Returns the texts of the ranked queries and documents, by id."""
    listed = [found for found in candidates.values() if found is not None]
    names = dict.fromkeys(name for found in listed for name in found) or collection.documents
    return (
        {name: collection.queries[name] for name in candidates},
        {name: collection.documents[name] for name in names},
    )


def _run(collection: Collection, candidates: Candidates, encode: Encode) -> trec.Run:
    """Ranks the candidates of each query, or all documents, by cosine."""
    queries, documents = _ranked(collection, candidates)
    vectors = encode([*queries.values(), *documents.values()])
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = vectors[: len(queries)] @ vectors[len(queries) :].T
    place = {name: i for i, name in enumerate(documents)}
    return {
        query: {name: float(row[place[name]]) for name in candidates[query] or documents}
        for query, row in zip(queries, cosines, strict=True)
    }


def _score(metric: str, collection: Collection, run: trec.Run) -> float:
    from official.evaluation import rankings

    qrels = {query: collection.qrels[query] for query in run}
    return rankings.compute([metric], qrels, run)[metric]


def tf_idf(texts: Sequence[str]) -> np.ndarray:
    """Returns scikit-learn's TF-IDF vectors of texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(dtype=np.float32).fit_transform(texts).toarray()


class Side(Process):
    """A process that trains with a seed and then writes vectors.

    Attributes:
      vectors: the latest vectors, of length 1; at first those of the initial weights.
    """

    def __init__(self, name: str, settings: dict, texts: Sequence[str]):
        environment, function = {OURS: (None, "ours"), THEIRS: ("hf5", "theirs")}[name]
        super().__init__(name, environment, f"sentence_vectors.{function}", settings)
        self._numbers = {text: i for i, text in enumerate(texts)}
        self._precision = settings["precision"]
        self._take(self.ask({"seed": None}))

    def train(self, seed: int, measures: Measures) -> dict:
        """Trains with a seed; returns the result."""
        answer = self.ask({"seed": seed})
        self._take(answer)
        return {
            "side": self.name,
            "precision": self._precision,
            "seed": seed,
            "seconds": answer["seconds"],
            "cpu_seconds": answer["cpu_seconds"],
            "peak_mib": answer["peak_mib"],
            "measures": measures.of_vectors(self.encode),
        }

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the latest vectors of texts."""
        return self.vectors[[self._numbers[text] for text in texts]]

    def _take(self, answer: dict) -> None:
        vectors = np.load(answer["vectors"])
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def prepare(folder: Path, texts: Sequence[str], options: argparse.Namespace) -> dict:
    """Writes pairs, shards, initial weights and texts; returns the settings of the sides."""
    from official import config as configs

    pairs = list(read_pairs(options.data))
    with open(folder / "pairs.jsonl", "w", encoding="utf-8") as stream:
        for first, second in pairs:
            stream.write(json.dumps({"a": first, "b": second}) + "\n")
    (folder / "texts.json").write_text(json.dumps(texts), "utf-8")
    encoder = configs.load(options.init).encoder
    length = min(options.max_length, encoder.max_positions)
    environments.run(
        "tfrecords_tools.build_task_shards", "--task=embedding", f"--output={folder}/shards",
        f"--train_file={folder}/pairs.jsonl", "--text_column=a", "--text_pair_column=b",
        f"--tokenizer={options.init}/tokenizer", f"--max_length={length}",
    )  # fmt: skip
    overrides = [
        f"recipe.epochs={options.epochs}",
        f"recipe.batch_size={options.batch_size}",
        f"recipe.optimizer.learning_rate={options.learning_rate}",
        f"recipe.dropout={options.dropout}",
        f"recipe.precision={_PRECISIONS[options.precision]}",
        # As in their Trainer: moments are corrected, and the rate decays from the end of warm-up.
        # PyTorch adds epsilon to the corrected root, TensorFlow to the uncorrected root; the
        # difference is small.
        "recipe.optimizer.bias_correction=true",
        "recipe.optimizer.epsilon=1.0e-8",
        "recipe.schedule.type=xlnet",
        "objectives.0.cached_rows=null",
        *options.override,
    ]
    config = configs.load(CONFIG, overrides)
    if THEIRS in options.sides:
        environments.run(
            "official.convert", "--target=hf", f"--input={options.init}", f"--output={folder}/hf"
        )
    recipe = config.recipe
    steps = recipe.total_steps(len(pairs))
    return {
        "folder": str(folder),
        "init": str(options.init.resolve()),
        "config": str(CONFIG),
        "overrides": overrides,
        "length": length,
        "pairs": len(pairs),
        "steps": steps,
        "warmup_steps": round(recipe.schedule.warmup_fraction * steps),
        "batch_size": recipe.batch_size,
        "learning_rate": recipe.optimizer.learning_rate,
        "weight_decay": recipe.optimizer.weight_decay,
        "epsilon": recipe.optimizer.epsilon,
        "clip_norm": recipe.optimizer.clip_norm,
        "scale": config.objectives[0].scale,
        "dropout": recipe.dropout,
        "precision": options.precision,
        "compile": options.compile,
    }


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    quiet_import.install()
    measures = Measures(options.data)
    plain = {"BM25": measures.of_bm25(), "TF-IDF": measures.of_vectors(tf_idf)}
    texts = measures.texts
    results = read_results(options.results)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = prepare(folder, texts, options)
        if THEIRS in options.sides:
            batches = Process("batches", None, "sentence_vectors.batches", settings)
            for seed in options.seeds:
                batches.ask({"seed": seed})
            batches.close()
        sides = [Side(name, settings, texts) for name in options.sides]
        apart = max(np.abs(side.vectors - sides[0].vectors).max() for side in sides)
        print(f"untrained vectors: at most {apart:.1e} apart", flush=True)
        if apart > TOLERANCE:
            sys.exit("error: the sides do not start from the same model")
        plain["untrained"] = measures.of_vectors(sides[0].encode)
        for seed in options.seeds:
            for side in sides:
                result = side.train(seed, measures)
                values = ", ".join(f"{value:.4f}" for value in result["measures"])
                print(f"seed {seed}: {side.name}: {result['seconds']:.1f} s; {values}", flush=True)
                results.append(result)
                if options.results is not None:
                    with open(options.results, "a", encoding="utf-8") as stream:
                        stream.write(json.dumps(result) + "\n")
            if len(sides) == 2:
                cosines = np.sum(sides[0].vectors * sides[1].vectors, axis=1)
                print(f"seed {seed}: mean cosine of the sides {cosines.mean():.5f}", flush=True)
        for side in sides:
            side.close()
    table(plain, results, settings)


def read_results(path: Path | None) -> list[dict]:
    """Returns the results of earlier commands."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def table(plain: dict[str, list[float]], results: Iterable[dict], settings: dict) -> None:
    """Prints the measures of each row (with standard errors for sides), and the times of sides."""
    print(
        f"\n{settings['pairs']:,} pairs, {settings['steps']:,} steps of {settings['batch_size']}, "
        f"dropout {settings['dropout']}, learning rate {settings['learning_rate']}, "
        f"{os.cpu_count()} cores\n"
    )
    names = [*MEASURES, "seeds", "training, s", "vs ours", "CPU, s", "vs ours", "peak MiB"]
    print(f"| vectors | {' | '.join(names)} |")
    print(f"|---|{'---:|' * len(names)}")
    for name, values in plain.items():
        cells = ["-" if np.isnan(value) else f"{value:.4f}" for value in values]
        print(f"| {name} | {' | '.join(cells)} |{' |' * (len(names) - len(cells))}")
    of_rows: dict[tuple[str, str], list[dict]] = {}
    for result in results:
        of_rows.setdefault((result["precision"], result["side"]), []).append(result)
    for (precision, name), found in sorted(of_rows.items()):
        values = np.transpose([result["measures"] for result in found])
        cells = [*(_with_error(each, 4) for each in values), str(len(found))]
        for kind in ("seconds", "cpu_seconds"):
            seconds = [result[kind] for result in found]
            ours = [result[kind] for result in of_rows.get((precision, OURS), ())]
            cells.append(_with_error(seconds, 1))
            cells.append(f"{np.mean(seconds) / np.mean(ours):.2f}x" if ours else "-")
        cells.append(f"{max(result['peak_mib'] for result in found):,.0f}")
        print(f"| {name}, {precision} | {' | '.join(cells)} |")


def _with_error(values: Sequence[float], digits: int) -> str:
    """Returns the mean and, for several values, its standard error."""
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="see the module")
    parser.add_argument("--init", type=Path, required=True, help="a model folder of a BERT")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument("--epochs", type=float, default=1, help="default: 1")
    parser.add_argument("--batch_size", type=int, default=64, help="default: 64")
    parser.add_argument("--learning_rate", type=float, default=3e-4, help="default: 3e-4")
    parser.add_argument("--dropout", type=float, default=0.1, help="default: 0.1")
    parser.add_argument("--max_length", type=int, default=64, help="tokens of a text (default: 64)")
    parser.add_argument("--precision", choices=list(_PRECISIONS), default="float32")
    parser.add_argument("--compile", action="store_true", help="theirs by torch.compile")
    parser.add_argument("--results", type=Path, help="a file to append to, .jsonl")
    parser.add_argument("--override", action="append", default=[], help="of our config")
    parser.add_argument("--sides", nargs="+", choices=[OURS, THEIRS], default=[OURS, THEIRS])
    return parser.parse_args()


if __name__ == "__main__":
    main()
