"""Exact match and F1 of answers, or of files of them, as SQuAD's released evaluation has them.

Two answers are compared by a rule of `official.tasks.answer_rules`: SQuAD's own, which is of
English, or that of another evaluation. By SQuAD's, an answer is lower-cased, ASCII punctuation and
the words a, an and the are removed, blanks become single, and F1 counts the words that two answers
share, with repetition. If a question has several right answers, the best score counts (Rajpurkar et
al., 2016, section 6.1; 2018 for questions without an answer). Metrics are between 0 and 1; the
released evaluation prints percentages.

The evaluations of the two versions differ if a normalized answer is empty. In version 1.1, F1 is
then 0. In version 2.0, F1 is 1 if both answers are empty, and empty right answers do not count.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from official.shards import manifest, side_texts
from official.tasks import answer_rules
from official.utils import input_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_Value = TypeVar("_Value", str, float)


class Score(NamedTuple):
    """The scores of an answer, between 0 and 1."""

    exact: float
    f1: float


class ScoredAnswer(NamedTuple):
    """An answer for the choice of a threshold.

    Attributes:
      score: the score of the answer, between 0 and 1.
      null_odds: the score of having no answer.
      is_empty: whether the answer is empty.
      has_answer: whether the question has an answer.
    """

    score: float
    null_odds: float
    is_empty: bool
    has_answer: bool


def evaluate(
    answers: Mapping[str, str],
    right: Mapping[str, Sequence[str]],
    no_answers: bool = False,
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
    rule: str | None = None,
) -> dict[str, float]:
    """Scores answers as the released evaluation does.

    Args:
      answers: the answers by the ids of the questions.
      right: the right answers to each question. In version 1.1, a question that is not in
        `answers` counts as wrong.
      no_answers: whether to follow version 2.0. Then `answers` must contain every question.
      null_odds: the score of having no answer, by the ids of the questions; None = every answer
        counts as it is.
      threshold: questions with higher null odds count as answered by "".
      rule: how two answers are compared, a key of `answer_rules.RULES`; None = SQuAD's.

    Returns:
      `exact_match` and `f1`. In version 2.0 also `has_answer_exact_match`, `has_answer_f1`,
      `no_answer_exact_match` and `no_answer_f1` if there are such questions. With `null_odds` also
      `best_exact_match`, `best_f1` and the thresholds that give them,
      `best_exact_match_threshold` and `best_f1_threshold`.

    Raises:
      UserError: there is no question, or in version 2.0 a question has no answer or no null odds.
    """
    if not right:
        raise UserError("there are no questions to score answers to")
    if not no_answers:
        scores = {
            key: score(answers[key], right[key], False, rule) for key in right if key in answers
        }
        return _means("", scores.values(), len(right))
    for name, given in (("answer", answers), ("null odds", null_odds)):
        lacking = [key for key in right if given is not None and key not in given]
        if lacking:
            raise UserError(f"question {lacking[0]!r} has no {name}, and {len(lacking) - 1} more")
    raw = {key: score(answers[key], right[key], True, rule) for key in right}
    has_answer = {key: bool(right[key]) for key in right}
    decided = raw
    if null_odds is not None:
        decided = {
            key: Score(*[float(not has_answer[key])] * 2) if null_odds[key] > threshold else given
            for key, given in raw.items()
        }
    metrics = _means("", decided.values(), len(right))
    for name, wanted in (("has_answer", True), ("no_answer", False)):
        chosen = [decided[key] for key in right if has_answer[key] == wanted]
        if chosen:
            metrics |= _means(f"{name}_", chosen, len(chosen))
    if null_odds is not None:
        for i, name in enumerate(("exact_match", "f1")):
            best, threshold = best_threshold(
                [
                    ScoredAnswer(raw[key][i], odds, not answers[key], has_answer[key])
                    for key, odds in null_odds.items()
                    if key in raw
                ]
            )
            metrics |= {f"best_{name}": best, f"best_{name}_threshold": threshold}
    return metrics


def right_answers(questions: Iterable[side_texts.Question]) -> dict[str, Sequence[str]] | None:
    """Returns the right answers by the ids of the questions; None if some are not known."""
    right: dict[str, Sequence[str]] = {}
    for question in questions:
        if question.answers is None:
            return None
        right[question.id] = question.answers
    return right


def score_file(
    data: AnyPath,
    split: str,
    answers: AnyPath,
    null_odds: AnyPath | None = None,
    threshold: float = 1.0,
    rule: str | None = None,
) -> tuple[dict[str, float], int, str]:
    """Scores a file of answers.

    Args:
      data: a folder of shards that contains the questions.
      split: the split of the questions.
      answers: a JSON file. Answers to other questions are ignored. For squad1, a question without
        an answer counts as wrong.
      null_odds: a JSON file, for squad2.
      threshold: questions with higher null odds count as not answered.
      rule: how two answers are compared, a key of `answer_rules.RULES`; None = as the shards say.

    Returns:
      The metrics, the number of questions, and the rule.

    Raises:
      UserError: a file has another format or lacks a question.
    """
    folder = manifest.read(data)
    questions = side_texts.read_questions(data, split, folder).values()
    right = right_answers(questions)
    if right is None:
        raise UserError(f"{data}: the {split} split has no answers to compare with")
    task = folder.task_of(data)
    no_answers = bool(task.no_answers)
    if null_odds is not None and not no_answers:
        raise UserError(f"--null_odds={null_odds}: not supported for {task.name}; remove it")
    metrics = evaluate(
        _read_values(answers, str, "a text"),
        right,
        no_answers,
        None if null_odds is None else _read_values(null_odds, float, "a number"),
        threshold,
        rule := rule or task.answer_rule or answer_rules.DEFAULT,
    )
    return metrics, len(questions), rule


def percentages(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the result of `evaluate` as the released evaluation prints it; thresholds stay."""
    return {k: v if k.endswith("_threshold") else 100 * v for k, v in metrics.items()}


def best_threshold(answers: Sequence[ScoredAnswer]) -> tuple[float, float]:
    """Chooses the threshold of the null odds that gives the best mean score.

    Returns:
      The best mean score, and the threshold. The threshold is 0 if it is best to
      give no answers at all.
    """
    # Without answers, the questions that have none are right. Then answers are given one by one.
    total = float(sum(not answer.has_answer for answer in answers))
    best, threshold = total, 0.0
    for answer in sorted(answers, key=lambda answer: answer.null_odds):
        total += answer.score if answer.has_answer else -float(not answer.is_empty)
        if total > best:
            best, threshold = total, answer.null_odds
    return best / len(answers), threshold


def score(
    answer: str, right: Sequence[str], no_answers: bool = False, rule: str | None = None
) -> Score:
    """Compares an answer with the right answers.

    Args:
      answer: the answer; empty = no answer.
      right: the right answers; empty = the question has no answer (version 2.0).
      no_answers: whether to follow version 2.0.
      rule: how two answers are compared, a key of `answer_rules.RULES`; None = SQuAD's.
    """
    compared = answer_rules.rule_of(rule)
    if no_answers:
        right = [text for text in right if compared.normalize(text)] or [""]
    exact = max(float(compared.equal(answer, text)) for text in right)
    return Score(exact, max(compared.overlap(answer, text, no_answers) for text in right))


def normalize(answer: str) -> str:
    """Returns what SQuAD's rule compares of an answer."""
    return answer_rules.rule_of(None).normalize(answer)


def _means(prefix: str, scores: Iterable[Score], count: int) -> dict[str, float]:
    scores = list(scores)
    return {
        f"{prefix}exact_match": sum(score.exact for score in scores) / count,
        f"{prefix}f1": sum(score.f1 for score in scores) / count,
    }


def _read_values(path: AnyPath, kind: type[_Value], description: str) -> dict[str, _Value]:
    """Reads a JSON object whose values all have the same type."""
    content = input_files.read(paths.path(path))
    try:
        values = json.loads(content)
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} holds a {type(values).__name__}, expected an object")
    for key, value in values.items():
        if kind is float and type(value) is int:
            values[key] = value = float(value)
        if not isinstance(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
            raise UserError(f"{path}: {key!r} is {value!r:.60}, expected {description}")
    return values
