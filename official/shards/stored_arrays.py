"""Arrays in files beside the shards, which are compared with their checksums when they are read.

`token_counts.npy` has the count of each vocabulary entry in the corpus.

Shapes: V entries of the vocabulary.
"""

import os

import numpy as np

from official.shards.manifest import ADVICE, Manifest
from official.utils import checksums, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

TOKEN_COUNTS = "token_counts.npy"


def write_token_counts(folder: str | os.PathLike, counts: np.ndarray) -> str:
    """Writes the counts, int64 [V].

    Returns:
      The SHA-256 of the file, for the manifest.
    """
    path = paths.path(folder) / TOKEN_COUNTS
    with path.open("wb") as stream:
        np.save(stream, counts)
    return checksums.hash_file(path)


def read_token_counts(folder: str | os.PathLike, manifest: Manifest) -> np.ndarray | None:
    """Reads the counts of a folder; returns None if the manifest names none.

    Raises:
      UserError: the file is missing, has changed, or holds no counts.
    """
    if not manifest.token_counts:
        return None
    path = paths.path(folder) / TOKEN_COUNTS
    counts = load(path, manifest.token_counts, ADVICE)
    if not isinstance(counts, np.ndarray) or (counts.dtype, counts.ndim) != (np.int64, 1):
        raise UserError(f"{path} does not hold counts, int64 [V]: make the shards again")
    return np.array(counts)


def load(path: AnyPath, sha256: str, advice: str) -> np.ndarray:
    """Returns the array of a file as a memory map, which NumPy refuses if the file is too short.

    Args:
      path: the file.
      sha256: its checksum when it was written.
      advice: what the user can do, for messages.

    Raises:
      UserError: the file is missing, has changed, or holds no array.
    """
    paths.check_file(path, None, advice)
    checksums.check(path, sha256, advice)
    with paths.local_copy(path) as file:
        try:
            return np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise UserError(f"{path} is not a file of an array ({error}): {advice}") from None
