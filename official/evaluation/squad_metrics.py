"""Exact match and F1 of answers, with the results of SQuAD's released evaluation.

An answer is compared in lower case, without punctuation (ASCII signs), the words a, an and the, and
with single blanks; F1 counts the words that two answers share, however often each occurs; the best
of several right answers counts (Rajpurkar et al., 2016, section 6.1; 2018 for questions without an
answer). All metrics are percentages.

The two versions' evaluations differ where nothing is left of an answer: of 1.1, F1 is then 0; of
2.0, it is 1 where nothing is left of the other either, and right answers of which nothing is left
do not count.
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from official.utils.errors import UserError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_SIGNS = str.maketrans("", "", string.punctuation)


class Score(NamedTuple):
    """Of one answer, each between 0 and 1."""

    exact: float
    f1: float


def normalize(answer: str) -> str:
    """What of an answer is compared."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_SIGNS)).split())


def overlap(answer: str, right: str, empty: bool = False) -> float:
    """F1 of the words of two answers; `empty`: 1 where neither has any, as in version 2.0."""
    ours, theirs = normalize(answer).split(), normalize(right).split()
    if empty and not (ours and theirs):
        return float(ours == theirs)
    shared = sum((collections.Counter(ours) & collections.Counter(theirs)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(ours), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)


def score(answer: str, right: Sequence[str], no_answers: bool = False) -> Score:
    """Compares an answer with the right ones.

    Args:
      answer: empty = none.
      right: the right ones; empty = there is none (version 2.0).
      no_answers: whether as version 2.0 has it.
    """
    if no_answers:
        right = [text for text in right if normalize(text)] or [""]
    exact = max(float(normalize(answer) == normalize(text)) for text in right)
    return Score(exact, max(overlap(answer, text, no_answers) for text in right))


def evaluate(
    answers: Mapping[str, str],
    right: Mapping[str, Sequence[str]],
    no_answers: bool = False,
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Scores answers as the released evaluation does.

    Args:
      answers: by the question's id.
      right: the right answers to each question. Of version 1.1, one that `answers` lacks counts as
        wrong.
      no_answers: whether as version 2.0 has it; then every question must be answered, if by "".
      null_odds: how much speaks against there being an answer; None = nothing does.
      threshold: questions with more than that count as answered by "".

    Returns:
      `exact_match` and `f1`; of version 2.0 also `has_answer_exact_match`, `has_answer_f1`,
      `no_answer_exact_match` and `no_answer_f1` where there are such questions, and with
      `null_odds` `best_exact_match`, `best_f1` and the thresholds that give them,
      `best_exact_match_threshold` and `best_f1_threshold`.

    Raises:
      UserError: there is no question, or one of version 2.0 without an answer or odds.
    """
    if not right:
        raise UserError("there are no questions to score answers to")
    if not no_answers:
        scores = {key: score(answers[key], right[key]) for key in right if key in answers}
        return _means("", scores.values(), len(right))
    for name, given in (("answer", answers), ("null odds", null_odds)):
        lacking = [key for key in right if given is not None and key not in given]
        if lacking:
            raise UserError(f"question {lacking[0]!r} has no {name}, and {len(lacking) - 1} more")
    raw = {key: score(answers[key], right[key], True) for key in right}
    answered = {key: bool(right[key]) for key in right}
    decided = raw
    if null_odds is not None:
        decided = {
            key: Score(*[float(not answered[key])] * 2) if null_odds[key] > threshold else found
            for key, found in raw.items()
        }
    metrics = _means("", decided.values(), len(right))
    for name, wanted in (("has_answer", True), ("no_answer", False)):
        chosen = [decided[key] for key in right if answered[key] == wanted]
        if chosen:
            metrics |= _means(f"{name}_", chosen, len(chosen))
    if null_odds is not None:
        for place, name in enumerate(("exact_match", "f1")):
            values = {key: found[place] for key, found in raw.items()}
            best, at = best_threshold(answers, values, null_odds, answered)
            metrics |= {f"best_{name}": best, f"best_{name}_threshold": at}
    return metrics


def best_threshold(
    answers: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
    answered: Mapping[str, bool],
) -> tuple[float, float]:
    """The best mean score that a threshold of the odds gives, as a percentage, and the threshold.

    Args:
      answers: by the question's id.
      scores: of each of them.
      null_odds: questions of which this is at most the threshold keep their answers.
      answered: whether the question has an answer.

    Returns:
      Both; the threshold is 0 where it is best to give no answer at all.
    """
    current = float(sum(not answered[key] for key in scores))
    best, threshold = current, 0.0
    for key in sorted((key for key in null_odds if key in scores), key=null_odds.__getitem__):
        current += scores[key] if answered[key] else -float(bool(answers[key]))
        if current > best:
            best, threshold = current, null_odds[key]
    return 100.0 * best / len(scores), threshold


def _means(name: str, scores, count: int) -> dict[str, float]:
    scores = list(scores)
    return {
        f"{name}exact_match": 100.0 * sum(found.exact for found in scores) / count,
        f"{name}f1": 100.0 * sum(found.f1 for found in scores) / count,
    }
