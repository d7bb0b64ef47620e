"""BLEU and ROUGE against values that are computed by hand."""

import math

import pytest

from official.evaluation.corpus_metrics import CORPUS_METRICS
from official.tasks import METRICS


def test_bleu_of_one_text():
    # Of its n-grams 5 of 6, 3 of 5, 1 of 4 and 0 of 3 are right; 0 of 3 is smoothed to 1/2 of 3.
    found = CORPUS_METRICS["bleu"](["the cat sat on the mat"], [["the cat is on the mat"]])
    assert found == pytest.approx((5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25)


def test_bleu_is_of_the_corpus_and_punishes_short_texts():
    texts = ["a b c d e", "f g h i"]
    answers = [["a b c d e x y"], ["f g h i z"]]
    # All n-grams are right: the ratio of the lengths, 9 and 12, is left.
    assert CORPUS_METRICS["bleu"](texts, answers) == pytest.approx(math.exp(1 - 12 / 9))


def test_bleu_counts_punctuation_as_words_and_takes_any_of_several_answers():
    # 'intl' makes six words of this text, and the second answer has all of them.
    texts, answers = ["Hello, wide world!", "a b c d"], [["No.", "Hello, wide world!"], ["a b c d"]]
    assert CORPUS_METRICS["bleu"](texts, answers) == pytest.approx(1)
    assert CORPUS_METRICS["bleu"](["Hello, wide world"], [["Hello, wide world!"]]) == pytest.approx(
        math.exp(1 - 5 / 4)
    )


def test_rouge_by_hand():
    # Words a, cat, sat against a, cat, on: 2 of 3; bigrams 1 of 2; the subsequence "a cat".
    texts, answers = ["a cat sat", "dogs"], [["a cat on"], ["Dogs!"]]
    for name, first in (("rouge_1", 2 / 3), ("rouge_2", 1 / 2), ("rouge_l", 2 / 3)):
        # Neither case nor signs count; a single word has no bigram.
        second = 0 if name == "rouge_2" else 1
        assert CORPUS_METRICS[name](texts, answers) == pytest.approx((first + second) / 2)
    # The release of T5 compares words, not their stems.
    assert CORPUS_METRICS["rouge_1"](["dogs"], [["dog"]]) == 0
    # Precision 1 and recall 1/2.
    assert CORPUS_METRICS["rouge_1"](["a b"], [["a b c d"]]) == pytest.approx(2 / 3)


def test_rouge_l_is_of_sentences():
    # One sentence: the longest common subsequence has 2 of 4 words. Two sentences: all 4 are found.
    for text, right, value in (
        ("c d a b", "a b c d", 0.5),
        ("c d . a b", "a b . c d", 1.0),
        ("c d\na b", "a b\nc d", 1.0),
    ):
        assert CORPUS_METRICS["rouge_l"]([text], [[right]]) == pytest.approx(value)


def test_rouge_takes_the_best_of_several_answers():
    assert CORPUS_METRICS["rouge_2"](["x y z"], [["a b", "x y"]]) == pytest.approx(2 / 3)


def test_empty_texts_are_wrong():
    for name in CORPUS_METRICS:
        assert CORPUS_METRICS[name]([""], [["a b"]]) == 0


def test_all_are_metrics_of_generated_texts():
    assert set(CORPUS_METRICS) < set(METRICS["text_to_text"])
