"""Reports of the progress of long work."""

import time
from collections.abc import Callable

SECONDS_BETWEEN_REPORTS = 5.0


class Progress:
    """Reports at intervals how much is done, the speed and the time left."""

    def __init__(self, size: int, report: Callable[[str], None], name: str = ""):
        """Starts the clock.

        Args:
          size: the number of bytes to read.
          report: is called with lines of progress.
          name: what the work is, for the lines.
        """
        self._size, self._report, self._name = size, report, name
        self._started = self._reported = time.monotonic()
        self._done = 0

    def __call__(self, size: int, details: Callable[[float], str] = lambda seconds: "") -> None:
        """Adds bytes that are done, and reports if the last report was some seconds ago.

        Args:
          size: the number of these bytes.
          details: returns more for the line; it is called with the seconds since the start.
        """
        self._done += size
        now = time.monotonic()
        if now - self._reported < SECONDS_BETWEEN_REPORTS:
            return
        self._reported = now
        seconds = now - self._started
        left = round(seconds * (self._size - self._done) / max(self._done, 1))
        self._report(
            f"{self._line(seconds)}{details(seconds)}, "
            f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
        )

    def finish(self, details: str = "") -> None:
        """Reports all of it, with more for the line."""
        self._report(self._line(time.monotonic() - self._started) + details)

    def _line(self, seconds: float) -> str:
        return (
            f"{self._name}{self._done / 1e6:.1f} of {self._size / 1e6:.1f} MB "
            f"({100 * self._done / self._size:.0f}%), {self._done / seconds / 1e6:.1f} MB/s"
        )
