"""Tests of claims: orders, Holm's correction and verdicts, on made values."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from experiments import claims
from experiments.claims import HOLDS, OPEN, REVERSED, Claim
from tests import ROOT

HIGHER = {"score": True, "loss": False}


def seeds(*values):
    return dict(enumerate(values))


def verdict(order, by="score", margin=0.0, **values):
    ((whole, parts),) = claims.judge([Claim(order, by, margin)], {by: values}, HIGHER)
    return whole, parts


def test_an_order_is_cut_into_links():
    links = Claim("a > b_2>=c.x  >  d", "score").links
    assert [str(link) for link in links] == ["a > b_2", "b_2 >= c.x", "c.x > d"]


@pytest.mark.parametrize("order", ["a", "a >", "> a", "a < b", "a > b c", ""])
def test_an_order_without_two_variants_is_refused(order):
    with pytest.raises(ValueError, match="order: "):
        Claim(order, "score")


def test_the_better_direction_is_that_of_the_measure():
    low, high = seeds(1.0, 1.1, 1.2), seeds(2.0, 2.1, 2.25)
    assert verdict("a > b", "loss", a=low, b=high)[0].verdict == HOLDS
    assert verdict("a > b", "score", a=low, b=high)[0].verdict == REVERSED
    whole, (part,) = verdict("a > b", "loss", a=low, b=high)
    assert part.difference.mean == pytest.approx(np.mean([1.0, 1.0, 1.05]))


def test_the_test_is_paired_by_seed():
    """The seeds differ much more than the variants do; their order does not count."""
    base = {0: 1.0, 1: 5.0, 2: 9.0}
    better = {2: 9.52, 0: 1.5, 1: 5.49}
    whole, (part,) = verdict("a > b", a=better, b=base)
    assert whole.verdict == HOLDS
    expected = stats.ttest_rel([1.5, 5.49, 9.52], [1.0, 5.0, 9.0])
    assert part.p_value == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (part.difference.low, part.difference.high) == pytest.approx(tuple(interval))


def test_a_margin_lets_the_first_variant_be_a_little_worse():
    a, b = seeds(0.799, 0.798, 0.800), seeds(0.8, 0.8, 0.801)
    assert verdict("a >= b", margin=0.01, a=a, b=b)[0].verdict == HOLDS
    assert verdict("a >= b", a=a, b=b)[0].verdict == OPEN
    assert verdict("a >= b", margin=1e-6, a=seeds(0.7, 0.71, 0.7), b=b)[0].verdict == REVERSED


def test_a_chain_holds_if_all_its_links_hold():
    a, b, c = seeds(3.0, 3.1, 3.2), seeds(2.0, 2.11, 2.2), seeds(2.1, 2.0, 2.2)
    whole, parts = verdict("a > b > c", a=a, b=b, c=c)
    assert [part.verdict for part in parts] == [HOLDS, OPEN] and whole.verdict == OPEN
    assert whole.reason.startswith("b > c: p = ")


def test_what_cannot_be_tested_is_open_and_says_why():
    one = seeds(1.0, 2.0, 3.0)
    assert verdict("a > b", a=one)[0].reason == "a > b: b has no score"
    assert verdict("a > b", a=seeds(1.0), b=one)[0].reason == "a > b: 1 seed in common"
    diverged = verdict("a > b", a=seeds(1.0, math.nan, 9.0), b=one)[0]
    assert diverged.verdict == OPEN and "1 of 3 runs of a diverged" in diverged.reason


def test_equal_differences_need_no_variance():
    base = seeds(1.0, 2.0, 3.0)
    assert verdict("a > b", a=seeds(2.0, 3.0, 4.0), b=base)[0].verdict == HOLDS
    assert verdict("a > b", a=base, b=base)[0].verdict == OPEN


def test_holm_by_its_definition():
    p = [0.01, 0.04, math.nan, 0.03, 0.005]
    assert claims.holm(p) == pytest.approx([0.03, 0.06, math.nan, 0.06, 0.02], nan_ok=True)
    assert claims.holm([0.9, 0.8]) == [1.0, 1.0] and claims.holm([]) == []


def test_holm_as_statsmodels_has_it():
    """P-values of 200 simulated studies, of one to eight links, some of them equal."""
    cases = json.loads((ROOT / "tests" / "golden" / "holm.json").read_text())["cases"]
    assert len(cases) == 200
    for case in cases:
        assert claims.holm(case["p"]) == pytest.approx(case["corrected"], rel=1e-12)


def test_false_positives_of_studies_without_an_effect():
    """All variants are equal: a study of six links has a verdict in at most 5% of the cases."""
    draw = np.random.default_rng(0)
    order = [Claim("a > b > c", "score"), Claim("a > d > b", "score"), Claim("c > e > a", "score")]
    wrong = 0
    for _ in range(200):
        values = {name: seeds(*draw.normal(size=4)) for name in "abcde"}
        judged = claims.judge(order, {"score": values}, HIGHER)
        wrong += any(part.verdict != OPEN for _, parts in judged for part in parts)
    assert wrong <= 10 + 2 * math.sqrt(10)  # two standard errors above 5%


def test_a_large_effect_is_found():
    draw = np.random.default_rng(1)
    found = 0
    for _ in range(50):
        b = draw.normal(size=5)
        a = b + 2 + draw.normal(scale=0.3, size=5)
        whole, _ = verdict("a > b", a=seeds(*a), b=seeds(*b))
        found += whole.verdict == HOLDS
    assert found > 47
