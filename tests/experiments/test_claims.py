"""Tests of claims: orders, tests of links, levels and verdicts, on made values."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from experiments import claims
from experiments.claims import BETTER, EQUIVALENT, OPEN, VOID, WORSE, Claim, Scale
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden"
SCALES = {"score": Scale(True, margin=0.05), "loss": Scale(False)}


def seeds(*values):
    return dict(enumerate(values))


def verdicts(order, by="score", scale=None, void=None, **values):
    scales = {**SCALES, **({by: scale} if scale else {})}
    (parts,) = claims.judge([Claim(order, by)], {by: values}, scales, void)
    return parts


def test_an_order_is_cut_into_links():
    links = Claim("a > b_2>=c.x  >  d = e", "score").links
    assert [str(link) for link in links] == ["a > b_2", "b_2 >= c.x", "c.x > d", "d = e"]


@pytest.mark.parametrize("order", ["a", "a >", "> a", "a < b", "a > b c", "a == b", ""])
def test_an_order_without_two_variants_is_refused(order):
    with pytest.raises(ValueError, match="order: "):
        Claim(order, "score")


def test_the_better_direction_is_that_of_the_measure():
    low, high = seeds(1.0, 1.1, 1.2), seeds(2.0, 2.1, 2.25)
    assert verdicts("a > b", "loss", a=low, b=high)[0].verdict == BETTER
    assert verdicts("a > b", "score", a=low, b=high)[0].verdict == WORSE
    (part,) = verdicts("a > b", "loss", a=low, b=high)
    assert part.difference.mean == pytest.approx(np.mean([1.0, 1.0, 1.05]))


def test_the_test_is_paired_by_seed():
    """The seeds differ much more than the variants do; their order does not count."""
    base = {0: 1.0, 1: 5.0, 2: 9.0}
    better = {2: 9.52, 0: 1.5, 1: 5.49}
    (part,) = verdicts("a > b", a=better, b=base)
    assert part.verdict == BETTER
    expected = stats.ttest_rel([1.5, 5.49, 9.52], [1.0, 5.0, 9.0])
    assert part.p_value == pytest.approx(expected.pvalue)
    assert part.difference.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_differences_are_tested_as_scipy_and_statsmodels_test_them():
    """Sixty made studies: t-tests of pairs and of variants × seeds, TOST, intervals."""
    cases = json.loads((GOLDEN / "claims.json").read_text())["cases"]
    pooled = 0
    for case in cases:
        values = [seeds(*row) for row in case["values"]]
        paired, block = case["paired"], case["block"]
        actual = claims.compare(values[0], values[1], higher=True)
        assert actual.mean == pytest.approx(case["mean"])
        assert actual.p_direction == pytest.approx(paired["direction"], rel=1e-9)
        equivalence = actual.p_equivalence(case["margin"])
        assert equivalence == pytest.approx(paired["equivalence"], rel=1e-9)
        assert actual.interval() == pytest.approx(tuple(paired["interval"]))
        of_all = claims.pooled_variance(values)
        assert (of_all is None) == (len(values) < 3 or case["ratio"] >= 9)
        if of_all is not None:
            pooled += 1
            actual = claims.compare(values[0], values[1], True, of_all)
            assert actual.error == pytest.approx(block["error"])
            assert actual.freedom == block["freedom"]
            assert actual.p_direction == pytest.approx(block["direction"], rel=1e-9)
            assert actual.interval() == pytest.approx(tuple(block["interval"]))
    assert 10 < pooled < 50


def test_a_seed_that_one_variant_lacks_is_left_out_of_pairs_and_of_pooling():
    a, b, c = seeds(1.0, 1.1, 1.2), {0: 0.5, 2: 0.71, 7: 3.0}, seeds(0.0, 0.1, 0.2)
    assert claims.pooled_variance([a, b, c]) is None
    assert claims.pooled_variance([a, seeds(1.0, math.nan, 2.0), c]) is None
    assert claims.compare(a, b, True).pairs == 2
    assert claims.compare(a, b, True).mean == pytest.approx(0.495)


def test_a_small_difference_is_better_or_equivalent_as_the_claim_asks():
    """+0.01, known to 0.0003, with a margin of 0.05."""
    a, b = seeds(0.81, 0.8103, 0.8098, 0.81), seeds(0.8, 0.8, 0.8, 0.8)
    assert verdicts("a > b", a=a, b=b)[0].verdict == BETTER
    (part,) = verdicts("a = b", a=a, b=b)
    assert part.verdict == EQUIVALENT and part.agrees
    (part,) = verdicts("b >= a", a=a, b=b)
    assert part.verdict == EQUIVALENT and part.agrees
    assert verdicts("b > a", a=a, b=b)[0].verdict == WORSE
    assert not verdicts("b > a", a=a, b=b)[0].agrees
    # Beyond the margin.
    (part,) = verdicts("b >= a", scale=Scale(True, 0.005), a=a, b=b)
    assert part.verdict == WORSE and not part.agrees
    # No margin, no equivalence.
    assert verdicts("a = b", scale=Scale(True), a=a, b=b)[0].verdict == BETTER


def test_each_link_of_a_chain_has_its_verdict():
    a, b, c = seeds(3.0, 3.1, 3.2), seeds(2.0, 2.11, 2.2), seeds(2.1, 2.0, 2.2)
    parts = verdicts("a > b > c", a=a, b=b, c=c)
    assert [part.verdict for part in parts] == [BETTER, OPEN]
    assert parts[1].smallest > abs(parts[1].difference.mean)
    assert math.isnan(parts[0].smallest)


def test_what_cannot_be_tested_is_open_and_says_why():
    one = seeds(1.0, 2.0, 3.0)
    assert verdicts("a > b", a=one)[0].reason == "b has no score"
    assert verdicts("a > b", a=seeds(1.0), b=one)[0].reason == "1 seed in common"
    (part,) = verdicts("a > b", a=seeds(1.0, math.nan, 9.0), b=one)
    assert part.verdict == OPEN and part.reason == "1 of 3 runs of a diverged"


def test_equal_differences_need_no_variance():
    base = seeds(1.0, 2.0, 3.0)
    assert verdicts("a > b", a=seeds(2.0, 3.0, 4.0), b=base)[0].verdict == BETTER
    assert verdicts("a > b", a=base, b=base)[0].verdict == EQUIVALENT
    assert verdicts("a > b", scale=Scale(True), a=base, b=base)[0].verdict == OPEN


def test_a_void_measure_gives_no_verdict():
    values = {"a": seeds(2.0, 2.1, 2.2), "b": seeds(1.0, 1.1, 1.21)}
    (part,) = verdicts("a > b", void={"score": "control x > y is open"}, **values)
    assert (part.verdict, part.reason) == (VOID, "control x > y is open")
    assert part.difference.mean == pytest.approx(0.9967, abs=1e-4)


def test_a_control_that_does_not_come_out_voids_its_measure():
    measured = {
        "score": {"long": seeds(2.0, 2.1, 2.2), "base": seeds(1.0, 1.1, 1.21)},
        "loss": {"long": seeds(2.0, 2.1, 2.2), "base": seeds(2.0, 2.3, 1.9)},
    }
    known = [Claim("long > base", by) for by in measured]
    failed = claims.failed_controls(known, measured, SCALES)
    assert failed == {"loss": "control long > base is open"}
    missing = claims.failed_controls([Claim("base > fresh", "score")], measured, SCALES)
    assert missing == {"score": "control base > fresh is open (fresh has no score)"}


def test_the_levels_are_those_of_holm():
    levels = claims.holm_levels([0.01, 0.04, math.nan, 0.03, 0.005])
    # 0.005 < 0.05 / 4 and 0.01 < 0.05 / 3, and 0.03 is not below 0.05 / 2.
    assert levels == pytest.approx([0.05 / 3, 0.025, 0.05, 0.025, 0.0125])
    assert claims.holm_levels([]) == []


def test_the_levels_decide_as_statsmodels_does():
    """P-values of 200 simulated studies, of one to eight claims, some of them equal."""
    cases = json.loads((GOLDEN / "holm.json").read_text())["cases"]
    decided = 0
    for case in cases:
        levels = claims.holm_levels(case["p"])
        actual = [p < level for p, level in zip(case["p"], levels, strict=True)]
        assert actual == [p < claims.LEVEL for p in case["corrected"]]
        decided += sum(actual)
    assert len(cases) == 200 and 20 < decided


def made(draw, means, count, spread, names="abcdefgh"):
    """A study: the variants' means, an effect of each seed, and noise."""
    effects = draw.normal(size=count)
    return {
        name: seeds(*(mean + effects + draw.normal(0, spread / math.sqrt(2), size=count)))
        for name, mean in zip(names, means, strict=False)
    }


@pytest.mark.slow
@pytest.mark.parametrize("variants", [2, 4])
def test_error_rates_of_links_in_a_thousand_made_studies(variants):
    """A verdict is wrong in at most 5%, whatever the true difference is; 3.3 standard errors."""
    draw, most = np.random.default_rng(variants), 50 + 3.3 * math.sqrt(50)
    margin = 0.1
    order = "a > b" if variants == 2 else "a > b > c > d"
    # What is wrong for each true difference of a and b.
    cases = {
        0.0: (BETTER, WORSE), margin: (EQUIVALENT, WORSE), -margin: (EQUIVALENT, BETTER),
        0.5 * margin: (WORSE,),
    }  # fmt: skip
    for difference, wrong in cases.items():
        count = 0
        for _ in range(1000):
            values = made(draw, [difference, 0.0, 0.5, -0.5][:variants], 5, spread=0.08)
            first = verdicts(order, scale=Scale(True, margin), **values)[0]
            count += first.verdict in wrong
        assert count <= most, difference


@pytest.mark.slow
def test_wrong_claims_of_a_thousand_made_studies():
    """Three claims that are false: one of them is taken for true in at most 5% of the studies."""
    draw, wrong = np.random.default_rng(3), 0
    order = [Claim("a > b", "score"), Claim("a = c", "score"), Claim("d > c > a", "score")]
    for _ in range(1000):
        # c is worse by the margin, d is better than c, and a is better than c.
        values = made(draw, [0.0, 0.0, -0.1, 0.4], 6, spread=0.05)
        judged = claims.judge(order, {"score": values}, {"score": Scale(True, 0.1)})
        wrong += any(all(part.agrees for part in parts) for parts in judged)
    assert wrong <= 50 + 3.3 * math.sqrt(50)


@pytest.mark.parametrize(("count", "variants"), [(3, 2), (6, 2), (6, 4), (8, 4)])
def test_the_power_is_what_is_promised(count, variants):
    """80%, in 400 made studies each."""
    draw, spread = np.random.default_rng(count), 0.1
    error = spread / math.sqrt(count)
    freedom = (variants - 1) * (count - 1) if variants > 2 else count - 1
    names = "abcd"[:variants]
    shown = claims.shown_difference(error, freedom)
    margin = claims.shown_margin(error, freedom)
    found = equal = 0
    for _ in range(400):
        values = made(draw, [shown, 0.0, 0.0, 0.0][:variants], count, spread)
        order = " > ".join(names)
        found += verdicts(order, scale=Scale(True), **values)[0].verdict == BETTER
        values = made(draw, [0.0] * variants, count, spread)
        order = " = ".join(names)
        equal += verdicts(order, scale=Scale(True, margin), **values)[0].verdict == EQUIVALENT
    assert 0.72 <= found / 400 <= 0.88
    assert 0.72 <= equal / 400 <= 0.88


@pytest.mark.parametrize("effect, level", [(2.0, 0.05), (1.0, 0.05), (0.7, 0.01)])
def test_the_seeds_that_decide_find_a_difference_in_80_percent(effect, level):
    """`effect` is the mean of a paired difference in its standard deviations."""
    found = claims.Difference(mean=-effect, error=1 / math.sqrt(3), freedom=2, pairs=3)
    pairs = claims.deciding_pairs(found, level=level)
    # The difference is no smaller than this margin.
    assert claims.deciding_pairs(found, effect / 2, level) == pairs
    draw, shares = np.random.default_rng(0), []
    for count in (pairs - 1, pairs):
        studies = draw.normal(-effect, 1, (40_000, count))
        shares.append((stats.ttest_1samp(studies, 0, axis=1).pvalue < level).mean())
    assert shares[0] < 0.81 and shares[1] > 0.79 and shares[0] < shares[1]


def test_the_seeds_that_decide_show_a_margin_where_that_takes_fewer():
    found = claims.Difference(mean=0.1, error=1 / math.sqrt(3), freedom=2, pairs=3)
    pairs = claims.deciding_pairs(found, margin=1.5)
    assert 3 < pairs < claims.MOST_PAIRS
    assert claims.deciding_pairs(found) is None  # 788 seeds would find it
    draw = np.random.default_rng(0)
    studies = draw.normal(0, 1, (40_000, pairs))
    room = 1.4 - np.abs(studies.mean(1))
    errors = studies.std(1, ddof=1) / math.sqrt(pairs)
    assert (stats.t.sf(room / errors, pairs - 1) < claims.LEVEL).mean() > 0.79


def test_seeds_that_nobody_has_decide_nothing():
    assert claims.deciding_pairs(claims.Difference(0.5, math.nan, 0, 1)) is None
    assert claims.deciding_pairs(claims.Difference(0.0, 0.1, 2, 3)) is None
