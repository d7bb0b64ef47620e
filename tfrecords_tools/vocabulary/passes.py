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
from tfrecords_tools.text.documents import Document, ReadCounts
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
        self,
        function: Callable[[DocumentChunk], Result],
        read_counts: ReadCounts,
        name: str = "read",
    ) -> Iterator[Result]:
        """Yields `function(chunk)` for each chunk, in order, and reports the progress.

        Args:
          function: a pure function that can be pickled.
          read_counts: counts that are updated.
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
            read_counts.add(counts)
            progress(group.bytes, lambda _: f", {read_counts.documents:,} documents")
        progress.finish(f", {read_counts.documents:,} documents")

    def documents(self) -> Iterator[Document]:
        """Yields the documents in this process."""
        for group in self.corpus.groups(seed=None):
            for chunk in read_chunks(group, self.reading, shared=True):
                yield from chunk.documents


def _apply(
    group: Group, function: Callable[[DocumentChunk], Result], reading: Reading
) -> tuple[list[Result], ReadCounts]:
    read_counts, results = ReadCounts(), []
    for chunk in read_chunks(group, reading, shared=True):
        read_counts.add(chunk.read_counts)
        results.append(function(chunk))
    return results, read_counts
