"""Classifications of pairs whose rows are compared with each other, not judged one by one.

A question of QNLI stands with several sentences, one of which answers it. In a ranking the sentence
with the highest score has the label `entailment`. A sentence of WNLI stands with several candidates
for one of its pronouns, one of which is right (RoBERTa; Liu et al., 2019, section 5.1).
"""

import dataclasses

from official.tasks.kinds import METRICS
from official.tasks.task import Task, listed, nearest
from official.utils.errors import UserError

# The kinds of such tasks, and the flags that ask for them.
FLAGS = {"pair_ranking": "--rank_pairs", "pronoun": "--fill_pronouns"}


def of_task(task: Task, kind: str, best: str) -> Task:
    """Returns a classification of pairs as a task whose rows are compared.

    Args:
      task: the task; its labels may still be unknown.
      kind: a key of `FLAGS`.
      best: the label of the best row.

    Raises:
      UserError: the task is no classification of pairs, or does not have this and one other label.
    """
    if task.kind != "classification" or task.columns.text_pair is None:
        raise UserError(
            f"{FLAGS[kind]} is for classifications of pairs of texts, not for {task.name}: remove "
            "it"
        )
    task = dataclasses.replace(task, kind=kind, best=best, metrics=METRICS[kind])
    if task.labels:
        check_labels(task)
    return task


def check_labels(task: Task) -> None:
    """Checks that a task has the label of its best rows and one other label.

    Raises:
      UserError: see above.
    """
    flag = FLAGS[task.kind]
    if task.best not in task.labels:
        raise UserError(
            f"{flag}={task.best}: {task.name} has no such label{nearest(task.best, task.labels)}: "
            f"its labels are {listed(task.labels)}"
        )
    if len(task.labels) != 2:
        raise UserError(
            f"{flag}: {task.name} has {len(task.labels)} labels, and rows that are compared have "
            "two: that of the best row, and that of the others"
        )
