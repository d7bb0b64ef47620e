"""Sparse vectors, their files, and the search of an index against all products."""

import numpy as np
import pytest

from official.evaluation import sparse_vectors
from official.evaluation.sparse_vectors import InvertedIndex, SparseBest, SparseVectors
from official.utils.errors import UserError

DENSE = np.array([[0, 2, 0, -3], [0, 0, 0, 0], [1, 0.5, 0.25, 0]], np.float32)


def drawn(rows, size, share, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 9, (rows, size)) / 8  # with ties
    return np.where(rng.random((rows, size)) < share, weights, 0).astype(np.float32)


def test_vectors_row_by_row():
    vectors = SparseVectors.of(DENSE)
    assert len(vectors) == 3 and vectors.size == 4
    assert vectors.offsets.tolist() == [0, 2, 2, 5] and vectors.offsets.dtype == np.int64
    assert vectors.ids.tolist() == [1, 3, 0, 1, 2] and vectors.ids.dtype == np.int32
    assert vectors.weights.tolist() == [2, -3, 1, 0.5, 0.25]
    np.testing.assert_array_equal(vectors.dense(), DENSE)
    ids, weights = vectors.entries(2)
    assert ids.tolist() == [0, 1, 2] and weights.tolist() == [1, 0.5, 0.25]
    np.testing.assert_array_equal(vectors.rows(np.array([2, 0, 0])).dense(), DENSE[[2, 0, 0]])
    none = vectors.rows(np.zeros(0, int))
    assert len(none) == 0 and none.dense().shape == (0, 4)
    both = SparseVectors.joined([vectors, none, vectors.rows(np.array([0]))], 4)
    np.testing.assert_array_equal(both.dense(), DENSE[[0, 1, 2, 0]])
    assert len(SparseVectors.joined([], 4)) == 0


def test_the_largest_weights_are_kept():
    vectors = SparseVectors.of(DENSE, max_active_dims=1)
    assert vectors.dense().tolist() == [[0, 0, 0, -3], [0, 0, 0, 0], [1, 0, 0, 0]]
    np.testing.assert_array_equal(SparseVectors.of(DENSE, 3).dense(), DENSE)
    ties = SparseVectors.of(np.ones((1, 4), np.float32), 2)
    assert ties.ids.tolist() == [0, 1]


def test_words():
    words = SparseVectors.of(DENSE).words(["a", "b", "c"])
    assert words == [[("b", 2.0), ("<3>", -3.0)], [], [("a", 1.0), ("b", 0.5), ("c", 0.25)]]
    assert SparseVectors.of(DENSE).words(["a", "b", "c"], 1) == [[("b", 2.0)], [], [("a", 1.0)]]


def test_files(tmp_path):
    with open(tmp_path / "v.npz", "wb") as stream:
        SparseVectors.of(DENSE).save(stream)
    read = SparseVectors.load(tmp_path / "v.npz")
    np.testing.assert_array_equal(read.dense(), DENSE)
    with np.load(tmp_path / "v.npz") as file:
        assert file["format"].item() == b"csr" and file["shape"].tolist() == [3, 4]
    (tmp_path / "other.npz").write_bytes(b"x")
    np.savez(tmp_path / "less.npz", indices=[1])
    for name in ("other", "less", "none"):
        with pytest.raises(UserError, match="not a file of sparse vectors"):
            SparseVectors.load(tmp_path / f"{name}.npz")


@pytest.mark.parametrize("top_k", [1, 7, 300])
def test_a_search_is_that_of_all_products(top_k):
    documents, queries = drawn(700, 50, 0.1), drawn(9, 50, 0.1, seed=1)
    queries[4] = 0
    best = SparseBest(SparseVectors.of(queries), top_k)
    for block in np.split(documents, [300, 310]):
        best.add(SparseVectors.of(block))
    products = queries @ documents.T
    numbers, scores = best.found
    for row, values in enumerate(products):
        order = np.argsort(-values, kind="stable")[:top_k]
        order = order[values[order] > 0]
        real = numbers[row] != -1
        np.testing.assert_array_equal(numbers[row][real], order)
        np.testing.assert_allclose(scores[row][real], values[order], rtol=1e-6)
        assert np.all(scores[row][~real] == -np.inf)
    assert numbers.shape == (9, min(top_k, 700)) and np.all(numbers[4] == -1)
    ids = [f"d{i}" for i in range(700)]
    runs = dict(best.found.runs("abcdefghi", ids, top_k))
    assert runs["e"] == {}
    assert list(runs["a"]) == [ids[n] for n in numbers[0] if n != -1]


@pytest.mark.parametrize("frequent", [1, 3, 1e9])
def test_scores_of_an_index(frequent, monkeypatch):
    monkeypatch.setattr(sparse_vectors, "_FREQUENT", frequent)
    documents, queries = drawn(40, 20, 0.3), drawn(3, 20, 0.3, seed=2)
    block, asked = SparseVectors.of(documents), SparseVectors.of(queries)
    found = InvertedIndex(block).scores(asked)
    np.testing.assert_allclose(found, queries @ documents.T, rtol=1e-6)
    score = SparseBest(asked, 5).score(1, block, 7)
    assert score == pytest.approx(documents[7] @ queries[1], rel=1e-6)
    none = asked.rows(np.zeros(0, int))
    assert InvertedIndex(block).scores(none).shape == (0, 40)
    assert InvertedIndex(none).scores(asked).shape == (3, 0)


def test_vectors_of_another_vocabulary_are_refused():
    best = SparseBest(SparseVectors.of(DENSE), 2)
    with pytest.raises(UserError, match="queries have 4 words and those of documents 3"):
        best.add(SparseVectors.of(DENSE[:, :3]))


def test_parts_of_documents_hide_none(monkeypatch):
    monkeypatch.setattr(sparse_vectors, "_PART", 4)
    monkeypatch.setattr(sparse_vectors, "SCORES", 1000)
    test_a_search_is_that_of_all_products(7)
