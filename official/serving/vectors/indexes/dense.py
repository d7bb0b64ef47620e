"""Vectors of texts, a row for each document, or of their tokens, in numbers of several types.

A query keeps its float32. Its product with a vector is that with the numbers that the type has
kept, so nothing is lost but by the rounding of the documents.

Shapes: Q queries, B documents of a block, D size of a vector.
"""

import bisect
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import ml_dtypes
import numpy as np
from typing_extensions import override

from official.evaluation.max_sim import Vectors
from official.evaluation.nearest_vectors import Best, Found, best_of
from official.serving.vectors.indexes.base import Block, Index, not_finite
from official.utils import blas
from official.utils.errors import UserError

BLOCK = 2048  # documents that are compared at a time
TOKENS_BLOCK = 512  # those whose tokens have vectors
SAMPLE = 1024  # the first documents of a folder, whose numbers say what those of int8 mean
_STEPS = 127  # of int8, on each side of 0


class Type(NamedTuple):
    """A type of the numbers of stored vectors.

    Attributes:
      encode: returns the numbers of float32 [B, D], given a scale.
      decode: returns float32 [B, D], given the numbers, the scale and D.
    """

    encode: Callable[[np.ndarray, float], np.ndarray]
    decode: Callable[[np.ndarray, float, int], np.ndarray]


def _to_int8(vectors: np.ndarray, scale: float) -> np.ndarray:
    return np.clip(np.rint(vectors / np.float32(scale)), -_STEPS, _STEPS).astype("i1")


def _of_bits(rows: np.ndarray, _: float, size: int) -> np.ndarray:
    # Numbers of one size, of a vector whose length is 1; or zeros, if none is positive.
    signs = np.unpackbits(rows, axis=-1, count=size) * np.float32(2) - 1
    return signs * (rows.any(axis=-1, keepdims=True) * np.float32(size**-0.5))


TYPES = {
    "float32": Type(lambda x, _: x.astype("<f4"), lambda x, *_: x),
    "float16": Type(lambda x, _: x.astype("<f2"), lambda x, *_: x.astype(np.float32)),
    # .npy has no bfloat16: the upper half of a float32 is stored as an integer.
    "bfloat16": Type(
        lambda x, _: x.astype(ml_dtypes.bfloat16).view("<u2"),
        lambda x, *_: (x.astype("<u4") << 16).view("<f4"),
    ),
    "int8": Type(_to_int8, lambda x, scale, _: x * np.float32(scale)),
    # Whether each number is positive, the first one in the highest bit of a byte.
    "bits": Type(lambda x, _: np.packbits(x > 0, axis=-1), _of_bits),
}


def scale_of(sample: np.ndarray) -> float:
    """Returns the scale of int8, for numbers that are at most as large as those of a sample.

    Of zeros, or of no tokens, it is that of numbers up to 1, as vectors of the length 1 have them.
    """
    return (float(np.abs(sample).max(initial=0)) or 1.0) / _STEPS


class Dense(Index):
    """Compares all vectors with all queries.

    Attributes:
      block: the number of documents that are compared at a time.
    """

    arrays: ClassVar[tuple[str, ...]] = ("vectors",)
    block = BLOCK

    @override
    def __init__(self, manifest: Mapping[str, Any]):
        super().__init__(manifest)
        self._type, self._scale = TYPES[manifest["dtype"]], manifest["scale"] or 1.0
        if manifest["dtype"] == "bits" and not manifest["settings"]["normalize"]:
            raise UserError(
                "dtype: bits: they have no lengths: take --normalize or another --dtype"
            )
        self._tables: list[np.ndarray] = []
        self._firsts: list[int] = []  # the number of the first vector of each

    @override
    def pack(self, vectors: Any, ids: Sequence[str]) -> Block:
        """See the base class; `vectors` is float32 [B, D]."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows = self._type.encode(vectors, self._scale)
            kept = self._type.decode(rows, self._scale, self.shape[-1])
        axes = tuple(range(1, vectors.ndim))
        for numbers, advice in ((vectors, "checkpoint or --precision"), (kept, "--dtype")):
            finite = np.isfinite(numbers).all(axis=axes)
            if not finite.all():
                raise not_finite(ids[int(np.argmin(finite))], advice)
        return {"vectors": rows}

    @override
    def add(self, block: Block) -> None:
        self._tables.append(block["vectors"])
        self._firsts.append(self.count)
        self.count += len(block["vectors"])

    @override
    def search(self, queries: Vectors, top_k: int) -> Found:
        """See the base class; `queries` is float32 [Q, D]."""
        blocks = -(-self.count // self.block)
        threads = max(1, min(len(os.sched_getaffinity(0)), blocks))
        cuts = [self.block * (blocks * i // threads) for i in range(threads + 1)]

        def part(ends: tuple[int, int]) -> Found:
            best = Best(queries, top_k, self.manifest["settings"]["similarity"])
            for start in range(*ends, self.block):
                best.add(self.documents(start, start + self.block))
            return Found(best.found.numbers + ends[0], best.found.scores)

        with blas.one_thread(), ThreadPoolExecutor(threads) as pool:
            return best_of(list(pool.map(part, itertools.pairwise(cuts))), top_k)

    @override
    def again(self, queries: Vectors, numbers: np.ndarray, top_k: int) -> Found:
        found = Found(numbers[:, :top_k].copy(), np.zeros(numbers[:, :top_k].shape, np.float32))
        for row, own in enumerate(np.sort(numbers, axis=1)):  # of equal scores, the earlier first
            best = Best(queries[row : row + 1], top_k, self.manifest["settings"]["similarity"])
            pieces = np.searchsorted(self._firsts, own, "right") - 1
            best.add(self._joined([self._rows(i, own[pieces == i]) for i in np.unique(pieces)]))
            chosen = best.found
            found.numbers[row], found.scores[row] = own[chosen.numbers[0]], chosen.scores[0]
        return found

    def _rows(self, piece: int, numbers: np.ndarray) -> Any:
        """Returns the vectors of some documents of a piece, by their numbers among all."""
        return self._decoded(self._tables[piece][numbers - self._firsts[piece]])

    @override
    def documents(self, start: int, stop: int) -> Vectors:
        parts = []
        for piece in range(bisect.bisect_right(self._firsts, start) - 1, len(self._tables)):
            first = self._firsts[piece]
            if first >= stop:
                break
            parts.append(self._part(piece, max(start - first, 0), stop - first))
        return parts[0] if len(parts) == 1 else self._joined(parts)

    def _part(self, piece: int, start: int, stop: int) -> Any:
        """Returns the vectors of documents of a piece."""
        return self._decoded(self._tables[piece][start:stop])

    def _joined(self, parts: Any) -> Any:
        return np.concatenate(parts)

    def _decoded(self, rows: np.ndarray) -> np.ndarray:
        return self._type.decode(rows, self._scale, self.shape[-1])


class Tokens(Dense):
    """Compares the vectors of all tokens (MaxSim): a row for each, document after document."""

    arrays = ("vectors", "lengths")
    block = TOKENS_BLOCK

    @override
    def __init__(self, manifest: Mapping[str, Any]):
        super().__init__(manifest)
        self._ends: list[np.ndarray] = []  # of the documents of each piece, beginning with 0

    @override
    def pack(self, vectors: Sequence[np.ndarray], ids: Sequence[str]) -> Block:
        """See the base class; `vectors` is float32 [tokens, D] for each document."""
        lengths = np.array([len(each) for each in vectors], np.int32)
        of_tokens = [i for i, length in zip(ids, lengths, strict=True) for _ in range(length)]
        rows = np.concatenate([np.zeros((0, *self.shape), np.float32), *vectors])
        return {**super().pack(rows, of_tokens), "lengths": lengths}

    @override
    def add(self, block: Block) -> None:
        self._tables.append(block["vectors"])
        self._firsts.append(self.count)
        self._ends.append(np.cumsum([0, *block["lengths"]]))
        self.count += len(block["lengths"])

    @override
    def _part(self, piece: int, start: int, stop: int) -> list[np.ndarray]:
        ends = self._ends[piece][start : stop + 1]
        rows = self._decoded(self._tables[piece][ends[0] : ends[-1]])
        return np.split(rows, ends[1:-1] - ends[0])

    @override
    def _rows(self, piece: int, numbers: np.ndarray) -> list[np.ndarray]:
        places = (numbers - self._firsts[piece]).tolist()
        return [self._part(piece, place, place + 1)[0] for place in places]

    @override
    def _joined(self, parts: list[list[np.ndarray]]) -> list[np.ndarray]:
        return list(itertools.chain.from_iterable(parts))
