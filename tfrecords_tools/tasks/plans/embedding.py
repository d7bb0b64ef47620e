"""Flags of tasks of the vectors of texts."""

import dataclasses

from absl import flags

from official.tasks import Columns, Task, embeddings
from official.utils.errors import UserError
from official.utils.flag_table import Flag

FLAGS = (
    Flag(
        "embed_as",
        str,
        None,
        "embedding: learn vectors of texts from pairs with scores (stsb); from pairs that have the "
        "positive label, which is entailment or else the second one, and pairs that have not "
        "(binary: qqp, mrpc), with the labels too (labels: mnli); from those that have it (pairs; "
        "of single texts, two with one label); or from these with a contradiction (triples: mnli)",
        values=tuple(embeddings.OF_KINDS),
    ),
    Flag(
        "negative_columns",
        list,
        None,
        "embedding: columns of texts that do not suit the query; in JSON Lines and Parquet, lists "
        "of texts too",
    ),
    Flag(
        "teacher_scores_column",
        str,
        None,
        "embedding: column of the scores of a teacher, such as a cross-encoder: for the query and "
        "the second text, and for the query and each negative; in JSON Lines a list, in other "
        "files numbers with blanks between them",
    ),
    Flag(
        "score_range",
        list,
        None,
        "embedding: lowest and highest score in the files, which become 0 and 1; default: 0,1, of "
        "stsb 0,5; regression: the same, of scores that stay as they are (-1 outside is no score)",
    ),
    Flag(
        "task_name",
        str,
        None,
        "embedding: name of the task, in metrics of several; default: that of --task",
    ),
)


def score_range(options: flags.FlagValues) -> tuple[float, float] | None:
    """Returns the lowest and the highest score; None = not given."""
    if not options.score_range:
        return None
    try:
        low, high = map(float, options.score_range)
    except ValueError:
        raise UserError(
            f"--score_range={','.join(options.score_range)}: expected two numbers, such as 0,5"
        ) from None
    return low, high


def plan(options: flags.FlagValues) -> Task:
    """Returns the task of the vectors of the texts in the columns that the flags name."""
    if options["labels"].present:
        raise UserError(
            "--labels is not for --task=embedding: for texts with labels use "
            "--task=classification with --embed_as"
        )
    taught = options.teacher_scores_column
    if taught and options.label_column:
        raise UserError("--label_column is not for --teacher_scores_column: remove one of them")
    label = taught or options.label_column
    return embeddings.of_columns(
        Columns(options.text_column, options.text_pair_column, label, options.header),
        options.negative_columns or (),
        score_range(options),
        options.metrics or (),
        taught=bool(taught),
    )


def embedded(task: Task, options: flags.FlagValues) -> Task:
    """Returns the task, or with --embed_as that of learning vectors from its rows."""
    if not options.embed_as:
        return task
    metrics = options.metrics or ()
    return embeddings.of_task(task, options.embed_as, score_range(options), metrics)


def completed(task: Task, options: flags.FlagValues) -> Task:
    """Returns the task with the name that --task_name gives."""
    return dataclasses.replace(task, name=options.task_name) if options.task_name else task
