"""Rows of annotation tools: which rows to leave out, and which keys are not read.

The export of a tool may have rows that should not be used, and keys that mark them (`MARKS`):
Prodigy writes the decision of the annotator as `answer`, other tools have a `status`. A marked row
is left out and counted. A key that is read as a text or as a label is not a mark. `label_studio`
converts the tasks of Label Studio to such rows.

Keys that are not read are counted, except those in `BOOKKEEPING`, which tools write for themselves.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from official.tasks import label_studio
from official.utils import json_rows
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows

# The values that mark a row to leave out, in lower case.
MARKS: Mapping[str, tuple[str | bool, ...]] = {
    "answer": ("reject", "ignore"),  # Prodigy; the third value is `accept`
    "status": ("discarded", "rejected", "skipped", "ignored"),  # Argilla and others
    "is_gold": (False,),
    "was_cancelled": (True,),  # Label Studio
    "skipped": (True,),
}
# The values that mark a row to use. A key with any other value counts as one that is not read.
USED: Mapping[str, tuple[str | bool, ...]] = {
    "answer": ("accept",),
    "status": ("accepted", "approved", "validated", "submitted", "completed"),
    "is_gold": (True,),
    "was_cancelled": (False,),
    "skipped": (False,),
}
ANNOTATION = "annotation_id"
BOOKKEEPING = frozenset(
    (
        *("id", "idx", "row", "meta"),
        # Prodigy
        *("_input_hash", "_task_hash", "_session_id", "_view_id", "_annotator_id", "_timestamp"),
        # doccano
        *("Comments", "annotation_approver"),
        # Label Studio
        *("annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement"),
    )
)


def objects(
    path: AnyPath, bad: BadRows, labeled: bool = True, read: Collection[str] = ()
) -> Iterator[tuple[int, int, dict]]:
    """Yields the number, the line and the object of each row to use.

    Args:
      path: a file of JSON Lines, or of one list of JSON.
      bad: counts what is left out, and is called with what cannot be used.
      labeled: whether the rows must have labels.
      read: the keys that are read as texts or labels, which are not marks.
    """
    for number, line, value in json_rows.objects(path, bad):
        row: dict | None = value
        if label_studio.is_task(value):
            row = label_studio.row_of(value, f"{path}, line {line}", bad, labeled)
        if row is None:
            continue
        if reason := mark(row, labeled, read):
            bad.leave_out(reason)
            continue
        yield number, line, row


def mark(row: Mapping[str, Any], labeled: bool = True, read: Collection[str] = ()) -> str:
    """Returns the mark by which a row is left out; "" if it has none.

    Args:
      row: the values of a row by their keys, texts of a table or values of JSON.
      labeled: whether the row must have labels.
      read: the keys that are read as texts or labels.
    """
    for key, values in MARKS.items():
        if key in row and key not in read and _is_one_of(row[key], values):
            return f"marked {key}={row[key]}"
    # Label Studio exports a task without an annotation as a row whose annotation has no id.
    if labeled and ANNOTATION in row and row[ANNOTATION] in (None, "") and ANNOTATION not in read:
        return label_studio.WITHOUT
    return ""


def unread(row: Mapping[str, Any], read: Collection[str]) -> list[str]:
    """Returns the keys of a row that are not read."""
    return [
        key
        for key, value in row.items()
        if key not in read and key not in BOOKKEEPING and not _is_one_of(value, USED.get(key, ()))
    ]


def _is_one_of(value: Any, known: tuple[str | bool, ...]) -> bool:
    """Returns whether a value is in `known`, whatever its case; "true" equals True."""
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value.lower())
    return isinstance(value, str | bool) and value in known
