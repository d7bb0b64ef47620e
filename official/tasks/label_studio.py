"""Makes rows of the tasks of Label Studio, which its export in JSON has.

A task has its `data`, and `annotations` of one or more annotators with `result`s. Its row has the
keys of the data, `spans` with the regions of all results of the type `labels`, and each other
result under the name of its control (`from_name`): the choices as texts, a rating or a number.
The export JSON-MIN has such rows already, with the regions under the name of their control.
"""

import json
from typing import Any

from official.utils.text_lines import BadRows

SPANS = "spans"
WITHOUT = "without an annotation"
_SINGLE = {"rating": "rating", "number": "number"}
_OBJECTS = ('{"choices":', '[{"rating":', '[{"number":')


def is_task(value: dict) -> bool:
    """Returns whether an object is a task of Label Studio."""
    return isinstance(value.get("data"), dict) and (
        isinstance(value.get("annotations"), list) or isinstance(value.get("completions"), list)
    )


def row_of(task: dict, where: str, bad: BadRows, labeled: bool = True) -> dict | None:
    """Returns the row of a task; None if it is left out, which is counted.

    Annotations that were skipped or canceled do not count. If some of the others are marked as
    ground truth, only these count. If several are left, they have to agree.

    Args:
      task: the task.
      where: its file and line, for messages.
      bad: counts tasks without an annotation, and is called with those that cannot be used.
      labeled: whether tasks must have an annotation.
    """
    given = task.get("annotations", task.get("completions"))
    if not given and not labeled:
        return dict(task["data"])
    if not given:
        bad.leave_out(WITHOUT)
        return None
    kept = [each for each in given if isinstance(each, dict) and not _is_cancelled(each)]
    if not kept:
        bad.leave_out("marked was_cancelled=True")
        return None
    kept = [each for each in kept if each.get("ground_truth") is True] or kept
    rows = [{**task["data"], **_results(each)} for each in kept]
    if any(_compared(row) != _compared(rows[0]) for row in rows):
        bad(
            "annotators disagree",
            f"{where}: {len(rows)} annotations differ: mark one as ground truth in Label Studio, "
            "or export one of each task",
        )
        return None
    return rows[0]


def plain(value: Any) -> Any:
    """Returns the choices, the rating or the number that a cell of JSON-MIN, CSV or TSV holds.

    Other values are returned as they are.
    """
    if isinstance(value, str) and value.startswith(_OBJECTS):
        try:
            return plain(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, dict) and value.keys() == {"choices"}:
        return value["choices"]
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        (only,) = value
        found = [only[key] for key in _SINGLE.values() if only.keys() == {key}]
        return found[0] if found else value
    return value


def _is_cancelled(annotation: dict) -> bool:
    return bool(annotation.get("was_cancelled") or annotation.get("skipped"))


def _results(annotation: dict) -> dict[str, Any]:
    """Returns the results of an annotation by their keys."""
    row: dict[str, Any] = {SPANS: []}
    for result in annotation.get("result") or ():
        if not isinstance(result, dict):
            continue
        kind, value = result.get("type"), result.get("value")
        if kind == "relation" or not isinstance(value, dict):
            row.setdefault("relations", []).append(result)
            continue
        if "labels" in value or "hypertextlabels" in value or "paragraphlabels" in value:
            row[SPANS].append(value)
            continue
        name = str(result.get("from_name"))
        if kind in _SINGLE:
            row[name] = value.get(_SINGLE[kind])
        elif isinstance(value.get("choices"), list):
            row[name] = [*row.get(name, []), *value["choices"]]
        else:
            row[name] = value
    return row


def _compared(row: dict) -> str:
    """Returns the values by which two annotations of a task are compared."""
    spans = sorted(json.dumps(_place(span)) for span in row[SPANS])
    others = {key: value for key, value in row.items() if key not in (SPANS, "relations")}
    return json.dumps([spans, others], sort_keys=True)


def _place(span: dict) -> list:
    return [span.get(key) for key in ("start", "end", "labels")]
