"""Passes over a corpus in several processes, and counts of its words in bounded memory.

A pass calls a function for each chunk of the text. The chunks and their order depend only on the
files, so a pass gives the same results with any number of processes.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

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
      reading: how the files are read.
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
          UserError: a file cannot be read, or a process was killed.
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


MAX_WORDS = 1_000_000
CHARACTERS_AT_ONCE = 1 << 20


class Counts:
    """Counts of words, in bounded memory.

    Attributes:
      counts: {word: count}. If there are more than twice `max_words` distinct words, only the
        `max_words` most frequent are kept, so the counts depend on the order of the text.
      total: the number of words so far.
    """

    def __init__(self, max_words: int):
        """Starts without words."""
        self.counts: collections.Counter = collections.Counter()
        self.total = 0
        self._max_words = max_words

    def merge(self, counts: Mapping[Any, int]) -> None:
        """Adds the counts of words of another text."""
        self.counts.update(counts)
        self.total += sum(counts.values())
        if len(self.counts) > 2 * self._max_words:
            self.counts = collections.Counter(dict(most_common(self.counts, self._max_words)))


class WordCounts(Counts):
    """Counts the words of texts."""

    def __init__(
        self,
        split: Callable[[Sequence[str]], Iterable[Hashable]],
        max_words: int = MAX_WORDS,
        take: Callable[[Any], Any] = lambda word: word,
    ):
        """Creates a counter.

        Args:
          split: returns the words of texts.
          max_words: the largest number of distinct words that `words` returns.
          take: returns the form of a word that `words` returns, or None to leave the word out.
        """
        super().__init__(max_words)
        self._split, self._take = split, take
        self._waiting: list[str] = []
        self._size = 0

    def add(self, texts: Iterable[str]) -> None:
        """Counts the words of `texts`."""
        for text in texts:
            self._waiting.append(text)
            self._size += len(text)
        if self._size >= CHARACTERS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Counts the texts that are waiting for a full batch."""
        self.merge(collections.Counter(self._split(self._waiting)))
        self._waiting, self._size = [], 0

    def state(self) -> collections.Counter:
        """Returns the counts, for the `merge` of another counter."""
        self.flush()
        return self.counts

    def words(self) -> dict[Any, int]:
        """Returns the words to learn from, the most frequent first."""
        self.flush()
        common = most_common(self.counts, self._max_words)
        taken = ((self._take(word), count) for word, count in common)
        return {word: count for word, count in taken if word is not None}


def most_common(counts: Mapping, number: int) -> list[tuple]:
    """Returns the most frequent items with their counts; ties are in the order of the items."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:number]
