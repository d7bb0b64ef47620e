"""The words by which texts of all scripts are found."""

import re

import pytest

from official.utils import unicode_words
from tests import linear


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Wing_1 heat-flow, U.S. 3.5%", "wing_1 heat flow u s 3 5"),
        ("Élan naïve", "élan naïve"),
        ("किताब मेज़ पर है।", "किताब मेज़ पर है"),  # vowel signs do not end a word
        ("北京大学", "北 京 大 学 北京 京大 大学"),
        ("NBA总决赛", "nba 总 决 赛 总决 决赛"),
        ("Straße東", "straße 東"),
        ("น้ำดี", "น้ ำ ดี น้ำ ำดี"),
        ("ភាសា\u200bខ្មែរ", "ភា សា ភាសា ខ្ មែ រ ខ្មែ មែរ"),  # no pair beyond a zero-width blank
        ("می\u200cخواهم", "میخواهم"),
        ("كِتَابٌ مـحمد", "كتاب محمد"),
        ("שָׁלוֹם", "שלום"),
        ("한국어 문장", "한국어 문장"),
        ("。！ \u0301", "\u0301"),
        ("", ""),
    ],
)
def test_terms(text, expected):
    assert unicode_words.terms(text) == expected.split()


@pytest.mark.parametrize(
    "before, after, joined",
    [
        ("the", "cat", True), ("the ", "cat", False), ("(", "cat", False), ("3", "rd", True),
        ("हिन्दी", "में", True), ("की।", "में", False), ("北", "京", False), ("ดี", "มาก", False),
        ("e\u0301", "a", True), ("東", "a", False), ("", "a", False), ("a", "", False),
        ("\u0301", "a", False),
    ],
)  # fmt: skip
def test_what_would_be_one_word(before, after, joined):
    assert unicode_words.would_join(before, after) is joined


def test_both_forms_of_a_text_have_the_same_terms():
    pairs = [("é", "e\u0301"), ("각", "\u1100\u1161\u11a8"), ("が", "か\u3099")]
    for composed, decomposed in pairs:
        assert unicode_words.terms(composed) == unicode_words.terms(decomposed)


def test_terms_of_english_are_runs_of_letters_digits_and_underscores():
    text = "The café's “naïve” façade – 3rd_floor, coöperate: Ångström’s ½ ² ﬁve"
    assert unicode_words.terms(text) == re.findall(r"\w+", text.lower())


@pytest.mark.parametrize("part", ["é", "漢", "é ", "\u0301", "漢\u0301", "é漢", "\u200d"])
def test_linear(part):
    linear.check(unicode_words.terms, part, 100_000)
