"""What a kind of stored vectors does: it packs them into arrays, and searches these.

Shapes: Q queries, N documents, D size of a vector, K documents found for a query.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from official.evaluation.nearest_vectors import Found
from official.utils.errors import UserError

Block = Mapping[str, np.ndarray]  # the arrays of some documents, one after another


class Index(abc.ABC):
    """Documents of one kind, which are compared with queries.

    The arrays of documents that follow each other can be joined along their first axis. Where a
    document has several rows, an array `lengths` has their number, and not where they begin.

    Attributes:
      arrays: the names of the arrays, which are those of the files of a piece: `vectors` is in
        `vectors-00000.npy`. The first one is written last.
      manifest: the entries of `_vectors.json`, such as `settings`, those of the model.
      shape: that of a vector, (D,).
      count: N.
    """

    arrays: ClassVar[tuple[str, ...]]

    def __init__(self, manifest: Mapping[str, Any]):
        """Begins with no documents.

        Args:
          manifest: see the class.
        """
        self.manifest, self.shape, self.count = manifest, tuple(manifest["shape"]), 0

    @abc.abstractmethod
    def pack(self, vectors: Any, ids: Sequence[str]) -> Block:
        """Returns the arrays of the next documents.

        Args:
          vectors: what the encoder of a model gives for them.
          ids: their ids, for messages.

        Raises:
          UserError: a document has no such vector.
        """

    @abc.abstractmethod
    def add(self, block: Block) -> None:
        """Adds documents.

        Args:
          block: their arrays, which may be mapped files. They are kept, and never changed.
        """

    @abc.abstractmethod
    def search(self, queries: Any, top_k: int) -> Found:
        """Finds the best documents, exactly, in memory that does not grow with N.

        Of equal scores, that of the earlier document comes first.

        Args:
          queries: what the encoder of a model gives for them.
          top_k: the maximum of K.
        """

    def documents(self, start: int, stop: int) -> Any:
        """Returns the vectors of documents in float32, as `pack` takes them."""
        raise NotImplementedError

    def again(self, queries: Any, numbers: np.ndarray, top_k: int) -> Found:
        """Finds the best of some documents of each query.

        Args:
          queries: as for `search`.
          numbers: those of the documents, int64 [Q, any number].
          top_k: as for `search`.

        Raises:
          UserError: vectors of this kind are not compared twice.
        """
        raise UserError("rescore: is for vectors in smaller numbers, which these have not")


def not_finite(identity: str, advice: str) -> UserError:
    """Returns the error of a document whose vector has numbers that are not finite.

    Args:
      identity: the id of the document.
      advice: what to take another one of.
    """
    return UserError(
        f"the vector of the text {identity!r} has numbers that are infinite or no numbers: take "
        f"another {advice}"
    )
