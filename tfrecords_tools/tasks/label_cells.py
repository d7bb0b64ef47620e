"""What the labels and scores of a file are: classes, flags, numbers, or none.

A row without a label is left out and counted (`official.tasks.missing_labels`), but for the rows of
a test file in which no row has one: these are predicted.
"""

import functools
import math
from collections.abc import Callable, Iterable

import numpy as np

from official.tasks import Task, missing_labels
from official.tasks.task import SEPARATOR
from official.utils.names import nearest

# What joins the texts, or the numbers, of a list in JSON Lines; no text has it.
LIST_SEPARATOR = "\x1e"


class Labels:
    """The labels or scores of a file.

    Attributes:
      notes: what is to be said about them.
    """

    def __init__(self, task: Task, is_test: bool, cells: Callable[[], Iterable[str | None]]):
        """Begins a file.

        Args:
          task: the task with its labels.
          is_test: whether the rows of a file without any label are predicted.
          cells: returns the labels or scores of all rows, None for rows without, once more.
        """
        self._task, self._is_test, self._cells = task, is_test, cells
        self._ids = {
            name: i for names in (task.labels, task.values) for i, name in enumerate(names)
        }
        # Numbers stand for labels that are named, where no label is a number.
        named = task.values == task.labels and not any(map(_is_number, task.labels))
        self._numbers = named and bool(task.labels)
        self.notes: list[str] = []

    @functools.cached_property
    def are_none(self) -> bool:
        """Whether the rows of a test file have no labels, so that they are predicted."""
        if not self._is_test:
            return False
        if self._minus_one_may_be_none:
            return all(self.missing(cell) or _score(cell or "") == -1 for cell in self._cells())
        return all(self.missing(cell) for cell in self._cells())

    @functools.cached_property
    def _minus_one_is_doubtful(self) -> bool:
        """Whether no other score is below 0, so that -1 may be a score or none."""
        return not any(
            _score(cell or "") < 0 and _score(cell or "") != -1 for cell in self._cells()
        )

    @property
    def _taught(self) -> bool:
        """Whether a row has the scores of a teacher."""
        return self._task.form == "teacher_scores"

    @property
    def _minus_one_may_be_none(self) -> bool:
        """Whether nobody has said which scores there are."""
        task = self._task
        return task.has_scores and task.score_range is None and task.form != "margins"

    def missing(self, label: str | None) -> str:
        """Returns the reason under which a row without a label is counted; "" if it has one."""
        if label is None:
            return missing_labels.WITHOUT
        if self._taught:
            return "" if label else missing_labels.reason(label)
        if self._task.has_scores:
            none = label in ("", "-") or (_score(label) == -1 and self._is_outside(-1))
            return missing_labels.reason(label) if none else ""
        if label in self._ids or (self._task.kind == "multi_label" and not label):
            return ""
        return missing_labels.reason(label)

    def value(self, label: str) -> int | float | list[int] | tuple[float, ...] | None:
        """Returns the class, the score, the flags or the scores of a label; None if it is none."""
        if self._taught:
            scores = tuple(_score(part) for part in label.replace(LIST_SEPARATOR, " ").split())
            return scores if all(map(math.isfinite, scores)) else None
        if self._task.kind == "multi_label":
            numbers = [self._id(name) for name in several(label)]
            if None in numbers:
                return None
            return [int(i in numbers) for i in range(len(self._task.labels))]
        if not self._task.has_scores:
            return self._id(label)
        score = _score(label)
        if score == -1 and self._minus_one_may_be_none and self._minus_one_is_doubtful:
            return None
        if self._task.kind == "regression" and self._is_outside(score):
            return None
        return score if math.isfinite(score) else None

    def _is_outside(self, score: float) -> bool:
        known = self._task.score_range
        return known is not None and not known[0] <= score <= known[1]

    def _id(self, name: str) -> int | None:
        """Returns the number of a label that a file names, or writes as a number; or None."""
        labels = self._task.labels
        number = self._ids.get(name)
        if number is None and self._numbers and name.isdecimal() and int(name) < len(labels):
            number, last = int(name), len(labels) - 1
            note = f"labels are numbers: 0 is {labels[0]!r}, {last} is {labels[last]!r}"
            if note not in self.notes:
                self.notes.append(note)
        return number

    def fault(self, label: str, column: str | None, where: str) -> tuple[str, str]:
        """Returns the reason and the message about a label that is none of the task."""
        if self._task.has_scores or self._taught:
            return self._fault_of_score(label.replace(LIST_SEPARATOR, " "), column, where)
        unknown, more = label, ""
        if self._task.kind == "multi_label":
            unknown = next(name for name in several(label) if self._id(name) is None)
            more = f"; {SEPARATOR!r} separates the labels of a text"
        known = self._task.values
        return (
            "label not in the set",
            f"{where}: label {unknown!r} in column {column!r} is not one of "
            f"{', '.join(map(repr, known))}{nearest(unknown, known)}{more}",
        )

    def _fault_of_score(self, label: str, column: str | None, where: str) -> tuple[str, str]:
        place, score = f"{where}: {label!r} in column {column!r}", _score(label)
        if not math.isfinite(score):
            return "score not a number", f"{place} is not a number"
        if self._is_outside(score):
            low, high = self._task.score_range or (score, score)
            return "score out of range", f"{place} is not from {low:g} to {high:g}"
        return (
            "score of -1",
            f"{place}: no other score of the file is below 0, and `datasets` writes -1 for rows "
            "without a score: --score_range=LOWEST,HIGHEST names the range of the scores; a row "
            "with a -1 outside of it is left out",
        )


def several(cell: str) -> list[str]:
    """Returns the labels of a text that may have any number of them."""
    return [name for part in cell.split(SEPARATOR) if (name := part.strip())]


def _is_number(label: str) -> bool:
    return math.isfinite(_score(label))


def _score(text: str) -> float:
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(float(text)))  # Stored as float32: 1e39 is infinite.
    except ValueError:
        return math.nan
