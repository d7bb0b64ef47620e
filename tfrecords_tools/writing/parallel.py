"""A pure function over a stream, in several processes; results come in the stream's order."""

import collections
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


def start(*modules: str) -> None:
    """Starts the process that workers are forked from, which imports `modules`, if it is not there.

    `ordered` does so itself; done before, both processes can load at the same time.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["tfrecords_tools.writing.forkserver", *modules]
    )
    forkserver.ensure_running()


def ordered(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    setup: Callable[[], None],
) -> Iterator[Result]:
    """Yields `function(item)` for each of `items`, in order, computed by `workers` processes.

    At most twice as many items as workers are under way, so that neither items nor results pile up.

    Args:
      function: a function that can be pickled; it runs in the workers only.
      items: read as needed.
      workers: how many processes.
      setup: called once in each worker. Its module, with all that it imports, is imported once, by
        a process that runs nothing and that the workers are forked from: they start at once and
        share its memory.

    Raises:
      UserError: a worker died.
    """
    start(setup.__module__)
    context = multiprocessing.get_context("forkserver")
    pool = futures.ProcessPoolExecutor(
        workers, mp_context=context, initializer=_set_up, initargs=(setup,)
    )
    under_way: collections.deque[futures.Future] = collections.deque()
    try:
        for item in items:
            under_way.append(pool.submit(function, item))
            if len(under_way) >= 2 * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was killed, most likely because memory ran out: try again with fewer "
            "--workers or on a machine with more memory"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _set_up(setup: Callable[[], None]) -> None:
    """Sets up a worker: it leaves Ctrl-C to the main process, and ends when that one is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    setup()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
