"""Compares vectors, and keeps the nearest documents of each query.

Shapes: Q queries, N documents, B documents of a block, D size of a vector, K documents kept.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

SCORES = 1 << 22  # scores that are computed at a time, 16 MB


def similarity(queries: np.ndarray, documents: np.ndarray, kind: str) -> np.ndarray:
    """Compares vectors; higher is nearer.

    Args:
      queries: float32 [Q, D].
      documents: float32 [B, D].
      kind: `dot`; `cosine`, the product of vectors that are normalized already; or `euclidean` or
        `manhattan`, the negatives of distances.

    Returns:
      float32 [Q, B].
    """
    if kind == "manhattan":
        return -np.stack([np.abs(documents - query).sum(axis=1) for query in queries])
    if kind == "euclidean":
        return -np.stack([np.linalg.norm(documents - query, axis=1) for query in queries])
    return queries @ documents.T


class Best:
    """Keeps the best documents of each query.

    Of documents with the same score, the earlier one is kept.

    Attributes:
      queries: the vectors, float32 [Q, D].
      kind: as in `similarity`.
      numbers: the numbers of the documents, int64 [Q, K], the best first.
      scores: their scores, float32 [Q, K].
    """

    def __init__(self, queries: np.ndarray, top_k: int, kind: str):
        """Begins with no documents.

        Args:
          queries: float32 [Q, D].
          top_k: the maximum of K.
          kind: as in `similarity`.
        """
        self.queries, self.kind, self._top_k = queries, kind, top_k
        self._seen = 0
        self.numbers = np.zeros((len(queries), 0), np.int64)
        self.scores = np.zeros((len(queries), 0), np.float32)

    def add(self, documents: np.ndarray) -> None:
        """Compares the next documents, float32 [B, D]."""
        count = len(documents)
        kept = min(self._top_k, self._seen + count)
        numbers = np.empty((len(self.queries), kept), np.int64)
        scores = np.empty((len(self.queries), kept), np.float32)
        step = max(1, SCORES // max(count, 1))
        for start in range(0, len(self.queries), step):
            rows = slice(start, start + step)
            new = similarity(self.queries[rows], documents, self.kind)
            both = np.concatenate([self.scores[rows], new], axis=1)
            # A stable order: in a tie, documents that were added earlier come first.
            order = first_of(both, kept)
            scores[rows] = np.take_along_axis(both, order, axis=1)
            old = self.scores.shape[1]
            fresh = self._seen + order - old
            before = np.take_along_axis(
                np.pad(self.numbers[rows], ((0, 0), (0, 1))), np.minimum(order, old), axis=1
            )
            numbers[rows] = np.where(order < old, before, fresh)
        self.numbers, self.scores = numbers, scores
        self._seen += count

    def runs(
        self, queries: Iterable[str], ids: Sequence[str], top_k: int, own: bool = True
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """Yields the id of each query, and the scores of its best documents by their ids.

        Args:
          queries: the ids of the queries.
          ids: those of the documents.
          top_k: the largest number of documents of a query.
          own: whether a document with the id of the query may be among the results.
        """
        for query, numbers, scores in zip(queries, self.numbers, self.scores, strict=True):
            pairs = zip((ids[number] for number in numbers), scores, strict=True)
            found = [pair for pair in pairs if own or pair[0] != query]
            yield query, dict(found[:top_k])


def first_of(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the columns of the highest scores of each row, the highest first.

    Of equal scores, the columns on the left come first.

    Args:
      scores: [Q, N].
      count: K, at most N.

    Returns:
      int64 [Q, K].
    """
    width = scores.shape[1]
    if count < width:
        # The threshold of a row, and the leftmost columns among those that are equal to it.
        threshold = -np.partition(-scores, count - 1, axis=1)[:, count - 1 : count]
        above = scores > threshold
        equal = scores == threshold
        room = count - above.sum(axis=1, keepdims=True)
        chosen = above | (equal & (np.cumsum(equal, axis=1) <= room))
        columns = np.nonzero(chosen)[1].reshape(len(scores), count)
    else:
        columns = np.broadcast_to(np.arange(width), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
