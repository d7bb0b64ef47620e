"""Answers compared by the rules of released evaluations, whose own figures are beside them.

The figures are what the evaluation scripts of MLQA, KorQuAD 1.0 and CMRC 2018 (with nltk 3.10.4)
return for these texts.
"""

import pytest

from official.tasks.answer_rules import RULES

# Rule, right answer, answer; exact match and F1 in percent.
FIGURES = [
    ("mlqa:hi", "दिल्ली", "दिल्ली में", 0, 66.666667),
    ("mlqa:hi", "लखनऊ", "लखनऊ।", 100, 100),
    ("mlqa:ar", "القاهرة", "القاهرة،", 100, 100),
    ("mlqa:ar", "القاهرة", "قاهرة", 100, 100),
    ("mlqa:ar", "عام 1947", "في عام 1947؛", 0, 80),
    ("mlqa:vi", "Việt Nam", "của Việt Nam", 100, 100),
    ("mlqa:vi", "thủ đô", "“thủ đô”", 100, 100),
    ("mlqa:es", "Los perros", "unos perros…", 100, 100),
    ("mlqa:de", "Bergen", "einem der Berge", 0, 0),
    ("mlqa:de", "dem Haus", "das Haus", 100, 100),
    ("mlqa:en", "the “cat”", "A cat—", 100, 100),
    ("mlqa:zh", "北京大学", "在北京大学", 0, 88.888889),
    ("mlqa:zh", "李明", "“李明”", 100, 100),
    ("mlqa:zh", "2008年 NBA", "2008年，NBA 总", 0, 85.714286),
    ("korquad", "서울", "서울에서", 0, 66.666667),
    ("korquad", "무정", "《무정》", 100, 100),
    ("korquad", "1989년 2월", "1989년2월", 0, 100),
    ("korquad", "서울", "서울。", 0, 80),
    ("cmrc", "战国无双3", "《战国无双3》由", 0, 90.909091),
    ("cmrc", "李明", "“李明”", 100, 100),
    ("cmrc", "1963年", "1963年；", 100, 100),
    ("cmrc", "北京大学", "大学北京", 0, 50),
    ("cmrc", "NBA 2K Online", "NBA 2K online…", 0, 66.666667),
    ("cmrc", "U.S. Army.", "the U.S. Army", 0, 66.666667),
    ("characters", "7月", "7月に", 0, 80),
    ("characters", "小笠原諸島", "小笠原諸島を", 0, 90.909091),
    ("characters", "か\u3099", "が", 100, 100),
    ("squad", "北京大学", "在北京大学", 0, 0),
    ("squad", "The Cat!", "cat", 100, 100),
]


@pytest.mark.parametrize("rule, right, answer, exact, f1", FIGURES)
def test_figures_of_the_released_evaluations(rule, right, answer, exact, f1):
    assert 100 * RULES[rule].equal(answer, right) == exact
    assert 100 * RULES[rule].overlap(answer, right) == pytest.approx(f1, abs=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_left_of_an_empty_answer(rule):
    """Version 2.0 of SQuAD has questions without an answer."""
    assert RULES[rule].equal("", "") and not RULES[rule].equal("", "1947")
    assert RULES[rule].overlap("", "") == 0 and RULES[rule].overlap("", "1947") == 0
    assert RULES[rule].overlap("", "", empty=True) == 1
    assert RULES[rule].overlap("", "1947", empty=True) == 0
