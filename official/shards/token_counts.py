"""The file with the count of each vocabulary entry in the corpus, beside the shards.

Shapes: V entries of the vocabulary.
"""

import os

import numpy as np

from official.shards.manifest import ADVICE, Manifest
from official.utils import checksums, paths
from official.utils.errors import UserError

FILE = "token_counts.npy"


def write(folder: str | os.PathLike, counts: np.ndarray) -> str:
    """Writes the counts, int64 [V].

    Returns:
      The SHA-256 of the file, for the manifest.
    """
    path = paths.path(folder) / FILE
    with path.open("wb") as stream:
        np.save(stream, counts)
    return checksums.hash_file(path)


def read(folder: str | os.PathLike, manifest: Manifest) -> np.ndarray | None:
    """Reads the counts of a folder; returns None if the manifest names none.

    Raises:
      UserError: the file is missing, has changed, or holds no counts.
    """
    if not manifest.token_counts:
        return None
    path = paths.path(folder) / FILE
    checksums.check(path, manifest.token_counts, ADVICE)
    try:
        with paths.local_copy(path) as file:
            counts = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise UserError(f"{path} holds no counts ({error}): make the shards again") from None
    if not isinstance(counts, np.ndarray) or (counts.dtype, counts.ndim) != (np.int64, 1):
        raise UserError(f"{path} holds no counts: int64 [V] are wanted; make the shards again")
    return np.array(counts)
