"""Times exact search of stored vectors, here and by faiss, and measures what smaller numbers lose.

  python -m benchmarks.vector_search [--vectors=1000000] [--queries=1000] [--top_k=100]
  python -m benchmarks.vector_search --model=MODEL --beir=FOLDER

The first form stores random vectors of the length 1 as `--mode=embed --pieces=npy` does, and
searches them with both sides, which take turns: ours, whose files are mapped, and faiss'
IndexFlatIP, which has a copy in memory. A table shows the seconds of a search (the median of the
rounds), queries a second, the ratio, CPU seconds, and the most memory that a search takes beside
the vectors. Both sides have the same --threads, a core each, and find the same documents.

The second form encodes the documents of a folder of BEIR once, and searches them in each type of
numbers: the bytes of a vector, NDCG@10, and the share of the ten nearest in float32 that is found;
int8 and bits also with the best 110 of a query compared again in float32 (`--rescore`).
"""

import argparse
import os
import statistics
from pathlib import Path

import numpy as np

from benchmarks import environments
from official.evaluation.nearest_vectors import Found
from official.serving import DTYPES
from official.serving.vectors import stored
from official.serving.vectors.indexes import dense
from official.utils import paths

SIDES = {"encoder garden": (None, "ours"), "faiss, IndexFlatIP": ("vectors", "flat")}
SETTINGS = {"similarity": "cosine", "normalize": True}


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    if options.model:
        losses(options.model, options.beir)
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    with environments.folder(options.folder) as folder:
        if not (folder / "vectors" / stored.FILE).exists():
            store(folder / "vectors", options.vectors, options.size)
        queries = unit(np.random.default_rng(1), options.queries, options.size)
        np.save(folder / "queries.npy", queries)
        settings = {"folder": str(folder), "top_k": options.top_k}
        sides = {
            name: environments.Process(name, environment, f"vector_search.{side}", settings)
            for name, (environment, side) in SIDES.items()
        }
        answers: dict[str, list[dict]] = {name: [] for name in sides}
        for number in range(options.rounds):
            for name, process in sides.items():
                answers[name].append(process.ask(number))
                print(
                    f"round {number + 1}: {name}: {answers[name][-1]['seconds']:.2f} s", flush=True
                )
        for process in sides.values():
            process.close()
        ours, theirs = (np.load(folder / f"{side}.npy") for _, side in SIDES.values())
        table(answers)
        print(f"\n{np.mean(ours == theirs):.6f} of the numbers of both are the same")


def table(answers: dict[str, list[dict]]) -> None:
    """Prints a line for each side."""
    seconds = {
        name: statistics.median(answer["seconds"] for answer in given)
        for name, given in answers.items()
    }
    theirs = list(seconds.values())[-1]
    print("\n| side | seconds | queries/s | times as fast | CPU seconds | MiB beside |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, given in answers.items():
        cpu = statistics.median(answer["cpu"] for answer in given)
        memory = max(answer["memory"] for answer in given)
        print(
            f"| {name} | {seconds[name]:.2f} | {given[0]['queries'] / seconds[name]:.0f} | "
            f"{theirs / seconds[name]:.2f} | {cpu:.2f} | {memory:.0f} |"
        )


def store(folder: Path, count: int, size: int) -> None:
    """Writes random vectors as `official.serving.vector_pieces` does."""
    rng, where = np.random.default_rng(0), paths.path(folder)
    plan = {**stored.DEFAULTS, "texts": count, "shape": [size], "settings": SETTINGS}
    plan |= {"format": "npy", "first_piece": 0}
    index = dense.Dense(plan)
    starts = range(0, count, 16_384)
    for number, start in enumerate(starts):
        ids = [str(i) for i in range(start, min(start + 16_384, count))]
        stored.write_piece(where, number, index, [(ids, unit(rng, len(ids), size))])
    stored.write_manifest(where, plan, len(starts), None)


def unit(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Returns random vectors of the length 1, float32 [count, size]."""
    vectors = rng.standard_normal((count, size), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def losses(model_dir: Path, folder: Path) -> None:
    """Prints what each type of numbers loses on a folder of BEIR."""
    import official
    from official.evaluation import rankings
    from official.serving.vectors import search
    from official.tasks import beir, text_files

    embedder, judged = official.load(model_dir).embedder, beir.read(folder, "test")
    ids, texts = zip(*text_files.unique(judged.documents), strict=True)
    best, blocks = search.compared(embedder, list(judged.queries.values()), texts, 101)
    vectors = np.concatenate(list(blocks))
    whole: dense.Dense | None = None
    nearest: np.ndarray | None = None

    def line(name: str, size: float, found: Found) -> np.ndarray:
        """Prints a line of the table; returns the numbers of the ten nearest."""
        ten = found.numbers[:, :10]
        right = ten if nearest is None else nearest
        shared = [len(set(a) & set(b)) / 10 for a, b in zip(ten, right, strict=True)]
        run = dict(found.runs(judged.queries, ids, 100, own=False))
        ndcg = rankings.compute(beir.METRICS, judged.qrels, run)["ndcg_10"]
        print(f"| {name} | {size:.0f} | {ndcg:.4f} | {np.mean(shared):.3f} |")
        return right

    print("| numbers | bytes a vector | NDCG@10 | of float32's ten nearest |")
    print("|---|---:|---:|---:|")
    for dtype in DTYPES:
        scale = dense.scale_of(vectors[: dense.SAMPLE])
        manifest = {"shape": vectors.shape[1:], "settings": SETTINGS, "dtype": dtype}
        index = dense.Dense({**manifest, "scale": scale})
        block = index.pack(vectors, ids)
        index.add(block)
        size = block["vectors"].nbytes / len(ids)
        nearest = line(dtype, size, index.search(best.queries, 101))
        whole = whole or index
        if dtype in ("int8", "bits"):
            some = index.search(best.queries, 11 * search.CANDIDATES)
            again = whole.again(best.queries, some.numbers, 11)
            line(f"{dtype}, compared again", size, again)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--top_k", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--model", type=Path, help="a model, for the loss of smaller numbers")
    parser.add_argument("--beir", type=Path, help="with --model: a folder of BEIR")
    parser.add_argument(
        "--folder", type=Path, help="folder that keeps the vectors, which are used again"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
