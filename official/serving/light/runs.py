"""Runs a model of LiteRT in several threads.

Cores compute batches of their own faster than they share one, so each batch has one thread.
"""

import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import TypeVar

import numpy as np

# A batch of more tokens leaves the caches of a core, and takes longer for each of them.
POSITIONS = 512

Item = TypeVar("Item")
Result = TypeVar("Result")
Run = Callable[..., dict[str, np.ndarray]]


class Runs:
    """Functions of which each computes a batch, and each thread has its own.

    Args:
      make: makes such a function, which one thread calls at a time.
    """

    def __init__(self, make: Callable[[], Run]):
        self._make = make
        self._idle: queue.SimpleQueue[Run] = queue.SimpleQueue()

    def __call__(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Computes a batch. Several threads may call it at a time."""
        try:
            run = self._idle.get_nowait()
        except queue.Empty:
            run = self._make()
        outputs = run(**inputs)
        self._idle.put(run)
        return outputs


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], count: int
) -> Iterator[Result]:
    """Yields `function(item)` for each item, in order, from a number of threads."""
    with futures.ThreadPoolExecutor(count) as pool:
        yield from pool.map(function, items)
