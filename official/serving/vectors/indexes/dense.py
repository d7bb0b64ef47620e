"""Dense vectors: a row for each document, of numbers of several types.

A query keeps its float32. Its product with a vector is that with the numbers that the type has
kept, so nothing is lost but by the rounding of the documents.

Shapes: Q queries, B documents of a block, D size of a vector.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from typing_extensions import override

from official.evaluation.nearest_vectors import Best, Found
from official.serving.vectors.indexes.base import Block, Index
from official.utils.errors import UserError

BLOCK = 2048  # documents that are compared at a time
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
    # Numbers of one size, of a vector whose length is 1.
    signs = np.unpackbits(rows, axis=-1, count=size) * np.float32(2) - 1
    return signs * np.float32(size**-0.5)


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
    """Returns the scale of int8, for numbers that are at most as large as those of a sample."""
    return float(np.abs(sample).max()) / _STEPS or 1.0


class Dense(Index):
    """Compares all vectors with all queries."""

    arrays = ("vectors",)

    @override
    def __init__(self, manifest: Mapping[str, Any]):
        super().__init__(manifest)
        self._type, self._scale = TYPES[manifest["dtype"]], manifest["scale"] or 1.0
        if manifest["dtype"] == "bits" and not manifest["settings"]["normalize"]:
            raise UserError(
                "dtype: bits: they have no lengths: take --normalize or another --dtype"
            )
        self._tables: list[np.ndarray] = []

    @override
    def pack(self, vectors: np.ndarray, ids: Sequence[str]) -> Block:
        """See the base class; `vectors` is float32 [B, D]."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows = self._type.encode(vectors, self._scale)
            kept = self._type.decode(rows, self._scale, self.shape[-1])
        axes = tuple(range(1, vectors.ndim))
        for numbers, advice in ((vectors, "checkpoint or --precision"), (kept, "--dtype")):
            finite = np.isfinite(numbers).all(axis=axes)
            if not finite.all():
                raise UserError(
                    f"the vector of the text {ids[int(np.argmin(finite))]!r} has numbers that are "
                    f"infinite or no numbers: take another {advice}"
                )
        return {"vectors": rows}

    @override
    def add(self, block: Block) -> None:
        self._tables.append(block["vectors"])
        self.count += len(block["vectors"])

    @override
    def search(self, queries: np.ndarray, top_k: int) -> Found:
        """See the base class; `queries` is float32 [Q, D]."""
        best = Best(queries, top_k, self.manifest["settings"]["similarity"])
        for block in self._blocks():
            best.add(self._type.decode(block, self._scale, self.shape[-1]))
        return best.found

    def _blocks(self) -> Iterator[np.ndarray]:
        """Yields the rows of vectors, [B, ...], in blocks that do not depend on the pieces."""
        parts: list[np.ndarray] = []
        room = BLOCK
        for table in self._tables:
            start = 0
            while start < len(table):
                parts.append(table[start : start + room])
                start += room
                room -= len(parts[-1])
                if not room:
                    yield _joined(parts)
                    parts, room = [], BLOCK
        if parts:
            yield _joined(parts)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)
