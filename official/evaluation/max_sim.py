"""Scores of queries and documents by the vectors of their tokens, and fewer vectors of a document.

A text is an array of the vectors of its tokens, of any number of them.

Shapes: Q queries, S tokens of a query, N documents, T tokens of a document, D size of a vector.
"""

from collections.abc import Sequence

import numpy as np

from official.utils.errors import UserError

# The vector of each text; or for each text those of its tokens, float32 [tokens, D].
Vectors = np.ndarray | Sequence[np.ndarray]
EMPTY = -1e9  # the score of a document without tokens
_PRODUCTS = 1 << 22  # of two tokens, which are computed at a time: 16 MB


def max_sim(queries: Vectors, documents: Vectors, mean: bool = False) -> np.ndarray:
    """Returns the scores of all queries and documents, as `modeling.layers.max_sim` has them.

    The memory for the products of tokens is bounded.

    Args:
      queries: float32 [S, D] each.
      documents: float32 [T, D] each.
      mean: whether a score is divided by the number of tokens of the query.

    Returns:
      float32 [Q, N].
    """
    scores = np.full((len(queries), len(documents)), EMPTY, np.float32)
    there = np.array([number for number, each in enumerate(documents) if len(each)], int)
    for rows in _blocks([len(each) for each in queries], 256):
        asked = [queries[row] for row in rows]
        tokens = np.concatenate(asked)  # [S of all, D]
        starts, counts = _places(asked)
        for block in _blocks([len(documents[number]) for number in there], _PRODUCTS // 256):
            numbers = there[block]
            found = [documents[number] for number in numbers]
            products = np.concatenate(found) @ tokens.T  # [T of all, S of all]
            best = np.maximum.reduceat(products, _places(found)[0], axis=0)  # [documents, S of all]
            best = np.concatenate([best, np.zeros((len(found), 1), np.float32)], axis=1)
            # A query without tokens, whose sum would begin with the next query, has the score 0.
            sums = np.add.reduceat(best, starts, axis=1) * (counts > 0)
            if mean:
                sums /= np.maximum(counts, 1)
            scores[np.ix_(rows, numbers)] = sums.T
    return scores


def pooled(vectors: np.ndarray, factor: float, protected: int = 1) -> np.ndarray:
    """Returns fewer vectors for the tokens of a document: means of clusters of similar ones.

    The clusters are those of Ward's method on 1 - cosine (Clavié et al., 2024). There are
    (T - protected) / factor of them, rounded down, and at least one.

    Args:
      vectors: float32 [T, D], of the length 1.
      factor: 1 = the vectors stay as they are.
      protected: the number of first vectors that stay.

    Returns:
      float32 [protected + clusters, D], of the length 1.

    Raises:
      UserError: `factor` is less than 1.
    """
    from scipy.cluster import hierarchy  # slow to import

    check_factor(factor)
    first, rest = vectors[:protected], vectors[protected:]
    count = max(int(len(rest) // factor), 1)
    if count >= len(rest):
        return vectors
    apart = np.clip(1 - rest @ rest.T, 0, 2)
    tree = hierarchy.linkage(apart[np.triu_indices(len(rest), 1)], "ward")
    labels = hierarchy.fcluster(tree, count, "maxclust")
    means = [rest[labels == label].mean(axis=0) for label in np.unique(labels)]
    joined = np.concatenate([first, means]).astype(np.float32)
    return joined / np.maximum(np.linalg.norm(joined, axis=1, keepdims=True), 1e-12)


def check_factor(factor: float) -> None:
    """Raises UserError for a factor of `pooled` below 1."""
    if factor < 1:
        raise UserError(f"pool_factor: {factor} is less than 1, which keeps all vectors")


def _blocks(lengths: Sequence[int], tokens: int) -> list[np.ndarray]:
    """Returns the numbers of texts in blocks of so many tokens, or of one text with more."""
    if not lengths:
        return []
    numbers = (np.cumsum(lengths) - lengths) // tokens
    return np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(numbers)) + 1)


def _places(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the place of the first token of each text among all, and the numbers of tokens."""
    counts = np.array([len(each) for each in texts])
    return np.cumsum(counts) - counts, counts
