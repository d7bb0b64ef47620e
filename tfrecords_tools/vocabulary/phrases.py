"""Finds phrases: words that occur together more often than by chance."""

import collections
import functools
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.text import documents
from tfrecords_tools.text.corpus import Corpus, DocumentChunk, Reading
from tfrecords_tools.vocabulary import runs
from tfrecords_tools.vocabulary.passes import Passes, Report
from tfrecords_tools.vocabulary.word_counts import Counts
from tfrecords_tools.writing.execution import Execution

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
MAX_WORDS = 5_000_000  # different words that are kept when twice as many are counted

# A run of words, as their numbers.
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
) -> list[str]:
    """Reads text and writes a lexicon.

    Args:
      inputs: files or globs, as `corpus.expand` takes them.
      output: the file to write.
      min_count: the least number of occurrences of a phrase.
      threshold: the least normalised pointwise mutual information of a phrase.
      max_words: the largest number of words of a phrase.
      lower_case: whether text is lower-cased, as uncased tokenizers do.
      on_bad_utf8: "error" or "skip": what to do with lines that are not UTF-8.
      on_long_line: "error" or "skip": what to do with lines that are too long.
      execution: where the text is read; this does not change the phrases.
      report: is called with lines of progress.

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
    tally = documents.Tally()
    with execution.start_anew(paths.path(output), start_worker) as (runner, scratch):
        passes = Passes(corpus, reading, runner, report)
        count = functools.partial(count_words, lower_case=lower_case)
        for chunk in passes.apply(count, tally, f"pass 1 of {max_words}:"):
            occurrences.merge(chunk)
        words = sorted(word for word, n in occurrences.counts.items() if n >= min_count)
        report(
            f"{occurrences.total:,} words, {len(occurrences.counts):,} different, {len(words):,} "
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
    with atomic.file(output) as stream:
        stream.write("\n".join(phrases) + "\n")
    for reason, skipped in sorted(tally.skipped.items()):
        report(f"skipped: {skipped:,} {reason}")
    shown = ", ".join(phrases[:: -(-len(phrases) // 8)])
    report(f"{len(phrases):,} phrases in {output}, such as: {shown}")
    report(f"wrote {output} in {time.monotonic() - started:.1f} s")
    return phrases


def _check(min_count: int, threshold: float, max_words: int) -> None:
    if min_count < 2:
        raise UserError(f"--min_count={min_count}: a phrase stands in a text twice at least")
    if not -1 <= threshold <= 1:
        raise UserError(f"--threshold={threshold} is not between -1 and 1")
    if max_words < 2:
        raise UserError(f"--max_words={max_words}: a phrase has 2 words or more")


def start_worker() -> None:
    """Sets up a worker process, which needs nothing."""


def count_words(chunk: DocumentChunk, lower_case: bool) -> collections.Counter[str]:
    """Returns the count of each word of a chunk that begins with a letter or a digit."""
    occurrences: collections.Counter[str] = collections.Counter()
    for line in _lines(chunk, lower_case):
        occurrences.update(line)
    return collections.Counter({w: n for w, n in occurrences.items() if w[0].isalnum()})


def count_runs(
    chunk: DocumentChunk, lower_case: bool, folder: AnyPath, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys and counts of the runs of `size` words of a chunk; see `runs.count`."""
    return runs.count(_lines(chunk, lower_case), runs.read(folder, size))


def _lines(chunk: DocumentChunk, lower_case: bool) -> Iterator[list[str]]:
    """Yields the words of each line."""
    for document in chunk.documents:
        for line in documents.cleaned(document.text):
            yield _WORD.findall(line.lower() if lower_case else line)


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
    runs.write_words(folder, words)
    for size in range(2, max_words + 1):
        counted = runs.RunCounts(passes.report)
        count = functools.partial(count_runs, lower_case=lower_case, folder=folder, size=size)
        title = f"pass {size} of {max_words}:"
        for chunk in passes.apply(count, documents.Tally(), title):
            counted.add(*chunk)
        keys, key_counts = counted.frequent(min_count)
        runs.write_level(folder, size, keys)
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
        (-score, " ".join(words[i] for i in run))
        for run, score in scores.items()
        if score >= threshold
    )
    return [phrase for _, phrase in phrases]


def _score(run: Run, counts: Mapping[Run, int], total: int) -> float:
    """Returns the least normalised pointwise mutual information of two parts of a run."""
    together = counts[run] / total
    weakest = min(
        math.log(together * total * total / (counts[run[:cut]] * counts[run[cut:]]))
        for cut in range(1, len(run))
    )
    return weakest / -math.log(together)
