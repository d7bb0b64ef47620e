"""Exact match and F1 against an evaluation written apart from ours, on perturbed predictions."""

import string

import numpy as np
import pytest

from official.evaluation import squad_metrics
from official.tasks import answer_rules
from official.utils.errors import UserError

FILES = 500
TEXTS = [
    *("the", "a", "An", "", "the U.S.", "US", "u.s", "the the cat", "cat", "The Cat!", "1,000"),
    *("1000", "naïve café", "NAÏVE  CAFÉ", "naïve", "aan", "a-b", "ab", "—", "“the”", "!"),
    *("in 1999", "1999 in", "the theatre", "theatre", "cat cat", "cat the cat dog", "dog\tcat\n"),
    *("Ａn", "an\u00a0apple"),
]


def words_by_hand(text):
    """The words that are compared: a loop over characters instead of patterns."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    words, word = [], ""
    for character in kept + " ":
        if character.isalnum() or character == "_":
            word += character
            continue
        words.append("" if word in ("a", "an", "the") else word)
        words.append(character)
        word = ""
    return "".join(" " if part == "" else part for part in words).split()


def f1_by_hand(answer, right, two):
    ours, theirs = words_by_hand(answer), words_by_hand(right)
    if two and (ours == [] or theirs == []):
        return 1.0 if ours == theirs else 0.0
    left, same = list(theirs), 0
    for word in ours:
        if word in left:
            left.remove(word)
            same += 1
    return 2 * same / (len(ours) + len(theirs)) if same else 0.0


def by_hand(answers, right, two, odds, threshold):
    exact, f1 = {}, {}
    for key, texts in right.items():
        if key not in answers:
            exact[key] = f1[key] = 0.0
            continue
        if two:
            texts = [text for text in texts if words_by_hand(text)] or [""]
        exact[key] = max(float(words_by_hand(answers[key]) == words_by_hand(t)) for t in texts)
        f1[key] = max(f1_by_hand(answers[key], text, two) for text in texts)
    figures = {}
    for name, scores in (("exact_match", exact), ("f1", f1)):
        decided = dict(scores)
        if two:
            for key in right:
                if odds[key] > threshold:
                    decided[key] = float(right[key] == [])
        figures[name] = np.mean(list(decided.values()))
        if not two:
            continue
        for group, wanted in (("has_answer", True), ("no_answer", False)):
            chosen = [decided[key] for key in right if bool(right[key]) == wanted]
            if chosen:
                figures[f"{group}_{name}"] = np.mean(chosen)
        # Every threshold there is, in rising order; the first of the best counts.
        best, at = np.mean([float(right[key] == []) for key in right]), 0.0
        order = sorted(right, key=lambda key: odds[key])
        for i, key in enumerate(order, 1):
            # Of questions with the same odds those that come first are answered first.
            value = 0.0
            for place, each in enumerate(order):
                if place >= i:
                    value += float(right[each] == [])
                elif right[each]:
                    value += scores[each]
                else:
                    value += float(answers[each] == "")
            if value / len(right) > best + 1e-12:
                best, at = value / len(right), odds[key]
        figures |= {f"best_{name}": best, f"best_{name}_threshold": at}
    return figures


def files(count, two, seed=0):
    """Right answers, and predictions that are these with something changed."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        right, answers, odds = {}, {}, {}
        for number in range(int(rng.integers(1, 9))):
            key = f"q{number}"
            texts = list(rng.choice(TEXTS, rng.integers(0 if two else 1, 4)))
            right[key] = [str(text) for text in texts]
            text = (
                str(rng.choice(texts)) if texts and rng.random() < 0.7 else str(rng.choice(TEXTS))
            )
            change = rng.integers(0, 6)
            if change == 0:
                text = text.upper()
            elif change == 1:
                text = f"the {text}."
            elif change == 2:
                text = f"{text} {rng.choice(TEXTS)}"
            elif change == 3:
                text = text[: int(rng.integers(0, len(text) + 1))]
            answers[key] = text
            odds[key] = float(np.round(rng.normal(), 1))
        if not two and rng.random() < 0.3:
            del answers[str(rng.choice(list(answers)))]
        yield right, answers, odds


@pytest.mark.parametrize("two", [False, True])
def test_figures_of_perturbed_files(two):
    for right, answers, odds in files(FILES, two):
        threshold = float(np.random.default_rng(len(right)).normal())
        given = odds if two else None
        actual = squad_metrics.evaluate(answers, right, two, given, threshold)
        expected = by_hand(answers, right, two, odds, threshold)
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert actual[name] == pytest.approx(value, abs=1e-9), (name, right, answers, odds)


def test_figures_by_hand():
    right = {"a": ["Denver Broncos", "the Broncos"], "b": [], "c": ["1999"]}
    answers = {"a": "Denver's broncos", "b": "x", "c": "in 1999"}
    one = squad_metrics.evaluate(answers, {key: right[key] or ["y"] for key in right})
    # "denvers broncos": one of two words; "in 1999": one of two, of one.
    assert one["exact_match"] == 0
    assert one["f1"] == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)
    odds = {"a": -3.0, "b": 1.0, "c": -1.0}
    two = squad_metrics.evaluate(answers, right, True, odds, 0.0)
    assert two["f1"] == pytest.approx((2 / 3 + 1 + 2 / 3) / 3)
    assert two["no_answer_f1"] == 1 and two["best_f1_threshold"] == -1.0
    # Nothing is right to the letter: best to say that there is no answer at all.
    assert two["best_exact_match"] == pytest.approx(1 / 3)
    assert two["best_exact_match_threshold"] == 0.0
    # As the released evaluation prints them.
    printed = squad_metrics.percentages(two)
    assert printed["no_answer_f1"] == 100 and printed["best_f1_threshold"] == -1.0
    late = squad_metrics.evaluate(answers, right, True, odds, 2.0)
    assert late["no_answer_exact_match"] == 0 and late["f1"] == pytest.approx(4 / 9)


def test_what_is_left_of_an_answer():
    assert squad_metrics.normalize(" The  U.S. and\tan Apple— ") == "us and apple—"
    rule = answer_rules.rule_of(None)
    assert rule.overlap("the", "a") == 0 and rule.overlap("the", "a", True) == 1
    assert squad_metrics.score("", [], True) == (1, 1)


def test_errors():
    with pytest.raises(UserError, match="there are no questions to score answers to"):
        squad_metrics.evaluate({}, {})
    right = {"q1": [], "q2": ["x"]}
    with pytest.raises(UserError, match="question 'q1' has no answer, and 1 more"):
        squad_metrics.evaluate({}, right, True)
    with pytest.raises(UserError, match="question 'q2' has no null odds, and 0 more"):
        squad_metrics.evaluate({"q1": "", "q2": ""}, right, True, {"q1": 0.0})
