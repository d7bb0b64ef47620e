"""Writes the predictions of a split to files."""

import os

import numpy as np

from official.data import ShardDataset
from official.distribution import strategies
from official.evaluation import generated_texts, glue_submission, rows
from official.evaluation.evaluator import Evaluator
from official.utils import paths


def predict(
    evaluator: Evaluator, source: ShardDataset, output: str | os.PathLike, top: int = 0
) -> int:
    """Writes the predictions of a split in the order of the source file.

    For a classification, each line has the number of the row (from 0), the label and the
    probability of each class. A choice has the letters of the choices instead of classes. A
    regression has the number of the row and the score. Tasks of text to text have the text that is
    generated, and the label that it is. `.tsv` has a header line; in `.jsonl` every
    line is an object. A ranking is written as a TREC run with the best candidates of each query
    first. Answers to questions are written to a folder: see `span_answers.Scorer.write`.

    Args:
      evaluator: the evaluator of the model. All workers call this function, the chief writes.
      source: the examples of the split, opened with `training=False`.
      output: the file to write, `.tsv` or `.jsonl`; `.run` for a ranking; a folder for answers.
      top: the maximum number of documents of a query, for rankings; 0 = all candidates.

    Returns:
      The number of rows or of questions.

    Raises:
      UserError: the file has another suffix, the model has no predictions, the data has no row
        numbers, or the folder exists.
    """
    scorer = evaluator.scorer(source)
    scorer.check_output(paths.path(output), top)
    outputs = evaluator.predict(source, scorer.outputs)
    if strategies.is_chief(evaluator.strategy):
        scorer.write(outputs, paths.path(output), top)
    return len(np.unique(outputs["row"]))


def submit(evaluator: Evaluator, source: ShardDataset, folder: str | os.PathLike) -> None:
    """Writes the predictions of a split in the format of GLUE: see `official.submission`.

    Args:
      evaluator: the evaluator of the model. All workers call this function, the chief writes.
      source: the examples of the split.
      folder: the folder of the file. GLUE determines the name of the file.

    Raises:
      UserError: see `predict` and `official.evaluation.glue_submission.write`.
    """
    glue_submission.check(source.manifest.task.name, source.split)
    scorer = evaluator.scorer(source)
    outputs = evaluator.predict(source, scorer.outputs)
    numbers, outputs = rows.in_order(outputs, source)
    if isinstance(scorer, generated_texts.Scorer):
        outputs = scorer.classes_or_scores(outputs)
    if strategies.is_chief(evaluator.strategy):
        task = source.manifest.task.name
        glue_submission.write(folder, task, source.split, numbers, outputs)
