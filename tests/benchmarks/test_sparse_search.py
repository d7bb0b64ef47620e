import numpy as np
import pytest

from benchmarks import sparse_search
from official.evaluation.sparse_vectors import InvertedIndex, SparseVectors


def drawn(rows, seed):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((rows, 40)) < 0.2, rng.random((rows, 40)), 0)
    return SparseVectors.of(dense.astype(np.float32))


def test_both_sides_search_and_the_ratio_is_printed(tmp_path, monkeypatch, capsys):
    for name, rows in (("documents", 30), ("queries", 5)):
        (tmp_path / f"{name}.txt").write_text("a text\n" * rows)
        with open(tmp_path / f"{name}.npz", "wb") as stream:
            drawn(rows, rows).save(stream)
    flags = ["--texts", f"{tmp_path}/documents.txt", "--queries", f"{tmp_path}/queries.txt"]
    flags += ["--vectors", str(tmp_path), "--copies", "2", "--rounds", "1", "--size", "4"]
    monkeypatch.setattr("sys.argv", ["sparse_search", *flags])
    sparse_search.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("60 documents with ") and "5 queries with " in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["dense", "sparse", "ratio"]
    times = [float(line.split()[1]) for line in lines[1:]]
    assert times[2] == pytest.approx(times[0] / times[1], rel=0.5)


def test_the_sides_find_the_best():
    documents, queries = drawn(30, 1), drawn(5, 2)
    found = sparse_search.sparse_search(queries, InvertedIndex(documents))
    products = queries.dense() @ documents.dense().T
    assert [numbers[0] for numbers, _ in found] == products.argmax(axis=1).tolist()
    x = sparse_search.random(30, 4, 0)
    best = sparse_search.dense_search(x[:3], x, 7).found
    assert best.numbers[:, 0].tolist() == [0, 1, 2]
