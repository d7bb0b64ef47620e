"""Fine-tuning tasks: their files, columns, labels and metrics.

A named task is one entry of `TASKS`. Anything else is `generic("classification", ...)` or
`generic("regression", ...)`, whose columns, labels and files the user gives, or `ranking()`. A task
of the kind "span" asks questions whose answers are parts of a text; its files have SQuAD's form.
One of the kind "choice" asks which of several choices is the right one; `choice()` is the one of
JSON Lines.
"""

from collections.abc import Iterable

from official.tasks import glue, reading, texts
from official.tasks.description import Description, MixtureDescription
from official.tasks.kinds import GENERIC, KINDS, METRICS, Kind
from official.tasks.task import (
    LETTERS,
    SPLITS,
    Columns,
    Submission,
    Task,
    listed,
    nearest,
)
from official.utils.errors import UserError

__all__ = [
    "GENERIC",
    "KINDS",
    "LETTERS",
    "METRICS",
    "SPLITS",
    "TASKS",
    "Columns",
    "Description",
    "Kind",
    "MixtureDescription",
    "Submission",
    "Task",
    "choice",
    "find",
    "generic",
    "nearest",
    "ranking",
]

TASKS: dict[str, Task] = {task.name: task for task in (*glue.TASKS, *texts.TASKS, *reading.TASKS)}


def generic(
    kind: str,
    text: str,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Iterable[str] = (),
    metrics: Iterable[str] = (),
    header: bool = True,
) -> Task:
    """A task that is not in the table.

    Raises:
      UserError: a label, a metric or a column that cannot be, in the words of `Task`.
    """
    if kind not in GENERIC:
        raise UserError(f"a task is {' or '.join((*GENERIC, 'ranking', 'choice'))}, not {kind!r}")
    default = METRICS["regression"] if kind == "regression" else ()
    return Task(
        name=kind,
        kind=kind,
        columns=Columns(text, text_pair, label, header),
        labels=tuple(labels),
        metrics=tuple(metrics) or default,
    )


def ranking(metrics: Iterable[str] = ()) -> Task:
    """The ranking of documents for queries.

    Raises:
      UserError: a metric that there is none of.
    """
    columns = Columns("query", "document")
    return Task("ranking", "ranking", columns, metrics=tuple(metrics) or METRICS["ranking"])


def choice() -> Task:
    """A choice task that is not in the table, from JSON Lines; its files say how many choices."""
    return Task("choice", "choice", Columns("context", "question", "answer"))


def find(name: str) -> Task:
    """The named task.

    Raises:
      UserError: there is none of that name.
    """
    if name in TASKS:
        return TASKS[name]
    known = (*TASKS, *GENERIC, "ranking", "choice")
    raise UserError(f"there is no task {name!r}{nearest(name, known)}: tasks are {listed(known)}")
