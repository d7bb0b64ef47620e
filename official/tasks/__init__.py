"""Fine-tuning tasks: their files, columns, labels and metrics.

`TASKS` has the named tasks. For other data there are `generic("classification", ...)` and
`generic("regression", ...)` with the user's columns, labels and files, `ranking()`, and `choice()`
for JSON Lines. A task of the kind "span" has questions whose answers are parts of a text, in files
of SQuAD's format. A task of the kind "choice" has questions with several choices, and one of the
kind "tagging" has a tag for each word. One of the kind "embedding" has texts whose vectors are
compared (`official.tasks.embeddings`).
"""

from collections.abc import Iterable

from official.tasks import named_tasks
from official.tasks.kinds import GENERIC, KINDS, METRICS, Kind
from official.tasks.task import (
    AVERAGE,
    GRAPHEMES,
    LETTERS,
    SPLITS,
    Columns,
    Description,
    MixtureDescription,
    Submission,
    Task,
    description_from_dict,
    no_such_head,
)
from official.utils.errors import UserError
from official.utils.names import listed, nearest

__all__ = [
    "AVERAGE",
    "GENERIC",
    "GRAPHEMES",
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
    "description_from_dict",
    "find",
    "generic",
    "no_such_head",
    "ranking",
]

TASKS: dict[str, Task] = {
    task.name: task
    for task in (*named_tasks.GLUE, *named_tasks.TEXTS, *named_tasks.READING, *named_tasks.TAGGING)
}


def generic(
    kind: str,
    text: str,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Iterable[str] = (),
    metrics: Iterable[str] = (),
    header: bool = True,
) -> Task:
    """Returns a task with the user's columns and labels.

    Raises:
      UserError: a label, a metric or a column is not valid; see `Task`.
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
    """Returns the task of ranking documents for queries.

    Raises:
      UserError: a metric does not exist.
    """
    columns = Columns("query", "document")
    return Task("ranking", "ranking", columns, metrics=tuple(metrics) or METRICS["ranking"])


def choice() -> Task:
    """Returns a choice task in JSON Lines; its files determine the number of choices."""
    return Task("choice", "choice", Columns("context", "question", "answer"))


def find(name: str) -> Task:
    """Returns the task of a name.

    Raises:
      UserError: there is no such task.
    """
    if name in TASKS:
        return TASKS[name]
    known = (*TASKS, *GENERIC, "ranking", "choice", "embedding")
    raise UserError(f"there is no task {name!r}{nearest(name, known)}: tasks are {listed(known)}")
