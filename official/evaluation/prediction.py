"""Predictions of a whole split, in files."""

import os
from pathlib import Path

import numpy as np

from official.data import ShardDataset
from official.distribution import strategies
from official.evaluation import glue_submission, rows
from official.evaluation.evaluator import Evaluator


def predict(
    evaluator: Evaluator, source: ShardDataset, output: str | os.PathLike, top: int = 0
) -> int:
    """Writes the predictions of a split, in the order of the source file.

    A classification gives, one line a row, the number of the row (from 0), the label and the
    probability of every class; a choice the same of the letters of its choices; a regression the
    number of the row and the score. `.tsv` has a header line; in `.jsonl` every line is an object.
    A ranking is written as a TREC run, the candidates of each query from the best on. Answers to
    questions are written into a folder: see `span_answers.Scorer.write`.

    Args:
      evaluator: of the model; all workers call this, the chief writes.
      source: of the split, opened with `training=False`.
      output: the file to write, `.tsv` or `.jsonl`; of a ranking `.run`; of spans the folder.
      top: of a ranking, the largest number of documents of a query; 0 = all its candidates.

    Returns:
      The number of rows, or of questions.

    Raises:
      UserError: another file ending, a model that predicts nothing, or data without rows; a folder
        that exists.
    """
    scorer = evaluator.scorer(source)
    scorer.check_output(Path(output), top)
    outputs = evaluator.predict(source, scorer.outputs)
    if strategies.is_chief(evaluator.strategy):
        scorer.write(outputs, Path(output), top)
    return len(np.unique(outputs["row"]))


def submit(evaluator: Evaluator, source: ShardDataset, folder: str | os.PathLike) -> None:
    """Writes what GLUE takes as the predictions of a split: see `official.submission`.

    Args:
      evaluator: of the model; all workers call this, the chief writes.
      source: of the split.
      folder: for the file, whose name the benchmark has given.

    Raises:
      UserError: as `predict` and `official.evaluation.glue_submission.write`.
    """
    outputs = evaluator.predict(source, evaluator.scorer(source).outputs)
    numbers, outputs = rows.in_order(outputs, source)
    if strategies.is_chief(evaluator.strategy):
        task = source.manifest.task.name
        glue_submission.write(folder, task, source.split, numbers, outputs)
