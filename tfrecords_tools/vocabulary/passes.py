"""Passes over a corpus: a function of each chunk of its text, in several processes.

The chunks and their order depend on the files alone, so a pass gives the same results with any
number of processes.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

from official.utils.progress import Progress
from tfrecords_tools.text.corpus import Corpus, DocumentChunk, Group, Reading, read_chunks
from tfrecords_tools.text.documents import Document, Tally
from tfrecords_tools.writing.shuffle import Runner

Result = TypeVar("Result")
Report = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Passes:
    """Passes over the text of some files.

    Attributes:
      corpus: the files.
      reading: how they are read.
      runner: runs the passes.
      report: is called with lines of progress.
    """

    corpus: Corpus
    reading: Reading
    runner: Runner
    report: Report = lambda line: None

    def apply(
        self, function: Callable[[DocumentChunk], Result], tally: Tally, name: str = "read"
    ) -> Iterator[Result]:
        """Yields `function(chunk)` for each chunk, in order, and reports the progress.

        Args:
          function: a pure function that can be pickled.
          tally: counts that are updated.
          name: what the pass does, for the report.

        Raises:
          UserError: something cannot be read, or a process was killed.
        """
        progress = Progress(self.corpus.bytes, self.report, f"{name} ")
        groups = self.corpus.groups(seed=None)
        apply = functools.partial(_apply, function=function, reading=self.reading)
        for group, (results, counts) in zip(
            groups, self.runner.ordered(apply, groups), strict=True
        ):
            yield from results
            tally.add(counts)
            progress(group.bytes, lambda _: f", {tally.documents:,} documents")
        progress.finish(f", {tally.documents:,} documents")

    def documents(self) -> Iterator[Document]:
        """Yields the documents in this process."""
        for group in self.corpus.groups(seed=None):
            for chunk in read_chunks(group, self.reading, shared=True):
                yield from chunk.documents


def _apply(
    group: Group, function: Callable[[DocumentChunk], Result], reading: Reading
) -> tuple[list[Result], Tally]:
    tally, results = Tally(), []
    for chunk in read_chunks(group, reading, shared=True):
        tally.add(chunk.tally)
        results.append(function(chunk))
    return results, tally
