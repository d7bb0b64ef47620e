"""The number of threads with which NumPy multiplies matrices."""

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator

import numpy as np

from official.utils import paths

_lock = threading.Lock()
_blocks: list[int] = []  # of `one_thread` that have not ended; the first has the number before it


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Returns the OpenBLAS that NumPy's packages contain; None = it has another library."""
    folder = paths.path(np.__file__).parent.parent / "numpy.libs"
    for file in folder.glob("libscipy_openblas64_*"):
        library = ctypes.CDLL(str(file))
        if hasattr(library, "scipy_openblas_set_num_threads64_"):
            return library
    return None


def num_threads() -> int:
    """Returns the number of threads; 1 if it is not known."""
    library = _library()
    return 1 if library is None else library.scipy_openblas_get_num_threads64_()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Products have one thread during the block: for threads of which each computes its own.

    The threads of a product wait for each other, and take twice the time of a busy machine. Their
    number also changes the last digits. Blocks of several threads may overlap.
    """
    library = _library()
    if library is None:
        yield
        return
    with _lock:
        _blocks.append(num_threads())
        library.scipy_openblas_set_num_threads64_(1)
    try:
        yield
    finally:
        with _lock:
            before = _blocks.pop()
            if not _blocks:
                library.scipy_openblas_set_num_threads64_(before)
