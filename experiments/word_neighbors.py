"""The nearest words by vectors of words, such as GloVe's (Pennington et al., 2014).

Shapes: W words, D values of a vector.
"""

import functools
import os
import unicodedata

import numpy as np

from official.utils import paths, text_lines
from official.utils.errors import UserError

MAX_WORDS = 100_000


def is_word(text: str) -> bool:
    """Returns whether a text consists of letters and their marks."""
    return bool(text) and all(unicodedata.category(sign)[0] in "LM" for sign in text)


class WordNeighbors:
    """Vectors of words from a text file, and the words with the nearest ones.

    Attributes:
      words: the W words.
    """

    def __init__(self, path: str | os.PathLike, max_words: int = MAX_WORDS):
        """Reads a file with a word and the values of its vector on each line.

        Lines of numbers, marks or several words are left out: only words of letters are kept. The
        first line may have the number of words and of values, as word2vec writes it.

        Args:
          path: the file; `.gz` is unpacked.
          max_words: the number of lines that are read. Files have the frequent words first.

        Raises:
          UserError: the file is missing or has no words, or a line has no vector of the length of
            the first.
        """
        self.words: list[str] = []
        vectors: list[np.ndarray] = []
        size = 0
        for number, line in enumerate(text_lines.lines(paths.path(path), []), 1):
            parts = line.rstrip().split(" ")
            if number == 1 and len(parts) == 2 and parts[1].isdecimal():
                size = int(parts[1])
                continue
            size = size or len(parts) - 1
            try:
                # The tokens of some files have blanks.
                vector = np.array(parts[-size:] if size else [], np.float32)
                if len(parts) <= size or not size or not np.isfinite(vector).all():
                    raise ValueError
            except ValueError:
                expected = f"{size} values" if size else "the values of its vector"
                raise UserError(
                    f"{path}, line {number}: expected a word and {expected}, as in the files of "
                    f"GloVe, got {line[:40]!r}"
                ) from None
            if is_word(word := " ".join(parts[:-size])):
                self.words.append(word)
                vectors.append(vector)
            if number == max_words:
                break
        if not vectors:
            raise UserError(f"{path} has no words: expected one and its vector on each line")
        table = np.stack(vectors)  # [W, D]
        norms = np.linalg.norm(table, axis=1, keepdims=True)
        self._units = np.divide(table, norms, out=np.zeros_like(table), where=norms > 0)
        self._numbers = {word: i for i, word in reversed(list(enumerate(self.words)))}

    def nearest(self, word: str, count: int) -> tuple[str, ...]:
        """Returns the words with the largest cosine similarity, the nearest first.

        Args:
          word: the word; if it has no vector, it is looked up in lower case.
          count: the number of words; there may be fewer.

        Returns:
          The words, without `word` itself; none if it has no vector.
        """
        number = self._numbers.get(word, self._numbers.get(word.lower()))
        return () if number is None else self._of(number, count)

    @functools.lru_cache(maxsize=1 << 16)  # noqa: B019 (the cache lives as long as the command)
    def _of(self, number: int, count: int) -> tuple[str, ...]:
        scores = self._units @ self._units[number]
        scores[number] = -np.inf
        count = min(count, len(scores) - 1)
        if count < 1:
            return ()
        # Equal scores are in the order of the file.
        least = np.partition(scores, -count)[-count]
        places = np.flatnonzero(scores >= least)
        places = places[np.argsort(-scores[places], kind="stable")][:count]
        return tuple(self.words[i] for i in places)
