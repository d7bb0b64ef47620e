"""What a part of the bench is: numbered cases, each a function of (seed, part, number).

So a failure can be repeated alone. `test_cases` makes a test of each case.
"""

import abc
import collections
import dataclasses
import zlib
from collections.abc import Iterable

import numpy as np

from official.utils import host_seeding


@dataclasses.dataclass
class Outcome:
    """What came of a case, or of all cases of a part.

    Attributes:
      done: how many things (kills, flips, lines) it was.
      kinds: how many of them ended how.
      failures: a sentence for each that broke the promise of the part.
      seconds: how long it took.
    """

    done: int = 0
    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failures: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def add(self, kind: str, count: int = 1) -> None:
        """Counts things that ended in the same way."""
        self.done += count
        self.kinds[kind] += count

    def fail(self, sentence: str, count: int = 1) -> None:
        """Counts a thing that broke the promise."""
        self.add("failed", count)
        self.failures.append(sentence)


class Part(abc.ABC):
    """One kind of torture.

    Attributes:
      name: the first word of the ids of its tests.
      things: what is counted.
      promise: what must hold for each of them.
      whole: the cases of a whole run.
      quick: the cases of a slice.
    """

    name: str
    things: str
    promise: str
    whole: int
    quick: int

    def __init__(self, seed: int):
        self.seed = seed

    def rng(self, case: int) -> np.random.Generator:
        """The random numbers of a case."""
        return host_seeding.numpy_rng(self.seed, zlib.crc32(self.name.encode()), case)

    @abc.abstractmethod
    def run(self, case: int) -> Outcome:
        """Runs a case."""


def total(outcomes: Iterable[Outcome]) -> Outcome:
    """The sum of outcomes."""
    summed = Outcome()
    for outcome in outcomes:
        summed.done += outcome.done
        summed.kinds += outcome.kinds
        summed.failures += outcome.failures
        summed.seconds += outcome.seconds
    return summed
