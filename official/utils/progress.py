"""Reports of the progress of long work."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

SECONDS_BETWEEN_REPORTS = 5.0
# Between lines of work that cannot say how much is done, or that has lines of its own.
SECONDS_BETWEEN_SIGNS = 10.0
BYTES = "bytes"

Report = Callable[[str], None]


def say(line: str) -> None:
    """Prints a line of progress to stderr, at once."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def signs(name: str, report: Report | None) -> Iterator[None]:
    """Reports at intervals that the work of this block, such as tracing a graph, goes on.

    Args:
      name: what the work is.
      report: is called with lines, in another thread; None = there are none.
    """
    if report is None:
        yield
        return
    ended, started = threading.Event(), time.monotonic()

    def run() -> None:
        while not ended.wait(SECONDS_BETWEEN_SIGNS):
            report(f"{name}: {time.monotonic() - started:.0f} s so far")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Progress:
    """Reports at intervals how much is done, the speed and the time left."""

    def __init__(self, size: int | None, report: Report | None, name: str = "", unit: str = BYTES):
        """Starts the clock.

        Args:
          size: the number of units to do; None = unknown.
          report: is called with lines of progress; None = there are none.
          name: what the work is, for the lines.
          unit: what is counted: `BYTES`, which are shown in MB, or a plural.
        """
        self._size, self._report, self._name, self._unit = size, report, name, unit
        self._started = self._reported = time.monotonic()
        self._done = 0

    def __call__(self, size: int, details: Callable[[float], str] = lambda seconds: "") -> None:
        """Adds units that are done, and reports if the last report was some seconds ago.

        Args:
          size: the number of these units. Units beyond the total do not count.
          details: returns more text for the line; it is called with the seconds since the start.
        """
        self._done += size
        if self._size is not None:
            self._done = min(self._done, self._size)
        now = time.monotonic()
        if self._report is None or now - self._reported < SECONDS_BETWEEN_REPORTS:
            return
        self._reported = now
        seconds = now - self._started
        self._report(f"{self._line(seconds)}{details(seconds)}{self._left(seconds)}")

    def finish(self, details: str = "") -> None:
        """Reports that all work is done; `details` returns more text for the line."""
        if self._report is not None:
            self._report(self._line(time.monotonic() - self._started) + details)

    def _line(self, seconds: float) -> str:
        rate = self._done / max(seconds, 1e-9)
        if self._size is None:
            return f"{self._name}{self._done:,} {self._unit} so far, {_rate(rate)} {self._unit}/s"
        share = f"({100 * self._done / max(self._size, 1):.0f}%)"
        if self._unit == BYTES:
            done, size = self._done / 1e6, self._size / 1e6
            return f"{self._name}{done:.1f} of {size:.1f} MB {share}, {rate / 1e6:.1f} MB/s"
        return (
            f"{self._name}{self._done:,} of {self._size:,} {self._unit} {share}, "
            f"{_rate(rate)} {self._unit}/s"
        )

    def _left(self, seconds: float) -> str:
        if self._size is None:
            return ""
        left = round(seconds * (self._size - self._done) / max(self._done, 1))
        return f", {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
