"""Finds phrases: words that occur together more often than by chance.

Shapes: K words of a part of the text, G frequent runs of words.
"""

import collections
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.text import documents

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
WORDS_AT_ONCE = 1 << 20
MAX_RUNS = 20_000_000  # different runs that are counted at the same time
_BREAK = -1  # Stands for a rare word, and for the end of a line, which no phrase spans.

# A run of words, as their numbers.
Run = tuple[int, ...]
Report = Callable[[str], None]


def build(
    inputs: Sequence[str] | str,
    output: str | Path,
    min_count: int = 20,
    threshold: float = 0.4,
    max_words: int = 4,
    lower_case: bool = False,
    on_bad_utf8: str = "error",
    on_long_line: str = "error",
    report: Report = lambda line: None,
) -> list[str]:
    """Reads text and writes a lexicon.

    Args:
      inputs: files or globs, as `documents.expand` takes them.
      output: the file to write.
      min_count: the least number of occurrences of a phrase.
      threshold: the least normalised pointwise mutual information of a phrase.
      max_words: the largest number of words of a phrase.
      lower_case: whether text is lower-cased, as uncased tokenizers do.
      on_bad_utf8: "error" or "skip": what to do with lines that are not UTF-8.
      on_long_line: "error" or "skip": what to do with lines that are too long.
      report: is called with lines of progress.

    Returns:
      The phrases, in the order of the file.

    Raises:
      UserError: the input or the options cannot be used, or the text has no phrase.
    """
    _check(min_count, threshold, max_words)
    paths = documents.expand(inputs)

    def read() -> Iterator[list[str]]:
        """Yields the words of each line."""
        for document in documents.read(paths, on_bad_utf8, on_long_line):
            for line in documents.cleaned(document.sentences):
                yield _WORD.findall(line.lower() if lower_case else line)

    occurrences = _occurrences(read())
    total = occurrences.total()
    words = sorted(word for word, n in occurrences.items() if n >= min_count)
    report(f"{total:,} words, {len(occurrences):,} different, {len(words):,} of them frequent")
    counts: dict[Run, int] = {(i,): occurrences[word] for i, word in enumerate(words)}
    counts |= _frequent_runs(read, words, min_count, max_words, report)
    phrases = _phrases(words, counts, total, threshold)
    if not phrases:
        raise UserError(
            f"no phrase of {min_count} occurrences and a mutual information of {threshold}: lower "
            "--min_count or --threshold, or give more text"
        )
    with atomic.file(output) as stream:
        stream.write("\n".join(phrases) + "\n")
    shown = ", ".join(phrases[:: -(-len(phrases) // 8)])
    report(f"{len(phrases):,} phrases in {output}, such as: {shown}")
    return phrases


def _check(min_count: int, threshold: float, max_words: int) -> None:
    if min_count < 2:
        raise UserError(f"--min_count={min_count}: a phrase stands in a text twice at least")
    if not -1 <= threshold <= 1:
        raise UserError(f"--threshold={threshold} is not between -1 and 1")
    if max_words < 2:
        raise UserError(f"--max_words={max_words}: a phrase has 2 words or more")


def _occurrences(lines: Iterator[list[str]]) -> collections.Counter[str]:
    """Returns the count of each word that begins with a letter or a digit."""
    occurrences: collections.Counter[str] = collections.Counter()
    for line in lines:
        occurrences.update(line)
    return collections.Counter({w: n for w, n in occurrences.items() if w[0].isalnum()})


def _frequent_runs(
    read: Callable[[], Iterator[list[str]]],
    words: Sequence[str],
    min_count: int,
    max_words: int,
    report: Report,
) -> dict[Run, int]:
    """Returns the counts of the frequent runs of 2 to `max_words` words.

    The text is read once for each length.
    """
    counts: dict[Run, int] = {}
    numbers = {word: i for i, word in enumerate(words)}
    levels: list[np.ndarray] = []
    frequent: list[Run] = [(i,) for i in range(len(words))]
    for size in range(2, max_words + 1):
        keys, key_counts = _count(read(), numbers, levels, min_count, report)
        shorter = frequent
        frequent = [(*shorter[key // len(words)], key % len(words)) for key in keys.tolist()]
        counts |= dict(zip(frequent, key_counts.tolist(), strict=True))
        levels.append(keys)
        report(f"{len(frequent):,} frequent runs of {size} words")
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


def _count(
    lines: Iterator[list[str]],
    numbers: dict[str, int],
    levels: list[np.ndarray],
    min_count: int,
    report: Report,
) -> tuple[np.ndarray, np.ndarray]:
    """Counts the runs that are one word longer than those of the last level.

    The key of a run is index · number of words + number of its last word. The index is that of the
    run without its last word, among the keys of the level below.

    Returns:
      The keys of the frequent runs, ascending, int64 [G], and their counts, int64 [G].
    """
    keys = counts = np.zeros(0, np.int64)
    rarest = 1
    for part in _parts(lines, numbers):
        runs = _runs(part, levels, len(numbers))
        first, rest = runs[:-1], runs[1:]
        last = part[len(part) - len(rest) :]
        candidate = (first >= 0) & (rest >= 0)
        new = first[candidate] * len(numbers) + last[candidate]
        keys, index = np.unique(np.concatenate([keys, new]), return_inverse=True)
        ones = np.ones(len(new), np.int64)
        counts = np.bincount(
            index, weights=np.concatenate([counts, ones]), minlength=len(keys)
        ).astype(np.int64)
        while len(keys) > MAX_RUNS:
            rarest += 1
            report(f"forgetting runs counted less than {rarest} times so far, to save memory")
            keys, counts = keys[counts >= rarest], counts[counts >= rarest]
    return keys[counts >= min_count], counts[counts >= min_count]


def _parts(lines: Iterator[list[str]], numbers: dict[str, int]) -> Iterator[np.ndarray]:
    """Yields the text as numbers of words, with a break after each line; each part is int64 [K]."""
    part: list[int] = []
    for line in lines:
        part += [numbers.get(word, _BREAK) for word in line]
        part.append(_BREAK)
        if len(part) >= WORDS_AT_ONCE:
            yield np.array(part, np.int64)
            part = []
    yield np.array(part, np.int64)


def _runs(part: np.ndarray, levels: list[np.ndarray], words: int) -> np.ndarray:
    """Returns the index, in the last level, of the run that begins at each word; -1 = rare."""
    runs = part
    for size, keys in enumerate(levels, 2):
        runs = runs[: len(part) - size + 1]
        last = part[size - 1 :]
        wanted = np.where((runs >= 0) & (last >= 0), runs * words + last, -1)
        index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        runs = np.where(keys[index] == wanted, index, -1)
    return runs


def _score(run: Run, counts: Mapping[Run, int], total: int) -> float:
    """Returns the least normalised pointwise mutual information of two parts of a run."""
    together = counts[run] / total
    weakest = min(
        math.log(together * total * total / (counts[run[:cut]] * counts[run[cut:]]))
        for cut in range(1, len(run))
    )
    return weakest / -math.log(together)
