"""Tasks of the kind "embedding", which teach vectors of texts and measure them.

An example has one text or several, each of them a sequence of its own. The `form` of a task says
how the rows of a file become examples:

| form | examples |
|---|---|
| texts | the texts of a row: one, a pair, or a query, a text that suits it, and some that do not |
| margins | a query, a text that suits it, one that does not, and the margin of a teacher |
| teacher_scores | the texts of a row, and the scores of a teacher for the query and the others |
| scores | the two texts of a row, and its score |
| binary | the two texts of a row, and 1 if it has the positive label, else 0 |
| labels | the same, and its label |
| pairs | the two texts of each row with the positive label; or two texts with the same label |
| triples | such a pair, and a text that has the negative label with the same first text |

The positive label is `entailment`, or of tasks without it the second label, as for F1. The negative
label is `contradiction`.
"""

import dataclasses
from collections.abc import Iterable

from official.tasks.kinds import METRICS
from official.tasks.task import Columns, Task
from official.utils.errors import UserError
from official.utils.names import listed

# The kind of the tasks that can have each form. Tasks of a user's columns have one of the other
# forms, or `scores`.
OF_KINDS = {
    "scores": "regression",
    "binary": "classification",
    "labels": "classification",
    "pairs": "classification",
    "triples": "classification",
}
_POSITIVE, _NEGATIVE = "entailment", "contradiction"
# The forms whose examples have the feature `score`, and those whose score is a similarity.
SCORED = ("margins", "scores", "binary", "labels")
ALIKE = SCORED[1:]
# Metrics of examples with a similarity score, and of other examples.
_OF_SCORES, _OF_RANKS = METRICS["embedding"][:3], METRICS["embedding"][3:]
_DEFAULTS = {"scores": _OF_SCORES[:2], "binary": _OF_SCORES[2:], "labels": _OF_SCORES[2:]}


def of_columns(
    columns: Columns,
    negatives: Iterable[str] = (),
    score_range: tuple[float, float] | None = None,
    metrics: Iterable[str] = (),
    name: str = "embedding",
    taught: bool = False,
) -> Task:
    """Returns the task of the texts of a user's columns.

    Args:
      columns: the columns of the text or the query, of the text that suits it, and of the score.
        With a text that does not suit it, the score is the margin by which a teacher prefers the
        text that does.
      negatives: the columns of texts that do not suit the query; in JSON Lines each may be a list.
      score_range: the lowest and the highest score; None = from 0 to 1.
      metrics: the metrics; empty = those of the form.
      name: the name of the task.
      taught: whether the column of the score has a list of the scores of a teacher: for the query
        and the text that suits it, and for the query and each text that does not.

    Raises:
      UserError: the columns do not suit each other, or a metric does not suit them.
    """
    negatives = tuple(negatives)
    if columns.text_pair is None and (negatives or columns.label is not None):
        what = "--negative_columns" if negatives else "--label_column"
        raise UserError(
            f"{what} needs pairs of texts: name the second text with --text_pair_column (pairs of "
            "texts with the same label: --task=classification --embed_as=pairs)"
        )
    form = "texts"
    if columns.label is not None:
        form = "margins" if negatives else "scores"
    if taught:
        form = "teacher_scores"
        if not negatives:
            raise UserError(
                "--teacher_scores_column needs texts that do not suit the query: name them with "
                "--negative_columns"
            )
    if len(negatives) > 1 and form == "margins":
        raise UserError(
            "--label_column has the margin between two texts: name one of --negative_columns="
            f"{','.join(negatives)}, or remove --label_column"
        )
    if form in ("margins", "teacher_scores") and score_range is not None:
        raise UserError("--score_range: numbers of a teacher are taken as they are: remove it")
    if form == "texts" and score_range is not None:
        raise UserError("--score_range needs scores: name their column with --label_column")
    return _task(
        Task(name, "embedding", columns, negative_columns=negatives), form, score_range, metrics
    )


def of_task(
    task: Task,
    form: str,
    score_range: tuple[float, float] | None = None,
    metrics: Iterable[str] = (),
) -> Task:
    """Returns a classification or a regression as the task of learning vectors.

    Args:
      task: the task; its labels may still be unknown.
      form: a key of `OF_KINDS`.
      score_range: the lowest and the highest score; None = that of the task, or from 0 to 1.
      metrics: the metrics; empty = those of the form.

    Raises:
      UserError: the task cannot have the form, or a metric does not suit it.
    """
    pair = task.columns.text_pair is not None
    if task.kind != OF_KINDS[form] or not (pair or form == "pairs"):
        texts = "texts or pairs" if form == "pairs" else "pairs of texts"
        targets = "scores" if form == "scores" else "labels"
        raise UserError(f"--embed_as={form} is for {texts} with {targets}, not for {task.name}")
    if score_range is not None and form != "scores":
        raise UserError(f"--score_range: --embed_as={form} has no scores: remove it")
    files = task.files
    if form in ("pairs", "triples"):  # Test files without labels have none.
        files = {split: name for split, name in files.items() if not split.startswith("test")}
    task = dataclasses.replace(task, files=files)
    made = _task(task, form, score_range, metrics)
    if made.labels:
        check_labels(made)
    return made


def _task(
    task: Task, form: str, score_range: tuple[float, float] | None, metrics: Iterable[str]
) -> Task:
    """Returns a task in a form, with the metrics of the form."""
    suiting = _OF_SCORES if form in ALIKE else _OF_RANKS
    for metric in metrics:
        if metric in METRICS["embedding"] and metric not in suiting:
            raise UserError(
                f"metric {metric!r} does not suit the form {form}: its metrics are "
                f"{listed(suiting)}"
            )
    if form == "scores":
        score_range = score_range or task.score_range or (0.0, 1.0)
        if not score_range[0] < score_range[1]:
            raise UserError(f"--score_range={score_range[0]},{score_range[1]}: the first is lower")
    return dataclasses.replace(
        task,
        kind="embedding",
        form=form,
        score_range=score_range if form == "scores" else None,
        metrics=tuple(metrics) or _DEFAULTS.get(form, _OF_RANKS),
    )


def check_labels(task: Task) -> None:
    """Checks that a task has the labels that its form needs.

    Raises:
      UserError: a label is missing.
    """
    if task.form == "triples" and not {_POSITIVE, _NEGATIVE} <= set(task.labels):
        raise UserError(
            f"--embed_as=triples: {task.name} has no labels {_POSITIVE} and {_NEGATIVE}, only "
            f"{listed(task.labels)}: name them with --labels, or use --embed_as=pairs"
        )


def positive(task: Task) -> int:
    """Returns the number of the positive label."""
    return task.labels.index(_POSITIVE) if _POSITIVE in task.labels else 1


def negative(task: Task) -> int:
    """Returns the number of the negative label, which triples have."""
    return task.labels.index(_NEGATIVE)
