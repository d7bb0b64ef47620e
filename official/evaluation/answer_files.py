"""Scores files of answers in the format of SQuAD's released evaluation."""

import json
import math
from typing import TypeVar

from official.evaluation import squad_metrics
from official.shards import manifest, side_texts
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_Value = TypeVar("_Value", str, float)


def score(
    data: AnyPath,
    split: str,
    answers: AnyPath,
    null_odds: AnyPath | None = None,
    threshold: float = 1.0,
) -> tuple[dict[str, float], int]:
    """Scores a file of answers.

    Args:
      data: a folder of shards that contains the questions.
      split: the split of the questions.
      answers: a JSON file. Answers to other questions are ignored. For squad1, a question without
        an answer counts as wrong.
      null_odds: a JSON file, for squad2.
      threshold: questions with higher null odds count as not answered.

    Returns:
      The metrics, and the number of questions.

    Raises:
      UserError: a file has another format or lacks a question.
    """
    folder = manifest.read(data)
    asked = side_texts.read_questions(data, split, folder).values()
    if any(question.answers is None for question in asked):
        raise UserError(f"{data}: the {split} split has no answers to compare with")
    no_answers = bool(folder.task.no_answers)
    if null_odds is not None and not no_answers:
        raise UserError(f"--null_odds={null_odds}: every question of {folder.task.name} has one")
    metrics = squad_metrics.evaluate(
        _read(answers, str, "a text"),
        {question.id: question.answers for question in asked},
        no_answers,
        None if null_odds is None else _read(null_odds, float, "a number"),
        threshold,
    )
    return metrics, len(asked)


def _read(path: AnyPath, kind: type[_Value], description: str) -> dict[str, _Value]:
    """Reads a JSON object whose values all have the same type."""
    try:
        values = json.loads(paths.path(path).read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} holds a {type(values).__name__}, but an object is wanted")
    for key, value in values.items():
        if kind is float and type(value) is int:
            values[key] = value = float(value)
        if not isinstance(value, kind) or (kind is float and not math.isfinite(value)):
            raise UserError(f"{path}: {key!r} is {value!r:.60}, but {description} is wanted")
    return values
