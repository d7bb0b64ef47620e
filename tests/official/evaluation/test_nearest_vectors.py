"""The nearest documents, against a sort of all scores."""

import numpy as np
import pytest

from official.evaluation import nearest_vectors


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_the_best_are_those_of_a_sort(kind, monkeypatch):
    monkeypatch.setattr(nearest_vectors, "SCORES", 40)  # so few that queries come in several parts
    rng = np.random.default_rng(0)
    # Few different numbers, so that there are many equal scores.
    queries, documents = (rng.integers(-1, 2, (n, 3)).astype(np.float32) for n in (7, 50))
    for top_k in (1, 6, 50, 99):
        best = nearest_vectors.Best(queries, top_k, kind)
        for block in np.split(documents, [3, 4, 20, 20]):
            best.add(block)
        for row, query in enumerate(queries):
            scores = {
                "euclidean": -np.sqrt(((documents - query) ** 2).sum(1)),
                "manhattan": -np.abs(documents - query).sum(1),
            }.get(kind, documents @ query)
            order = np.argsort(-scores, kind="stable")[:top_k]
            assert best.numbers[row].tolist() == order.tolist()
            np.testing.assert_allclose(best.scores[row], scores[order], rtol=1e-6)


def test_runs_have_the_documents_by_their_ids():
    best = nearest_vectors.Best(np.float32([[1], [-1]]), 3, "dot")
    best.add(np.float32([[2], [1], [3], [-1]]))
    names = "abcd"
    assert dict(best.runs("xy", names, 2)) == {"x": {"c": 3, "a": 2}, "y": {"d": 1, "b": -1}}
    # A document is no hit of the query with its id.
    found = dict(best.runs("ab", names, 2, own=False))
    assert found == {"a": {"c": 3, "b": 1}, "b": {"d": 1, "a": -2}}
