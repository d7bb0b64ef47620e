"""Sparse vectors, an index of them, and the best documents of each query.

Shapes: N vectors, E entries other than 0, V size of a vector, Q queries, K documents kept.
"""

import dataclasses
import os
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from official.evaluation.nearest_vectors import SCORES, Found
from official.utils import paths
from official.utils.errors import UserError

NONE = -1  # the number of no document
_FREQUENT = 8  # a word that one document of so many has, or more, is frequent
_PART = 64  # documents whose largest score is compared first


@dataclasses.dataclass(frozen=True, eq=False)
class SparseVectors:
    """Vectors whose entries are mostly 0, row by row (CSR).

    `scipy.sparse.csr_matrix((v.weights, v.ids, v.offsets), (len(v), v.size))` is the same matrix.

    Attributes:
      offsets: int64 [N + 1]: vector i has the entries `offsets[i]` to `offsets[i + 1]`.
      ids: their columns, the words, int32 [E], ascending in each vector.
      weights: their values, float32 [E].
      size: V.
    """

    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    size: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, dense: np.ndarray, max_active_dims: int | None = None) -> "SparseVectors":
        """Returns vectors of an array [N, V].

        Args:
          dense: the vectors.
          max_active_dims: the most entries of a vector, those of the largest sizes; None = all.
        """
        kept = dense != 0
        if max_active_dims is not None:
            for row in np.flatnonzero(kept.sum(axis=1) > max_active_dims):
                # Of equal sizes, the words with the lowest ids stay.
                order = np.argsort(-np.abs(dense[row]), kind="stable")
                kept[row, order[max_active_dims:]] = False
        offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
        ids = np.nonzero(kept)[1].astype(np.int32)
        return cls(offsets, ids, dense[kept].astype(np.float32), dense.shape[1])

    @classmethod
    def joined(cls, parts: Sequence["SparseVectors"], size: int) -> "SparseVectors":
        """Returns the vectors of all parts, one part after another."""
        lengths = [np.diff(part.offsets) for part in parts]
        offsets = np.cumsum(np.concatenate([[0], *lengths])).astype(np.int64)
        ids = np.concatenate([np.zeros(0, np.int32), *(part.ids for part in parts)])
        weights = np.concatenate([np.zeros(0, np.float32), *(part.weights for part in parts)])
        return cls(offsets, ids, weights, size)

    def save(self, stream: IO[bytes]) -> None:
        """Writes an .npz file that `load` and `scipy.sparse.load_npz` read."""
        shape = np.array([len(self), self.size])
        np.savez(
            stream, indices=self.ids, indptr=self.offsets, format=np.array(b"csr"), shape=shape,
            data=self.weights,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SparseVectors":
        """Reads a file of `save`.

        Raises:
          UserError: it is not such a file.
        """
        try:
            with paths.local_copy(path) as local, np.load(local, allow_pickle=False) as file:
                names = ("indptr", "indices", "data")
                offsets, ids, weights = (file[name] for name in names)
                rows, size = file["shape"].tolist()
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise UserError(f"{path}: not a file of sparse vectors ({error})") from None
        if len(offsets) != rows + 1 or offsets[-1] != len(ids):
            raise UserError(f"{path}: damaged: its parts have different lengths")
        return cls(offsets.astype(np.int64), ids.astype(np.int32), weights, size)

    def rows(self, numbers: np.ndarray) -> "SparseVectors":
        """Returns the vectors with these numbers, an int array, in this order."""
        lengths = np.diff(self.offsets)[numbers]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        moved = np.repeat(self.offsets[:-1][numbers] - offsets[:-1], lengths)
        places = np.arange(offsets[-1]) + moved
        return SparseVectors(offsets, self.ids[places], self.weights[places], self.size)

    def entries(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids and the weights of a vector."""
        own = slice(self.offsets[number], self.offsets[number + 1])
        return self.ids[own], self.weights[own]

    def dense(self) -> np.ndarray:
        """Returns float32 [N, V]."""
        dense = np.zeros((len(self), self.size), np.float32)
        dense[np.repeat(np.arange(len(self)), np.diff(self.offsets)), self.ids] = self.weights
        return dense

    def words(
        self, pieces: Sequence[str], top_k: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """Returns the words of each vector with their weights, the largest first.

        Args:
          pieces: the words by their ids. An id beyond them is shown as a number.
          top_k: the most words of a vector; None = all.
        """
        found = []
        for number in range(len(self)):
            ids, weights = self.entries(number)
            order = np.argsort(-weights, kind="stable")[:top_k]
            pairs = zip(ids[order].tolist(), weights[order].tolist(), strict=True)
            found.append([(pieces[i] if i < len(pieces) else f"<{i}>", w) for i, w in pairs])
        return found


class InvertedIndex:
    """The documents that have each word: exact products with queries, without the other documents.

    Few words are in many documents, and most of what a query adds up. These have a row with their
    weights in all documents, which a matrix product adds.

    Args:
      documents: the vectors.
    """

    def __init__(self, documents: SparseVectors):
        self.count, self.size = len(documents), documents.size
        order = np.argsort(documents.ids, kind="stable")
        # In the type of indices, which numpy does not convert again for each query.
        numbers = np.repeat(np.arange(self.count, dtype=np.intp), np.diff(documents.offsets))
        self._documents, self._weights = numbers[order], documents.weights[order]
        lengths = np.bincount(documents.ids, minlength=self.size)
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        frequent = np.flatnonzero(lengths > self.count / _FREQUENT)
        self._rows = np.zeros((len(frequent), self.count), np.float32)
        self._row_of = np.full(self.size, NONE)
        self._row_of[frequent] = np.arange(len(frequent))
        for row, word in zip(self._rows, frequent.tolist(), strict=True):
            own = slice(self._starts[word], self._starts[word + 1])
            row[self._documents[own]] = self._weights[own]

    def scores(self, queries: SparseVectors) -> np.ndarray:
        """Returns the products of queries with all documents, float32 [Q, N]."""
        numbers = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
        rows = self._row_of[queries.ids]
        common = rows != NONE
        weights = np.zeros((len(queries), len(self._rows)), np.float32)
        weights[numbers[common], rows[common]] = queries.weights[common]
        scores = weights @ self._rows
        rest = zip(*(x[~common].tolist() for x in (numbers, queries.ids)), strict=True)
        for (number, word), weight in zip(rest, queries.weights[~common], strict=True):
            own = slice(self._starts[word], self._starts[word + 1])
            scores[number][self._documents[own]] += self._weights[own] * weight
        return scores

    def search(self, queries: SparseVectors, top_k: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields for each query its best documents whose score is above 0.

        Of documents with the same score, the first ones come first.

        Args:
          queries: the vectors of the queries.
          top_k: the most documents, K.

        Yields:
          Their numbers, int64 [K], and their scores, float32 [K], the best first.
        """
        step = max(1, SCORES // max(self.count, 1))
        for start in range(0, len(queries), step):
            some = queries.rows(np.arange(start, min(start + step, len(queries))))
            for scores in self.scores(some):
                yield _best(scores, top_k)


def _best(scores: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best documents of the scores of all, [N]: see `InvertedIndex.search`."""
    least = np.float32(0)
    whole = len(scores) // _PART * _PART
    if whole // _PART > top_k:
        # So many parts have a document of at least this score. (Along this axis, numpy is faster.)
        parts = scores[:whole].reshape(_PART, -1).max(axis=0)
        least = np.partition(parts, -top_k)[-top_k]
    numbers = np.flatnonzero(scores >= least if least > 0 else scores > 0)
    found = scores[numbers]
    order = np.argsort(-found, kind="stable")[:top_k]
    return numbers[order], found[order]


class SparseBest:
    """Keeps the best documents of each query, as `Best` does, by the products of sparse vectors.

    A document is found if its score is above 0: it shares a word with the query.
    """

    def __init__(self, queries: SparseVectors, top_k: int):
        """Begins with no documents.

        Args:
          queries: the vectors of the queries.
          top_k: the maximum of K.
        """
        self.queries, self._top_k, self._seen = queries, top_k, 0
        empty = np.zeros(0, np.int64), np.zeros(0, np.float32)
        self._found = [empty] * len(queries)

    @property
    def found(self) -> Found:
        """The kept documents. Where a query finds fewer, the numbers are `NONE`."""
        kept = min(self._top_k, self._seen)
        numbers = np.full((len(self.queries), kept), NONE, np.int64)
        scores = np.full((len(self.queries), kept), -np.inf, np.float32)
        for row, (own, values) in enumerate(self._found):
            numbers[row, : len(own)], scores[row, : len(own)] = own, values
        return Found(numbers, scores)

    def score(self, query: int, documents: SparseVectors, number: int) -> float:
        """See `Best`."""
        mine, theirs = (
            dict(zip(*vectors.entries(i), strict=True))
            for vectors, i in ((self.queries, query), (documents, number))
        )
        return float(sum(mine[word] * theirs[word] for word in mine.keys() & theirs.keys()))

    def add(self, documents: "SparseVectors | InvertedIndex") -> None:
        """Compares the next documents, or those of an index.

        Raises:
          UserError: their vectors have another size.
        """
        if documents.size != self.queries.size:
            raise UserError(
                f"the vectors of queries have {self.queries.size:,} words and those of documents "
                f"{documents.size:,}: take one model for both"
            )
        index = documents if isinstance(documents, InvertedIndex) else InvertedIndex(documents)
        for row, (new, values) in enumerate(index.search(self.queries, self._top_k)):
            old, before = self._found[row]
            numbers = np.concatenate([old, new + self._seen])
            scores = np.concatenate([before, values])
            # A stable order: in a tie, documents that were added earlier come first.
            order = np.argsort(-scores, kind="stable")[: self._top_k]
            self._found[row] = numbers[order], scores[order]
        self._seen += index.count
