"""Compares vectors, and keeps the nearest documents of each query.

Shapes: Q queries, N documents, B documents of a block, D size of a vector, K documents kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official.evaluation.max_sim import Vectors, max_sim
from official.utils import blas

# The kinds of similarity of the vectors of tokens, with `mean` of `max_sim`.
OF_TOKENS = {"max_sim": False, "mean_max_sim": True}
_SHORTEST = 1e-12  # the least length that a vector is divided by
SCORES = 1 << 20  # scores that are computed at a time, 4 MB
ROOM = 64  # documents that are held beside the kept ones, and as many as these


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors [..., D] divided by their lengths; one of zeros stays so."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, _SHORTEST)


def similarity(queries: Vectors, documents: Vectors, kind: str) -> np.ndarray:
    """Compares vectors; higher is nearer.

    Args:
      queries: float32 [Q, D], or of tokens Q arrays.
      documents: float32 [B, D], or of tokens B arrays.
      kind: `dot`; `cosine`, the product of vectors that are normalized already; `euclidean` or
        `manhattan`, the negatives of distances; or one of `OF_TOKENS`.

    Returns:
      float32 [Q, B].
    """
    if kind in OF_TOKENS:
        return max_sim(queries, documents, OF_TOKENS[kind])
    assert isinstance(queries, np.ndarray) and isinstance(documents, np.ndarray)
    if kind == "manhattan":
        return -np.stack([np.abs(documents - query).sum(axis=1) for query in queries])
    if kind == "euclidean":
        return -np.stack([np.linalg.norm(documents - query, axis=1) for query in queries])
    with blas.one_thread():
        return queries @ documents.T


class Found(NamedTuple):
    """The best documents of queries.

    Attributes:
      numbers: the numbers of the documents, int64 [Q, K], the best first.
      scores: their scores, float32 [Q, K]; -inf is no match.
    """

    numbers: np.ndarray
    scores: np.ndarray

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
        for query, numbers, scores in zip(queries, *self, strict=True):
            pairs = zip((ids[number] for number in numbers), scores, strict=True)
            found = [(i, score) for i, score in pairs if score > -np.inf and (own or i != query)]
            yield query, dict(found[:top_k])


def best_of(parts: Sequence[Found], top_k: int) -> Found:
    """Returns the best of what was found in parts of the documents, in the order of these.

    Args:
      parts: what was found, each with numbers among all documents.
      top_k: the maximum of K.
    """
    numbers, scores = (np.concatenate(tables, axis=1) for tables in zip(*parts, strict=True))
    order = first_of(scores, min(top_k, scores.shape[1]))
    return Found(*(np.take_along_axis(table, order, axis=1) for table in (numbers, scores)))


class Best:
    """Keeps the best documents of each query.

    Of documents with the same score, the earlier one is kept. A vector of zeros, which an empty
    text may have, says nothing of its text: its score is -inf, so that it comes last. So is that of
    a document without vectors of tokens.

    Few documents of a block are better than the worst that a query keeps. These are held beside the
    kept ones, and the best of both are chosen when there is no room for more.

    Attributes:
      queries: the vectors, as in `similarity`.
      kind: as there.
    """

    def __init__(self, queries: Vectors, top_k: int, kind: str):
        """Begins with no documents.

        Args:
          queries: as in `similarity`.
          top_k: the maximum of K.
          kind: as in `similarity`.
        """
        self.queries, self.kind, self._top_k = queries, kind, top_k
        self._seen = self._kept = 0
        # The first K columns are the kept documents, the best first; those that are held follow in
        # their order, and then -inf.
        self._numbers = np.zeros((len(queries), 0), np.int64)
        self._scores = np.zeros((len(queries), 0), np.float32)
        self._held = np.zeros(len(queries), np.int64)

    @property
    def found(self) -> Found:
        """The kept documents."""
        self._choose(slice(None))
        return Found(self._numbers[:, : self._kept], self._scores[:, : self._kept])

    def score(self, query: int, documents: np.ndarray, number: int) -> float:
        """Returns the score of a query, by its number, and one of some documents, by its own."""
        pair = self.queries[query][None], documents[number][None]
        return float(similarity(*pair, self.kind)[0, 0])

    def add(self, documents: Vectors) -> None:
        """Compares the next documents; see `similarity`."""
        old = self._kept
        if isinstance(documents, np.ndarray):
            empty = np.flatnonzero(documents[:, 0] == 0)
            empty = empty[~documents[empty].any(axis=1)]
        else:
            empty = np.flatnonzero([not len(document) for document in documents])
        self._grow(min(self._top_k, self._seen + len(documents)))
        step = max(1, SCORES // max(len(documents), 1))
        for start in range(0, len(self.queries), step):
            rows = slice(start, start + step)
            new = similarity(self.queries[rows], documents, self.kind)
            new[:, empty] = -np.inf
            if old < self._kept or not self._hold(rows, new):
                self._merge(rows, new, old)
        self._seen += len(documents)

    def _grow(self, kept: int) -> None:
        """Makes room for more documents."""
        if kept > self._kept:
            self._choose(slice(None))
            wider = (0, 0), (0, 2 * kept + ROOM - self._scores.shape[1])
            self._numbers = np.pad(self._numbers, wider)
            self._scores = np.pad(self._scores, wider, constant_values=-np.inf)
            self._kept = kept

    def _hold(self, rows: slice, new: np.ndarray) -> bool:
        """Holds the documents of a block that may be kept; False = there are too many of them."""
        room = self._scores.shape[1] - self._kept
        places = np.flatnonzero(new > self._scores[rows, self._kept - 1 : self._kept])
        queries, columns = np.divmod(places, new.shape[1])
        counts = np.bincount(queries, minlength=len(new))
        if counts.max() > room:
            return False
        if (self._held[rows] + counts).max() > room:
            self._choose(rows)
        firsts = self._held[rows] + self._kept - np.cumsum(counts) + counts
        free = firsts[queries] + np.arange(len(places))
        self._scores[rows][queries, free] = new.ravel()[places]
        self._numbers[rows][queries, free] = self._seen + columns
        self._held[rows] += counts
        return True

    def _merge(self, rows: slice, new: np.ndarray, old: int) -> None:
        """Chooses among all documents of a block and the first `old` columns."""
        self._choose(rows)
        both = np.concatenate([self._scores[rows, :old], new], axis=1)
        # A stable order: in a tie, documents that were added earlier come first.
        order = first_of(both, self._kept)
        before = np.take_along_axis(
            np.pad(self._numbers[rows, :old], ((0, 0), (0, 1))), np.minimum(order, old), axis=1
        )
        self._numbers[rows, : self._kept] = np.where(order < old, before, self._seen + order - old)
        self._scores[rows, : self._kept] = np.take_along_axis(both, order, axis=1)

    def _choose(self, rows: slice) -> None:
        """Chooses among the kept and the held documents."""
        if self._held[rows].any():
            order = first_of(self._scores[rows], self._kept)
            for table in (self._numbers, self._scores):
                table[rows, : self._kept] = np.take_along_axis(table[rows], order, axis=1)
            self._scores[rows, self._kept :] = -np.inf
            self._held[rows] = 0


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
        chosen = above | (equal & (np.cumsum(equal, axis=1, dtype=np.int32) <= room))
        columns = np.nonzero(chosen)[1].reshape(len(scores), count)
    else:
        columns = np.broadcast_to(np.arange(width), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
