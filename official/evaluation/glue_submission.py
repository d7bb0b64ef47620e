"""Writes predictions in GLUE's format, and the zip file for the benchmark.

Shapes: B examples, C classes.
"""

import math
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from official.tasks import TASKS, Task
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_HEADER = "index\tprediction"
_SCORES = (0.0, 5.0)  # the range of STS-B
_MADE_AT = (1980, 1, 1, 0, 0, 0)  # the same files give the same zip


def write(
    folder: str | os.PathLike,
    name: str,
    split: str,
    rows: np.ndarray,
    outputs: Mapping[str, np.ndarray],
) -> AnyPath:
    """Writes the submission file of a split with the labels of GLUE.

    Args:
      folder: the folder of the file.
      name: the name of the task.
      split: one of its test splits.
      rows: the numbers of the examples in their file, in ascending order [B].
      outputs: `probabilities` [B, C], or `score` [B], which is clipped to the range of STS-B.

    Returns:
      The path of the file.

    Raises:
      UserError: the benchmark has no file for this split, or rows are missing.
    """
    check(name, split)
    task = TASKS[name]
    if missing := sorted(set(range(len(rows))) - set(rows.tolist())):
        raise UserError(
            f"row {missing[0]} of the {split} file of {name} has no prediction: it was left out "
            "when the shards were made. GLUE needs every row: make them without --skip_bad_rows"
        )
    if "score" in outputs:
        values = [f"{score:.3f}" for score in np.clip(outputs["score"], *_SCORES)]
    else:
        values = [task.values[i] for i in outputs["probabilities"].argmax(-1)]
    path = paths.path(folder) / task.submissions[split].file
    with atomic.file(path) as stream:
        stream.write(f"{_HEADER}\n")
        stream.writelines(f"{row}\t{value}\n" for row, value in zip(rows, values, strict=True))
    return path


def check(name: str, split: str) -> None:
    """Refuses a task and a split that the benchmark has no file for.

    Raises:
      UserError: see above.
    """
    task = TASKS.get(name)
    if task is None or split not in task.submissions:
        known = [f"{t.name} ({s})" for t in TASKS.values() for s in t.submissions]
        raise UserError(
            f"GLUE takes no predictions for the {split} split of the task {name}: it takes those "
            f"for {', '.join(known)}"
        )


def pack(folders: Sequence[str | os.PathLike], output: str | os.PathLike) -> list[str]:
    """Writes a zip file with all files of the benchmark.

    Args:
      folders: folders with files of `write`.
      output: the zip file.

    Returns:
      The names of the files in it.

    Raises:
      UserError: a file is missing or exists twice, or has another format than GLUE's.
    """
    files: dict[str, AnyPath] = {}
    missing = []
    for name, task, rows in _wanted():
        candidates = [path for folder in folders if (path := paths.path(folder) / name).is_file()]
        if len(candidates) > 1:
            raise UserError(
                f"{name} is there twice, {candidates[0]} and {candidates[1]}: keep one of them"
            )
        if candidates:
            _check(candidates[0], task, rows)
            files[name] = candidates[0]
        else:
            missing.append(f"{name} (--task={task.name})")
    if missing:
        raise UserError(
            f"{', '.join(map(str, folders))}: no {', '.join(missing)}: GLUE needs all of its "
            "files; --mode=predict --submission=DIR writes those of a model"
        )
    with (
        atomic.file(output, "wb") as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, path in files.items():
            archive.writestr(
                zipfile.ZipInfo(name, _MADE_AT), path.read_bytes(), archive.compression
            )
    return list(files)


def _wanted() -> Iterator[tuple[str, Task, int]]:
    """Yields the files of a submission: name, task and number of rows."""
    for task in TASKS.values():
        for submission in task.submissions.values():
            yield submission.file, task, submission.rows


def _check(path: AnyPath, task: Task, rows: int) -> None:
    """Refuses a file that GLUE would refuse."""
    try:
        header, *lines = path.read_text(encoding="utf-8").splitlines()
    except (UnicodeDecodeError, ValueError):
        raise UserError(f"{path}: not UTF-8, or empty: write it again") from None
    if header != _HEADER:
        raise UserError(f"{path}, line 1: expected {_HEADER!r}, got {header!r}")
    for row, line in enumerate(lines):
        index, _, value = line.partition("\t")
        if index != str(row):
            raise UserError(f"{path}, line {row + 2}: expected index {row}, got {index!r}")
        if not (value in task.values if task.labels else _is_score(value)):
            wanted = "a number from 0 to 5"
            if task.labels:
                wanted = f"one of {', '.join(map(repr, task.values))}"
            raise UserError(f"{path}, line {row + 2}: prediction {value!r} is not {wanted}")
    if len(lines) != rows:
        raise UserError(
            f"{path}: {len(lines):,} predictions, and the test file of {task.name} has {rows:,} "
            "rows: make the shards of the whole file"
        )


def _is_score(text: str) -> bool:
    try:
        score = float(text)
    except ValueError:
        return False
    return math.isfinite(score) and _SCORES[0] <= score <= _SCORES[1]
