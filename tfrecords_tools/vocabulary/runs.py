"""Counts runs of words in the chunks of a text, and adds the counts up.

Runs are counted by their length, from 2 words on. A run is a candidate if it is frequent without
its first word and without its last word. Its key is index · number of words + number of its last
word. The index is that of the run without its last word, among the keys of the frequent runs that
are one word shorter.

Shapes: K words of a chunk, G different runs.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official.utils import paths
from official.utils.paths import AnyPath
from tfrecords_tools.vocabulary.passes import Report

MAX_RUNS = 20_000_000  # different runs that are counted at the same time
_SUMMED_AT_ONCE = 1 << 22
_BREAK = -1  # Stands for a rare word, and for the end of a line, which no run spans.
_WORDS = "words.txt"


class Frequent(NamedTuple):
    """What is frequent so far.

    Attributes:
      numbers: word → its number.
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
def read(folder: AnyPath, size: int) -> Frequent:
    """Returns what is written for runs of `size` words; the processes of a machine share levels."""
    words = (folder / _WORDS).read_text(encoding="utf-8").split("\n")
    levels = []
    for shorter in range(2, size):
        with paths.local_copy(folder / f"{shorter}.npy") as path:
            levels.append(np.load(path, mmap_mode="r"))
    return Frequent({word: i for i, word in enumerate(words)}, levels)


def count(lines: Iterator[list[str]], frequent: Frequent) -> tuple[np.ndarray, np.ndarray]:
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
    """Adds the counts of chunks up, in bounded memory.

    If there are more than `MAX_RUNS` different runs, the rarest are forgotten. Which ones depends
    on the chunks and their order alone.
    """

    def __init__(self, report: Report):
        """Starts without a run; `report` is called when runs are forgotten."""
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
        """Returns the runs that are counted `min_count` times, as `count` returns them."""
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
                f"forgetting runs counted less than {self._rarest} times so far, to save memory"
            )
            kept = self._counts >= self._rarest
            self._keys, self._counts = self._keys[kept], self._counts[kept]
