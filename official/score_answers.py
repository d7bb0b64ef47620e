"""Prints exact match and F1 of answers to questions, a baseline's or those that predict wrote.

  python -m official.score_answers --data=SHARDS --answers=ANSWERS/predictions.json \
    --null_odds=ANSWERS/null_odds.json

The files are those of SQuAD's released evaluation, a JSON object with each question's id, and so
are the metrics (`official.evaluation.squad_metrics`).
"""

import json
import math
from pathlib import Path

from absl import flags

from official.utils import errors
from official.utils.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("data", None, "Folder of shards, made with --task=squad1 or squad2.")
    flags.DEFINE_string("split", "validation", "Whose questions.")
    flags.DEFINE_string("answers", None, 'JSON: {"id": "answer", ...}, "" = there is none.')
    flags.DEFINE_string(
        "null_odds", None, "squad2, JSON: how much speaks against there being an answer, by id."
    )
    flags.DEFINE_float("threshold", 1.0, "squad2: with more null odds than this there is none.")


def score(
    data: Path, split: str, answers: Path, null_odds: Path | None = None, threshold: float = 1.0
) -> tuple[dict[str, float], int]:
    """Scores a file of answers.

    Args:
      data: shards that hold the questions.
      split: whose.
      answers: a file; answers to other questions are left aside. Of squad1, a question that it
        lacks counts as wrong.
      null_odds: a file, of squad2.
      threshold: of the null odds.

    Returns:
      The metrics, and how many questions there are.

    Raises:
      UserError: a file that is not what it should be, or a question that it lacks.
    """
    from official.evaluation import squad_metrics
    from official.shards import manifest, questions

    found = manifest.read(data)
    asked = questions.read(data, split, found)
    if any(question.answers is None for question in asked):
        raise UserError(f"{data}: the {split} split has no answers to compare with")
    no_answers = bool(found.task.no_answers)
    if null_odds is not None and not no_answers:
        raise UserError(f"--null_odds={null_odds}: every question of {found.task.name} has one")
    metrics = squad_metrics.evaluate(
        _read(answers, str, "a text"),
        {question.id: question.answers for question in asked},
        no_answers,
        None if null_odds is None else _read(null_odds, float, "a number"),
        threshold,
    )
    return metrics, len(asked)


def _read(path: Path, kind: type, wanted: str) -> dict:
    """A JSON object whose values are all of one type."""
    try:
        values = json.loads(Path(path).read_bytes())
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
            raise UserError(f"{path}: {key!r} is {value!r:.60}, but {wanted} is wanted")
    return values


def main(argv: list[str]) -> None:
    """Scores what the flags name."""
    del argv
    errors.require(FLAGS, "data", "answers")
    odds = Path(FLAGS.null_odds) if FLAGS.null_odds else None
    metrics, count = score(
        Path(FLAGS.data), FLAGS.split, Path(FLAGS.answers), odds, FLAGS.threshold
    )
    print(f"{'questions':28} {count}")
    for name, value in metrics.items():
        print(f"{name:28} {value:.6f}")


if __name__ == "__main__":
    define_flags()
    errors.run(main)
