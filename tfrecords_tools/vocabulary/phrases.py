"""Finds phrases: words that occur together more often than by chance.

Runs of words are counted by their length, from 2 words on, in a pass over the text for each length.
A run is a candidate if it is frequent without its first word and without its last word. Its key is
i · V + j: i is the index of the run without its last word among the keys of the frequent runs that
are one word shorter, V the number of words, and j the index of its last word.

Shapes: K words of a chunk, G different runs.
"""

import collections
import functools
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official.shards.text_filters import TextFilters
from official.utils import atomic, input_files, paths, unicode_tables, unicode_words
from official.utils.character_sets import inside_python_class
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.text import documents, filters
from tfrecords_tools.text.corpus import Corpus, DocumentChunk, Reading
from tfrecords_tools.vocabulary.word_counts import Counts, Passes, Report
from tfrecords_tools.writing.execution import Execution

_ASCII_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]", re.ASCII)
MAX_WORDS = 5_000_000  # distinct words that are kept when twice as many are counted
MAX_RUNS = 20_000_000  # distinct runs that are counted at the same time
_SUMMED_AT_ONCE = 1 << 22
_BREAK = -1  # Stands for a rare word, and for the end of a line, which no run spans.
_WORDS = "words.txt"

# A run of words, as indices of words.
Run = tuple[int, ...]


def build(
    inputs: Sequence[str] | str,
    output: str | os.PathLike,
    min_count: int = 20,
    threshold: float = 0.4,
    max_words: int = 4,
    lower_case: bool = False,
    on_bad_utf8: str = "error",
    on_long_line: str = "error",
    execution: Execution = Execution(),  # noqa: B008
    report: Report = lambda line: None,
    text_filters: TextFilters | None = None,
) -> list[str]:
    """Reads text and writes a lexicon.

    Args:
      inputs: files or globs, as `corpus.expand` takes them.
      output: the file to write.
      min_count: the least number of occurrences of a phrase.
      threshold: the least normalized pointwise mutual information of a phrase.
      max_words: the largest number of words of a phrase.
      lower_case: whether text is lower-cased, as uncased tokenizers do.
      on_bad_utf8: "error" or "skip" lines that are not UTF-8.
      on_long_line: "error" or "skip" lines that are too long.
      execution: the processes that read the text; they do not affect the phrases.
      report: is called with lines of progress.
      text_filters: the rules by which documents are left out; None = no rules.

    Returns:
      The phrases, in the order of the file.

    Raises:
      UserError: the input or the options cannot be used, or the text has no phrase.
    """
    _check(min_count, threshold, max_words)
    started = time.monotonic()
    corpus = Corpus.find(inputs)
    reading = Reading.of(corpus, on_bad_utf8, on_long_line)
    occurrences = Counts(MAX_WORDS)
    read_counts = documents.ReadCounts()
    with (
        input_files.explained(corpus.check),
        execution.start_anew(paths.path(output), start_worker) as (runner, scratch),
    ):
        reading = filters.passed(
            text_filters, corpus, reading, runner.ordered, scratch / "filters", report
        )
        passes = Passes(corpus, reading, runner, report)
        count = functools.partial(count_words, lower_case=lower_case)
        for chunk in passes.apply(count, read_counts, f"pass 1 of {max_words}:"):
            occurrences.merge(chunk)
        words = sorted(word for word, n in occurrences.counts.items() if n >= min_count)
        report(
            f"{occurrences.total:,} words, {len(occurrences.counts):,} distinct, {len(words):,} "
            "of them frequent"
        )
        counts: dict[Run, int] = {(i,): occurrences.counts[word] for i, word in enumerate(words)}
        counts |= _frequent_runs(passes, scratch, words, min_count, max_words, lower_case)
    phrases = _phrases(words, counts, occurrences.total, threshold)
    if not phrases:
        raise UserError(
            f"no phrase of {min_count} occurrences and a mutual information of {threshold}: lower "
            "--min_count or --threshold, or give more text"
        )
    corpus.check()
    with atomic.file(output) as stream:
        stream.write("\n".join(phrases) + "\n")
    for reason, skipped in sorted(read_counts.skipped.items()):
        report(f"skipped: {skipped:,} {reason}")
    shown = ", ".join(phrases[:: -(-len(phrases) // 8)])
    report(f"{len(phrases):,} phrases in {output}, such as: {shown}")
    report(f"wrote {output} in {time.monotonic() - started:.1f} s")
    return phrases


def _check(min_count: int, threshold: float, max_words: int) -> None:
    if min_count < 2:
        raise UserError(f"--min_count={min_count} is too small: the minimum is 2")
    if not -1 <= threshold <= 1:
        raise UserError(f"--threshold={threshold} is not between -1 and 1")
    if max_words < 2:
        raise UserError(f"--max_words={max_words} is too small: the minimum is 2")


def start_worker() -> None:
    """Does nothing: workers need no setup."""


def count_words(chunk: DocumentChunk, lower_case: bool) -> collections.Counter[str]:
    """Returns the count of each word of a chunk that begins with a letter or a digit."""
    occurrences: collections.Counter[str] = collections.Counter()
    for line in _lines(chunk, lower_case):
        occurrences.update(line)
    return collections.Counter({w: n for w, n in occurrences.items() if w[0].isalnum()})


def count_runs(
    chunk: DocumentChunk, lower_case: bool, folder: AnyPath, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys and counts of the runs of `size` words; see `count_candidates`."""
    return count_candidates(_lines(chunk, lower_case), read_frequent(folder, size))


def _lines(chunk: DocumentChunk, lower_case: bool) -> Iterator[list[str]]:
    """Yields the words of each line."""
    for document in chunk.documents:
        for line in documents.cleaned(document.text):
            yield _split(line.lower() if lower_case else line)


def _split(line: str) -> list[str]:
    """Returns the words and signs of a line.

    A word is a run of letters, numbers and marks, with apostrophes and hyphens inside, or a letter
    of a script without blanks between words, as in `pretraining.lexicon`.
    """
    return (_ASCII_WORD if line.isascii() else _word()).findall(line)


@functools.cache
def _word() -> re.Pattern[str]:
    letter, alone = (
        inside_python_class(codes) for codes in (unicode_words.spaced(), unicode_tables.UNSPACED)
    )
    mark = inside_python_class(unicode_tables.COMBINING)
    word = f"[_{letter}][_{letter}{mark}]*"
    return re.compile(rf"{word}(?:['’-]{word})*|[{alone}][{mark}]*|[^\s]")


def _joined(words: Sequence[str]) -> str:
    """Joins words to a phrase, without blanks between letters of scripts without blanks."""
    alone = [unicode_words.classes()[ord(word[0])] == unicode_words.ALONE for word in words]
    text = words[0]
    for i, word in enumerate(words[1:], 1):
        text += word if alone[i - 1] and alone[i] else f" {word}"
    return text


def _frequent_runs(
    passes: Passes,
    folder: AnyPath,
    words: Sequence[str],
    min_count: int,
    max_words: int,
    lower_case: bool,
) -> dict[Run, int]:
    """Returns the counts of the frequent runs of 2 to `max_words` words.

    The text is read once for each length. All processes read the frequent runs in `folder`.
    """
    counts: dict[Run, int] = {}
    frequent: list[Run] = [(i,) for i in range(len(words))]
    write_words(folder, words)
    for size in range(2, max_words + 1):
        counted = RunCounts(passes.report)
        count = functools.partial(count_runs, lower_case=lower_case, folder=folder, size=size)
        title = f"pass {size} of {max_words}:"
        for chunk in passes.apply(count, documents.ReadCounts(), title):
            counted.add(*chunk)
        keys, key_counts = counted.frequent(min_count)
        write_level(folder, size, keys)
        shorter = frequent
        frequent = [(*shorter[key // len(words)], key % len(words)) for key in keys.tolist()]
        counts |= dict(zip(frequent, key_counts.tolist(), strict=True))
        passes.report(f"{len(frequent):,} frequent runs of {size} words")
        if not frequent:
            break
    return counts


def _phrases(
    words: Sequence[str], counts: Mapping[Run, int], total: int, threshold: float
) -> list[str]:
    """Returns the runs whose score reaches the threshold, the highest score first."""
    scores = {run: _score(run, counts, total) for run in counts if len(run) > 1}
    phrases = sorted(
        (-score, _joined([words[i] for i in run]))
        for run, score in scores.items()
        if score >= threshold
    )
    return [phrase for _, phrase in phrases]


def _score(run: Run, counts: Mapping[Run, int], total: int) -> float:
    """Returns the smallest normalized pointwise mutual information over all splits of a run."""
    together = counts[run] / total
    weakest = min(
        math.log(together * total * total / (counts[run[:cut]] * counts[run[cut:]]))
        for cut in range(1, len(run))
    )
    return weakest / -math.log(together)


class Frequent(NamedTuple):
    """The frequent words and runs of earlier passes.

    Attributes:
      numbers: {word: its index}.
      levels: the keys of the runs of 2, 3, ... words, ascending, int64 [G].
    """

    numbers: Mapping[str, int]
    levels: list[np.ndarray]


def write_words(folder: AnyPath, words: Sequence[str]) -> None:
    """Writes the frequent words for the processes that count runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _WORDS).write_text("\n".join(words), encoding="utf-8")


def write_level(folder: AnyPath, size: int, keys: np.ndarray) -> None:
    """Writes the keys of the frequent runs of `size` words."""
    with (folder / f"{size}.npy").open("wb") as stream:
        np.save(stream, keys)


@functools.lru_cache(maxsize=1)
def read_frequent(folder: AnyPath, size: int) -> Frequent:
    """Reads the frequent words and runs for a pass; the processes of a machine share memory."""
    words = (folder / _WORDS).read_text(encoding="utf-8").split("\n")
    levels = []
    for shorter in range(2, size):
        with paths.local_copy(folder / f"{shorter}.npy") as path:
            levels.append(np.load(path, mmap_mode="r"))
    return Frequent({word: i for i, word in enumerate(words)}, levels)


def count_candidates(
    lines: Iterator[list[str]], frequent: Frequent
) -> tuple[np.ndarray, np.ndarray]:
    """Counts the candidates that are one word longer than the runs of the last level.

    Args:
      lines: the words of each line of a chunk.
      frequent: the frequent words and runs.

    Returns:
      The keys of the candidates, ascending, int64 [G], and their counts, int64 [G].
    """
    part: list[int] = []
    for line in lines:
        part += [frequent.numbers.get(word, _BREAK) for word in line]
        part.append(_BREAK)
    text = np.array(part, np.int64)
    words = len(frequent.numbers)
    indices = _indices(text, frequent.levels, words)
    first, rest = indices[:-1], indices[1:]
    last = text[len(text) - len(rest) :]
    candidate = (first >= 0) & (rest >= 0)
    return np.unique(first[candidate] * words + last[candidate], return_counts=True)


def _indices(text: np.ndarray, levels: list[np.ndarray], words: int) -> np.ndarray:
    """Returns the index, in the last level, of the run that begins at each word; -1 = rare."""
    indices = text
    for size, keys in enumerate(levels, 2):
        indices = indices[: len(text) - size + 1]
        last = text[size - 1 :]
        wanted = np.where((indices >= 0) & (last >= 0), indices * words + last, -1)
        index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        indices = np.where(keys[index] == wanted, index, -1)
    return indices


class RunCounts:
    """Sums the counts of chunks in bounded memory.

    If there are more than `MAX_RUNS` distinct runs, the rarest are dropped. The result depends only
    on the chunks and their order.
    """

    def __init__(self, report: Report):
        """Starts without counts; `report` is called when runs are dropped."""
        self._report = report
        self._keys = self._counts = np.zeros(0, np.int64)
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._size = 0
        self._rarest = 1

    def add(self, keys: np.ndarray, counts: np.ndarray) -> None:
        """Adds the counts of a chunk."""
        self._waiting.append((keys, counts))
        self._size += len(keys)
        if self._size > max(_SUMMED_AT_ONCE, len(self._keys) // 2):
            self._sum()

    def frequent(self, min_count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the runs that are counted `min_count` times; see `count_candidates`."""
        self._sum()
        kept = self._counts >= min_count
        return self._keys[kept], self._counts[kept]

    def _sum(self) -> None:
        keys, counts = (
            np.concatenate(parts)
            for parts in zip((self._keys, self._counts), *self._waiting, strict=True)
        )
        self._waiting, self._size = [], 0
        order = np.argsort(keys)
        keys = keys[order]
        firsts = np.flatnonzero(np.diff(keys, prepend=-1))
        self._keys = keys[firsts]
        self._counts = np.add.reduceat(counts[order], firsts) if len(firsts) else self._keys
        while len(self._keys) > MAX_RUNS:
            self._rarest += 1
            self._report(
                f"dropping runs counted less than {self._rarest} times so far, to save memory"
            )
            kept = self._counts >= self._rarest
            self._keys, self._counts = self._keys[kept], self._counts[kept]
