"""Passes over a corpus: a function of each chunk of its text, in several processes.

The chunks and their order depend on the files alone, so a pass gives the same results with any
number of processes.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tfrecords_tools.text import documents
from tfrecords_tools.text.documents import Document, Tally
from tfrecords_tools.writing import parallel

CHARACTERS_AT_ONCE = 1 << 20
SECONDS_BETWEEN_REPORTS = 5.0

Result = TypeVar("Result")
Report = Callable[[str], None]


class Chunk(NamedTuple):
    """Consecutive documents of a corpus.

    Attributes:
      number: the number of the chunk in the corpus, from 0.
      documents: the documents.
    """

    number: int
    documents: list[Document]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The text of some files.

    Attributes:
      paths: the files, as `documents.expand` returns them.
      on_bad_utf8: "error" or "skip", as in `documents.read`.
      on_long_line: "error" or "skip", as in `documents.read`.
      workers: the number of processes; 1 = this one, without others.
      report: is called with lines of progress.
    """

    paths: Sequence[Path]
    on_bad_utf8: str = "error"
    on_long_line: str = "error"
    workers: int = 1
    report: Report = lambda line: None

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(path.stat().st_size for path in self.paths)

    def read(self, tally: Tally | None = None) -> Iterator[Document]:
        """Yields the documents; see `documents.read`."""
        return documents.read(self.paths, self.on_bad_utf8, self.on_long_line, tally)

    def apply(
        self,
        function: Callable[[Chunk], Result],
        setup: Callable[[], None],
        tally: Tally,
        name: str = "read",
    ) -> Iterator[Result]:
        """Yields `function(chunk)` for each chunk, in order, and reports the progress.

        Args:
          function: a pure function that can be pickled.
          setup: is called once in each process that is started; see `parallel.ordered`.
          tally: counts that are updated.
          name: what the pass does, for the report.

        Raises:
          UserError: something cannot be read, or a process was killed.
        """
        progress = _Progress(name, tally, self.bytes, self.report)
        chunks = _chunks(self.read(tally))
        if self.workers > 1:
            results = parallel.ordered(function, chunks, self.workers, setup)
        else:
            results = map(function, chunks)
        for result in results:
            yield result
            progress()
        progress.finish()


def _chunks(read: Iterator[Document]) -> Iterator[Chunk]:
    number, size, waiting = 0, 0, []
    for document in read:
        waiting.append(document)
        size += document.characters
        if size >= CHARACTERS_AT_ONCE:
            yield Chunk(number, waiting)
            number, size, waiting = number + 1, 0, []
    if waiting:
        yield Chunk(number, waiting)


class _Progress:
    """Reports at intervals how much of the input is read, the speed and the time left."""

    def __init__(self, name: str, tally: Tally, total: int, report: Report):
        self._name, self._tally, self._total, self._report = name, tally, total, report
        self._started = self._reported = time.monotonic()

    def __call__(self) -> None:
        """Reports if the last report was at least `SECONDS_BETWEEN_REPORTS` ago."""
        now = time.monotonic()
        if now - self._reported < SECONDS_BETWEEN_REPORTS:
            return
        self._reported = now
        done = max(self._tally.bytes_read, 1)
        left = round((now - self._started) * (self._total - done) / done)
        self._report(f"{self._line()}, {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left")

    def finish(self) -> None:
        """Reports all of it."""
        self._report(self._line())

    def _line(self) -> str:
        seconds, done = time.monotonic() - self._started, self._tally.bytes_read
        return (
            f"{self._name} {done / 1e6:.1f} of {self._total / 1e6:.1f} MB "
            f"({100 * done / self._total:.0f}%), {done / seconds / 1e6:.1f} MB/s, "
            f"{self._tally.documents:,} documents"
        )
