"""Finds phrases: words that stand together more often than by chance."""

import collections
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.text import documents

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


_PART = 1 << 20  # words of a part
_MAX_RUNS = 20_000_000  # different runs that are counted at the same time
_BREAK = -1  # between words that no phrase joins, and in the place of rare words


def build(
    inputs: Sequence[str] | str,
    output: str | Path,
    min_count: int = 20,
    threshold: float = 0.4,
    max_words: int = 4,
    lower_case: bool = False,
    on_bad_utf8: str = "error",
    on_long_line: str = "error",
    report: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Reads text and writes the lexicon `output`.

    Args:
      inputs: files or globs, as `documents.expand` takes them.
      output: the file to write.
      min_count: a phrase stands in the text as often, at least.
      threshold: of the normalised pointwise mutual information.
      max_words: the most words of a phrase.
      lower_case: do not tell upper case from lower, as an uncased tokenizer does not.
      on_bad_utf8: what to do with lines that are not UTF-8: "error" or "skip".
      on_long_line: the same for lines too long to hold.
      report: is given lines for a person to read.

    Returns:
      The phrases, in the order of the file.

    Raises:
      UserError: unusable input or options, or no phrase in the text.
    """
    if min_count < 2:
        raise UserError(f"--min_count={min_count}: a phrase stands in a text twice at least")
    if not -1 <= threshold <= 1:
        raise UserError(f"--threshold={threshold} is not between -1 and 1")
    if max_words < 2:
        raise UserError(f"--max_words={max_words}: a phrase has 2 words or more")
    paths = documents.expand(inputs)

    def read() -> Iterator[list[str]]:
        """Yields the words of each line."""
        for document in documents.read(paths, on_bad_utf8, on_long_line):
            for line in documents.cleaned(document.sentences):
                yield _WORD.findall(line.lower() if lower_case else line)

    occurrences: collections.Counter[str] = collections.Counter()
    for line in read():
        occurrences.update(line)
    occurrences = collections.Counter({w: n for w, n in occurrences.items() if w[0].isalnum()})
    total = occurrences.total()
    words = sorted(w for w, n in occurrences.items() if n >= min_count)
    report(f"{total:,} words, {len(occurrences):,} different, {len(words):,} of them frequent")
    counts = {(i,): occurrences[word] for i, word in enumerate(words)}
    levels: list[np.ndarray] = []
    numbers = {word: i for i, word in enumerate(words)}
    frequent = [(i,) for i in range(len(words))]
    for size in range(2, max_words + 1):
        keys, found = _count(read(), numbers, levels, min_count, report)
        before = frequent
        frequent = [(*before[key // len(words)], key % len(words)) for key in keys.tolist()]
        counts |= dict(zip(frequent, found.tolist(), strict=True))
        levels.append(keys)
        report(f"{len(frequent):,} frequent runs of {size} words")
        if not frequent:
            break
    scores = {run: _score(run, counts, total) for run in counts if len(run) > 1}
    phrases = sorted(
        (-score, " ".join(words[i] for i in run))
        for run, score in scores.items()
        if score >= threshold
    )
    if not phrases:
        raise UserError(
            f"no phrase of {min_count} occurrences and a mutual information of {threshold}: lower "
            "--min_count or --threshold, or give more text"
        )
    lines = [phrase for _, phrase in phrases]
    with atomic.file(output) as stream:
        stream.write("\n".join(lines) + "\n")
    some = ", ".join(lines[:: -(-len(lines) // 8)])
    report(f"{len(lines):,} phrases in {output}, such as: {some}")
    return lines


def _count(
    lines: Iterator[list[str]],
    numbers: dict[str, int],
    levels: list[np.ndarray],
    min_count: int,
    report: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Counts the runs that are one word longer than those of the last level.

    A run is known by the place of its beginning in the level below and by its last word, as
    place · words + word.

    Returns:
      The keys of the frequent runs, ascending, int64 [G], and their counts, int64 [G].
    """
    keys = counts = np.zeros(0, np.int64)
    rarest = 1
    for part in _parts(lines, numbers):
        runs = _runs(part, levels, len(numbers))
        first, rest = runs[:-1], runs[1:]
        last = part[len(part) - len(rest) :]
        real = (first >= 0) & (rest >= 0)
        fresh = first[real] * len(numbers) + last[real]
        keys, places = np.unique(np.concatenate([keys, fresh]), return_inverse=True)
        ones = np.ones(len(fresh), np.int64)
        counts = np.bincount(
            places, weights=np.concatenate([counts, ones]), minlength=len(keys)
        ).astype(np.int64)
        while len(keys) > _MAX_RUNS:
            rarest += 1
            report(f"forgetting runs counted less than {rarest} times so far, to save memory")
            keys, counts = keys[counts >= rarest], counts[counts >= rarest]
    return keys[counts >= min_count], counts[counts >= min_count]


def _parts(lines: Iterator[list[str]], numbers: dict[str, int]) -> Iterator[np.ndarray]:
    """The text as numbers of words, with a break after each line: int64 [K] each."""
    part: list[int] = []
    for line in lines:
        part += [numbers.get(word, _BREAK) for word in line]
        part.append(_BREAK)
        if len(part) >= _PART:
            yield np.array(part, np.int64)
            part = []
    yield np.array(part, np.int64)


def _runs(part: np.ndarray, levels: list[np.ndarray], words: int) -> np.ndarray:
    """The place, in the last level, of the run that begins at each word; -1 = not frequent."""
    runs = part
    for size, keys in enumerate(levels, 2):
        runs = runs[: len(part) - size + 1]
        last = part[size - 1 :]
        wanted = np.where((runs >= 0) & (last >= 0), runs * words + last, -1)
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        runs = np.where(keys[places] == wanted, places, -1)
    return runs


def _score(run: tuple[int, ...], counts: dict[tuple[int, ...], int], total: int) -> float:
    """The normalised pointwise mutual information at the weakest place of a run."""
    together = counts[run] / total
    weakest = min(
        math.log(together * total * total / (counts[run[:cut]] * counts[run[cut:]]))
        for cut in range(1, len(run))
    )
    return weakest / -math.log(together)
