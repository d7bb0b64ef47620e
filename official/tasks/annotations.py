"""Rows of annotation tools: which of them are not to be used, and which keys nobody reads.

A tool's export has more rows than those to learn from, and keys that say so (`MARKS`): Prodigy
writes the decision of the annotator as `answer`, others have a `status`. A row that is marked is
left out and counted. A key that is read as a text or as a label is no mark. `label_studio` makes
such rows of the tasks of Label Studio.

Keys that nobody reads are counted, but for those in `BOOKKEEPING`, which tools write for
themselves.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from official.tasks import label_studio
from official.utils import json_rows
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows

# The values that say that a row is not to be used, in lower case.
MARKS: Mapping[str, tuple[str | bool, ...]] = {
    "answer": ("reject", "ignore"),  # Prodigy; the third value is `accept`
    "status": ("discarded", "rejected", "skipped", "ignored"),  # Argilla and others
    "is_gold": (False,),
    "was_cancelled": (True,),  # Label Studio
    "skipped": (True,),
}
# The values that say that a row is to be used; a key with any other value is one that nobody reads.
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
    path: AnyPath, bad: BadRows, labelled: bool = True, read: Collection[str] = ()
) -> Iterator[tuple[int, int, dict]]:
    """Yields the number, the line and the object of each row that is to be used.

    Args:
      path: a file of JSON Lines, or of one list of JSON.
      bad: counts what is left out, and is called with what cannot be used.
      labelled: whether the rows must have labels.
      read: the keys that are read as texts or labels, which are no marks.
    """
    for number, line, value in json_rows.objects(path, bad):
        row: dict | None = value
        if label_studio.is_task(value):
            row = label_studio.row_of(value, f"{path}, line {line}", bad, labelled)
        if row is None:
            continue
        if reason := mark(row, labelled, read):
            bad.leave_out(reason)
            continue
        yield number, line, row


def mark(row: Mapping[str, Any], labelled: bool = True, read: Collection[str] = ()) -> str:
    """Returns why a row says that it is not to be used; "" if it does not say so.

    Args:
      row: the values of a row by their keys, texts of a table or values of JSON.
      labelled: whether the row must have labels.
      read: the keys that are read as texts or labels.
    """
    for key, values in MARKS.items():
        if key in row and key not in read and _is_one_of(row[key], values):
            return f"marked {key}={row[key]}"
    # Label Studio exports a task without an annotation as a row whose annotation has no id.
    if labelled and ANNOTATION in row and row[ANNOTATION] in (None, "") and ANNOTATION not in read:
        return label_studio.WITHOUT
    return ""


def unread(row: Mapping[str, Any], read: Collection[str]) -> list[str]:
    """Returns the keys of a row that nobody reads."""
    return [
        key
        for key, value in row.items()
        if key not in read and key not in BOOKKEEPING and not _is_one_of(value, USED.get(key, ()))
    ]


def _is_one_of(value: Any, known: tuple[str | bool, ...]) -> bool:
    """Returns whether a value is a known one; capitals and the texts of booleans do not matter."""
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value.lower())
    return isinstance(value, str | bool) and value in known
