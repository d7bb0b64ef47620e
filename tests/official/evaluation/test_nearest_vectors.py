"""The nearest documents, against a sort of all scores."""

import itertools

import numpy as np
import pytest

from official.evaluation import nearest_vectors


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_the_best_are_those_of_a_sort(kind, monkeypatch):
    """With room for few documents beside the best, for none, and for all."""
    monkeypatch.setattr(nearest_vectors, "SCORES", 40)  # so few that queries come in several parts
    rng = np.random.default_rng(0)
    # Few different numbers, so that there are many equal scores, and vectors of zeros.
    queries, documents = (rng.integers(-1, 2, (n, 3)).astype(np.float32) for n in (7, 90))
    empty = ~documents.any(axis=1)
    assert 1 < empty.sum() < 9
    for top_k, room in itertools.product((1, 6, 50, 99), (0, 3, 64)):
        monkeypatch.setattr(nearest_vectors, "ROOM", room)
        best = nearest_vectors.Best(queries, top_k, kind)
        for block in np.split(documents, [3, 4, 20, 20, 30, 41, 50, 55, 70]):
            best.add(block)
        found = best.found
        for row, query in enumerate(queries):
            scores = {
                "euclidean": -np.sqrt(((documents - query) ** 2).sum(1)),
                "manhattan": -np.abs(documents - query).sum(1),
            }.get(kind, documents @ query)
            scores[empty] = -np.inf
            order = np.argsort(-scores, kind="stable")[:top_k]
            assert found.numbers[row].tolist() == order.tolist()
            np.testing.assert_allclose(found.scores[row], scores[order], rtol=1e-6)


def test_runs_have_the_documents_by_their_ids():
    best = nearest_vectors.Best(np.float32([[1], [-1]]), 3, "dot")
    best.add(np.float32([[2], [1], [3], [-1]]))
    names, found = "abcd", best.found
    assert dict(found.runs("xy", names, 2)) == {"x": {"c": 3, "a": 2}, "y": {"d": 1, "b": -1}}
    # A document is no hit of the query with its id.
    without = dict(found.runs("ab", names, 2, own=False))
    assert without == {"a": {"c": 3, "b": 1}, "b": {"d": 1, "a": -2}}
    # A vector of zeros is no hit of any, though its product is the highest.
    best = nearest_vectors.Best(np.float32([[1]]), 3, "dot")
    best.add(np.float32([[0], [-1], [-2]]))
    assert dict(best.found.runs("x", "abc", 3)) == {"x": {"b": -1, "c": -2}}
