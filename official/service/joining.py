"""Joins the requests of many clients into batches, which one thread computes.

While a batch is computed, requests wait. The next batch has the one that has waited longest and
those whose items are most like its own in length, since padding takes as long as text. A request
that waits alone has a few milliseconds for others to come. Requests that do not fit into a batch
get one batch each in turn, so that a large request does not keep others waiting.
"""

import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

Work = Callable[[Sequence[Any]], Sequence[Any]]


class Busy(Exception):
    """Too much waits already, or the server ends."""


@dataclasses.dataclass(eq=False)
class _Request:
    """A request that waits.

    Attributes:
      key: requests with equal keys may share a batch.
      work: computes the results of items.
      items: the items.
      sizes: the number of tokens of each, about.
      arrived: when it came, of `time.monotonic`.
      future: gets the results.
      taken: how many items are in a batch, or were.
      results: those of the first items.
    """

    key: Hashable
    work: Work
    items: Sequence[Any]
    sizes: Sequence[int]
    arrived: float
    future: Future
    taken: int = 0
    results: list = dataclasses.field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.items) - self.taken

    @property
    def size(self) -> float:
        """The mean size of its items."""
        return sum(self.sizes) / len(self.sizes)


@dataclasses.dataclass(frozen=True)
class _Share:
    """The items of a request that are in a batch: `items[start:end]`."""

    request: _Request
    start: int
    end: int

    @property
    def items(self) -> Sequence[Any]:
        return self.request.items[self.start : self.end]


class Joiner:
    """Joins requests, and computes them in a thread of its own.

    Args:
      batch_tokens: a batch ends with the item that brings it to so many tokens.
      wait: how many seconds a request that waits alone waits for others.
      most_waiting: the largest number of items that wait. A request is taken whatever its size if
        nothing waits.
      observe: is called with the numbers of items and of requests of each batch.
    """

    def __init__(
        self,
        batch_tokens: int,
        wait: float,
        most_waiting: int,
        observe: Callable[[int, int], None] = lambda items, requests: None,
    ):
        self._batch_tokens, self._wait, self._most = batch_tokens, wait, most_waiting
        self._observe = observe
        self._requests: collections.deque[_Request] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of items that wait."""
        with self._changed:
            return self._count()

    def submit(
        self, key: Hashable, work: Work, items: Sequence[Any], sizes: Sequence[int]
    ) -> Future:
        """Lets a request wait for its batches.

        Args:
          key: requests with equal keys may share a batch. Their `work` does the same.
          work: computes the results of any number of items, in their order.
          items: the items.
          sizes: the number of tokens of each, about.

        Returns:
          What will have the list of results, or the exception of `work`.

        Raises:
          Busy: too many items wait, or `close` was called.
        """
        future: Future = Future()
        with self._changed:
            count = self._count()
            if self._closed:
                raise Busy("the server ends")
            if count and count + len(items) > self._most:
                raise Busy(f"{count:,} texts wait already")
            if items:
                request = _Request(key, work, items, sizes, time.monotonic(), future)
                self._requests.append(request)
                self._changed.notify_all()
        if not items:
            future.set_result([])
        return future

    def close(self) -> None:
        """Takes no more requests, and returns when those that wait are computed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _count(self) -> int:
        return sum(request.left for request in self._requests)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if batch:
                self._observe(sum(share.end - share.start for share in batch), len(batch))
                self._compute(batch)

    def _next(self) -> list[_Share] | None:
        """Waits for a batch and returns it; None = there are no more."""
        with self._changed:
            while not self._requests and not self._closed:
                self._changed.wait()
            if not self._requests:
                return None
            first = self._requests[0]
            until = first.arrived + self._wait
            while not self._closed and not self._full(first.key):
                if (seconds := until - time.monotonic()) <= 0:
                    break
                self._changed.wait(seconds)
            return self._take(first.key)

    def _full(self, key: Hashable) -> bool:
        """Whether the items that wait are enough for a batch."""
        tokens = 0
        for request in self._requests:
            if request.key == key:
                tokens += sum(request.sizes[request.taken :])
                if tokens >= self._batch_tokens:
                    return True
        return False

    def _take(self, key: Hashable) -> list[_Share]:
        """Takes items of the requests with a key: of the oldest one, and of those most like it."""
        size = self._requests[0].size
        alike = [request for request in self._requests if request.key == key]
        alike.sort(key=lambda request: abs(request.size - size))
        batch, tokens, gone = [], 0, set()
        for request in alike:
            if tokens >= self._batch_tokens:
                break
            gone.add(request)
            start = request.taken
            if not start and not request.future.set_running_or_notify_cancel():
                continue  # its client has left
            while request.left and tokens < self._batch_tokens:
                tokens += request.sizes[request.taken]
                request.taken += 1
            batch.append(_Share(request, start, request.taken))
        self._requests = collections.deque(r for r in self._requests if r not in gone)
        # What is left of a request waits behind the others.
        self._requests.extend(share.request for share in batch if share.request.left)
        return batch

    def _compute(self, batch: Sequence[_Share]) -> None:
        """Computes a batch. A request with an error does not touch those that share its batch."""
        try:
            results = self._results(batch)
        except Exception as error:
            if len(batch) == 1:
                self._fail(batch[0].request, error)
            else:
                for share in batch:
                    self._compute([share])
            return
        for share in batch:
            count = share.end - share.start
            request, own, results = share.request, results[:count], results[count:]
            request.results += own
            if len(request.results) == len(request.items):
                request.future.set_result(request.results)

    def _results(self, batch: Sequence[_Share]) -> list:
        items = [item for share in batch for item in share.items]
        results = list(batch[0].request.work(items))
        if len(results) != len(items):
            raise RuntimeError(f"{len(items)} items have {len(results)} results")
        return results

    def _fail(self, request: _Request, error: Exception) -> None:
        """Answers a request with an error; what is left of it is not computed."""
        with self._changed:
            if request in self._requests:
                self._requests.remove(request)
        request.future.set_exception(error)
