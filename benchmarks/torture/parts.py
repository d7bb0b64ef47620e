"""What a part of the bench is, and how its cases are run: with progress, resumable.

A part has numbered cases. A case is a function of (seed, part, number), so that a failure can be
repeated alone. What came of each case is appended to a journal, and a run that was stopped goes on
with the cases that are not in it.
"""

import abc
import collections
import dataclasses
import json
import time
import traceback
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from official.training.reporting import duration
from official.utils import host_seeding

_SECONDS_BETWEEN_REPORTS = 15.0


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
      name: as `--parts` takes it.
      things: what is counted.
      promise: what must hold for each of them.
      whole: the cases of a whole run.
      quick: the cases of `--quick`.
      in_children: whether child processes do the work; such a part runs beside the others.
    """

    name: str
    things: str
    promise: str
    whole: int
    quick: int
    in_children: bool = False

    def __init__(self, seed: int):
        self.seed = seed

    def rng(self, case: int) -> np.random.Generator:
        """The random numbers of a case."""
        return host_seeding.numpy_rng(self.seed, zlib.crc32(self.name.encode()), case)

    @abc.abstractmethod
    def run(self, case: int) -> Outcome:
        """Runs a case."""


class Journal:
    """What came of the cases of a part, in a file that grows by a line a case.

    A case that was begun and is not there killed the process: it is a failure and is not repeated.
    """

    def __init__(self, folder: Path, part: Part):
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{part.name}-{part.seed}.jsonl"
        self._begun = folder / f"{part.name}-{part.seed}.begun"
        self.outcomes: dict[int, Outcome] = {}
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            record = json.loads(line)
            case = record.pop("case")
            self.outcomes[case] = Outcome(**record)
            self.outcomes[case].kinds = collections.Counter(record["kinds"])
        if self._begun.exists():
            case = int(self._begun.read_text())
            if case not in self.outcomes:
                outcome = Outcome()
                outcome.fail("the process died in this case")
                self.end(case, outcome)

    @staticmethod
    def stopped(folder: Path) -> None:
        """Takes note that the cases that were begun were stopped on purpose."""
        for path in folder.glob("*.begun"):
            path.unlink()

    def begin(self, case: int) -> None:
        """Notes that a case is being run."""
        self._begun.write_text(str(case))

    def end(self, case: int, outcome: Outcome) -> None:
        """Notes what came of it."""
        self.outcomes[case] = outcome
        record = {"case": case, **vars(outcome)}
        with open(self._path, "a") as stream:
            stream.write(json.dumps(record) + "\n")
        self._begun.unlink(missing_ok=True)


def run(
    part: Part, cases: Iterable[int], folder: Path, say: Callable[[str], None]
) -> dict[int, Outcome]:
    """Runs the cases of a part that its journal lacks.

    Args:
      part: what to run.
      cases: the numbers.
      folder: of journals.
      say: takes lines of progress.

    Returns:
      What came of each of `cases`.
    """
    journal, cases = Journal(folder, part), list(cases)
    left = [case for case in cases if case not in journal.outcomes]
    if len(left) < len(cases):
        say(f"{part.name}: {len(cases) - len(left):,} of {len(cases):,} cases are done already")
    started = reported = time.monotonic()
    for number, case in enumerate(left, 1):
        journal.begin(case)
        began = time.monotonic()
        try:
            outcome = part.run(case)
        except Exception as error:  # noqa: BLE001  (a case that breaks is a failure like any other)
            outcome = Outcome()
            place = traceback.extract_tb(error.__traceback__)[-1]
            outcome.fail(f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})")
        outcome.seconds = time.monotonic() - began
        journal.end(case, outcome)
        for sentence in outcome.failures:
            say(f"{part.name}, case {case}: FAILED: {sentence}")
        now = time.monotonic()
        if now - reported > _SECONDS_BETWEEN_REPORTS or number == len(left):
            rate = number / (now - started)
            seconds = duration((len(left) - number) / rate)
            say(
                f"{part.name}: {number:,} of {len(left):,} cases, {rate * 60:,.1f} a minute, "
                f"{seconds} left"
            )
            reported = now
    return {case: journal.outcomes[case] for case in cases}


def total(outcomes: Iterable[Outcome]) -> Outcome:
    """The sum of outcomes."""
    summed = Outcome()
    for outcome in outcomes:
        summed.done += outcome.done
        summed.kinds += outcome.kinds
        summed.failures += outcome.failures
        summed.seconds += outcome.seconds
    return summed
