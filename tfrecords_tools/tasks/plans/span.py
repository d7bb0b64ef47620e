"""Flags of questions whose answers are spans of a context."""

import dataclasses

from absl import flags

from official.tasks import Task, answer_rules
from official.utils.flag_table import Flag

DOC_STRIDE, MAX_QUERY_LENGTH = 128, 64
FLAGS = (
    Flag(
        "doc_stride",
        int,
        DOC_STRIDE,
        "span tasks: tokens from the start of a window of a long context to the next",
    ),
    Flag(
        "max_query_length",
        int,
        MAX_QUERY_LENGTH,
        "span tasks: largest number of tokens of a question",
    ),
    Flag(
        "answers",
        str,
        answer_rules.DEFAULT,
        "span tasks: how exact match and F1 compare answers: as the evaluation of SQuAD (of "
        "English), MLQA (mlqa: and the language), KorQuAD 1.0 or CMRC 2018 does, or by characters",
        values=tuple(answer_rules.RULES),
    ),
)


def completed(task: Task, options: flags.FlagValues) -> Task:
    """Returns a task of spans with its rule, and any other task as it is."""
    if task.kind != "span":
        return task
    return dataclasses.replace(task, answer_rule=options.answers)
