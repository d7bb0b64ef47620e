"""Sparse vectors: the words of each document and their weights, document after document."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from official.evaluation.nearest_vectors import Found
from official.evaluation.sparse_vectors import InvertedIndex, SparseBest, SparseVectors
from official.serving.vectors.indexes.base import Block, Index, not_finite
from official.utils.errors import UserError


class Sparse(Index):
    """Compares the documents that share a word with a query.

    The first search makes an inverted index of each piece, which stays in memory.
    """

    arrays = ("weights", "words", "lengths")

    @override
    def __init__(self, manifest: Mapping[str, Any]):
        super().__init__(manifest)
        if manifest["dtype"] != "float32":
            raise UserError(f"dtype: {manifest['dtype']}: sparse vectors have float32: remove it")
        self._parts: list[SparseVectors] = []
        self._indexes: list[InvertedIndex] = []

    @override
    def pack(self, vectors: SparseVectors, ids: Sequence[str]) -> Block:
        finite = np.isfinite(vectors.weights)
        if not finite.all():
            place = int(np.argmin(finite))
            number = int(np.searchsorted(vectors.offsets, place, "right")) - 1
            raise not_finite(ids[number], "checkpoint or --precision")
        lengths = np.diff(vectors.offsets).astype("<i4")
        words = vectors.ids.astype("<i4")
        return {"weights": vectors.weights.astype("<f4"), "words": words, "lengths": lengths}

    @override
    def add(self, block: Block) -> None:
        offsets = np.cumsum([0, *block["lengths"]])
        size = int(self.shape[0])
        self._parts.append(SparseVectors(offsets, block["words"], block["weights"], size))
        self.count += len(block["lengths"])

    @override
    def search(self, queries: SparseVectors, top_k: int) -> Found:
        best = SparseBest(queries, top_k)
        self._indexes += map(InvertedIndex, self._parts[len(self._indexes) :])
        for index in self._indexes:
            best.add(index)
        return best.found
