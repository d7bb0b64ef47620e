"""Applies a function to a stream of items in several processes, in order."""

import collections
import ctypes
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from typing import TypeVar

from official.utils.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
# Parameters of glibc's `mallopt`.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_ARRAY_BYTES = 1 << 30  # more than any array of a batch


class WorkerKilled(UserError):
    """A worker process was killed."""


def start(*modules: str) -> None:
    """Starts the process that workers are forked from, unless it runs already.

    The process imports `modules`. `Pool` calls this function too; an earlier call lets both
    processes import at the same time.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["official.utils.forkserver", *modules]
    )
    forkserver.ensure_running()


class Pool:
    """Some worker processes, which end with the `with` block."""

    def __init__(self, workers: int, setup: Callable[[], None]):
        """Starts the processes.

        Args:
          workers: the number of processes.
          setup: is called once in each worker. Its module is imported once, by the process that the
            workers are forked from, so workers start fast and share its memory. What workers need
            is therefore imported at the top of that module.
        """
        start(setup.__module__)
        self._workers = workers
        self._processes = futures.ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("forkserver"),
            initializer=_set_up,
            initargs=(setup,),
        )
        # An executor starts a process when a call is submitted and no process is idle. These calls
        # start all processes, which set up TensorFlow while the main process prepares the work.
        for _ in range(workers):
            self._processes.submit(_nothing)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        self._processes.shutdown(cancel_futures=True)

    def ordered(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yields `function(item)` for each item, in order.

        At most twice as many items as workers are in progress, which bounds the memory.

        Args:
          function: a pure function that can be pickled; it runs in the workers only.
          items: the items, which are read as needed.

        Raises:
          WorkerKilled: a worker was killed.
        """
        pending: collections.deque[futures.Future] = collections.deque()
        try:
            for item in items:
                pending.append(self._processes.submit(function, item))
                if len(pending) >= 2 * self._workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise WorkerKilled(
                "a worker process was killed, most likely because memory ran out: try again with "
                "fewer --workers or on a machine with more memory"
            ) from error
        finally:
            for future in pending:
                future.cancel()


def _nothing() -> None:
    pass


def _set_up(setup: Callable[[], None]) -> None:
    """Sets up a worker, which ignores Ctrl-C and ends when the main process ends."""
    gc.freeze()  # Objects that were imported before the fork are never collected.
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    setup()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # This process is a worker.
    parent.join()
    os._exit(1)


def use_one_thread() -> None:
    """Starts TensorFlow with one thread and no accelerator, in a process that reuses memory."""
    import tensorflow as tf

    _reuse_memory()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
    tf.constant(0)  # The first operation of a process initializes TensorFlow's runtime.


def _reuse_memory() -> None:
    """Keeps the memory of arrays that are deleted, for the arrays of the next batch.

    By default glibc maps the memory of each large array and unmaps it afterwards, and the system
    clears every page of it again. Another C library may have no `mallopt`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _ARRAY_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _ARRAY_BYTES)
