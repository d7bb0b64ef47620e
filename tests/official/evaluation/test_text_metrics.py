"""BLEU and ROUGE against values counted by hand."""

import sys

import numpy as np
import pytest

from official.evaluation import text_metrics
from official.utils.errors import UserError


def test_bleu_by_hand():
    pytest.importorskip("sacrebleu")
    # Of 6 words, 5 match; of 5 pairs, 3; of 4 triples, 2; of 3 quadruples, 1. No brevity penalty.
    found = text_metrics.compute("bleu", ["the cat sat on the mat"], ["the cat sat on a mat"])
    wanted = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert found == pytest.approx(wanted, rel=1e-9)
    # The corpus counts, not the mean over its texts; 8 words against 9.
    found = text_metrics.compute(
        "bleu", ["the cat sat on the mat", "a b"], ["the cat sat on a mat", "a b c"]
    )
    counts = 7 / 8 * 4 / 6 * 2 / 4 * 1 / 3
    assert found == pytest.approx(100 * counts**0.25 * np.exp(1 - 9 / 8), rel=1e-9)


def test_rouge_by_hand():
    pytest.importorskip("rouge_score")
    texts, right = ["the cat sat on mats", "x"], ["a cat sits on the mat", "y z"]
    # Shared words: the, cat, on and the stem mat (4 of 5, 4 of 6). No pair is shared, and the
    # longest common subsequence is "cat on mat".
    first = {
        "rouge_1": 2 * (4 / 5) * (4 / 6) / (4 / 5 + 4 / 6),
        "rouge_2": 0.0,
        "rouge_l": 2 * (3 / 5) * (3 / 6) / (3 / 5 + 3 / 6),
    }
    for name, value in first.items():
        found = text_metrics.compute(name, texts, right)
        assert found == pytest.approx(100 * value / 2, abs=1e-9), name


def test_lines_are_compared_one_by_one():
    pytest.importorskip("rouge_score")
    text, right = ["a b c\nd e f"], ["d e f\na b c"]
    assert text_metrics.compute("rouge_l_sum", text, right) == pytest.approx(100)
    assert text_metrics.compute("rouge_l", text, right) == pytest.approx(50)


def test_a_missing_package_is_named(monkeypatch):
    for name, module, project in (
        ("bleu", "sacrebleu", "sacrebleu"),
        ("rouge_2", "rouge_score.rouge_scorer", "rouge-score"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UserError, match=f"the metric {name} needs the package {project}, whi"):
            text_metrics.check(["exact_match", name])
    text_metrics.check(["accuracy", "exact_match"])
