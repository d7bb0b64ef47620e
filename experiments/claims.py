"""Claims of a study, such as `electra > replace = bert`, and their tests over the seeds.

A claim is an order of variants by one measure, the better one first. Each sign is a link between
two variants: `a > b` says that a is better, `a = b` that they differ by less than the margin of the
measure, and `a >= b` that one of both is so. Each link gets a verdict of its own:

* better, worse: the two-sided t-test refuses that the mean difference is 0;
* equivalent: both one-sided t-tests refuse that it is as large as the margin (TOST; Schuirmann,
  1987);
* open: neither; the verdict then has the smallest difference that as many runs show with 80% power;
* void: the measure does not show what is known, so it is no witness of what is not.

The null hypotheses, a difference of 0 and one of at least the margin, exclude each other. So a link
is tested for both without a correction (Goeman, Solari and Stijnen, 2010). `>` asks for the
direction first, `=` and `>=` for equivalence.

Runs are paired by their seeds, because runs with the same seed share the order of the data and,
where the networks are alike, the initial weights. The variance of a difference is that of the
residuals of variants × seeds where all variants of the measure's claims have the same seeds and
no difference has nine times the variance of another; else it is that of the two variants alone.

The claims of a study are corrected together by Holm (1979). A claim has the p-value of its least
certain link, since it holds only if all links do (Berger, 1982), and its links are tested at the
level that Holm gives to the claim. The sign of a difference is that of the better direction: a
smaller loss is a positive difference.
"""

import dataclasses
import functools
import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import optimize, stats

LEVEL = 0.05  # the level of all claims of a study together
POWER = 0.8
MOST_PAIRS = 50  # more seeds are not worth a difference
BETTER, WORSE, EQUIVALENT, OPEN, VOID = VERDICTS = (
    "better", "worse", "equivalent", "open", "void",
)  # fmt: skip
_EXPECTED = {">": (BETTER,), "=": (EQUIVALENT,), ">=": (BETTER, EQUIVALENT)}
_ALIKE = 9.0  # the ratio of two variances from which they are not pooled

Values = Mapping[int, float]  # the values of a variant by seed; NaN where the run diverged


@dataclasses.dataclass(frozen=True)
class Link:
    """Two variants of a claim.

    Attributes:
      first: the variant that is claimed to be better, or not worse.
      second: the other one.
      sign: `>`, `=` or `>=`.
    """

    first: str
    second: str
    sign: str

    @property
    def expected(self) -> tuple[str, ...]:
        """The verdicts that agree with the claim."""
        return _EXPECTED[self.sign]

    def __str__(self) -> str:
        return f"{self.first} {self.sign} {self.second}"


@dataclasses.dataclass(frozen=True)
class Claim:
    """An order of variants by a measure.

    Attributes:
      order: the variants, the best one first, with `>`, `=` or `>=` between them.
      by: the measure.
    """

    order: str
    by: str

    def __post_init__(self):
        words = self._words
        if len(words) < 3 or any(not re.fullmatch(r"[\w.+-]+", name) for name in words[::2]):
            raise ValueError(
                f"order: {self.order!r}: expected names of variants with >, = or >= between them"
            )

    @property
    def _words(self) -> list[str]:
        return re.split(r"\s*(>=|>|=)\s*", self.order.strip())

    @property
    def links(self) -> tuple[Link, ...]:
        """The links between neighboring variants."""
        words = self._words
        triples = zip(words[::2], words[1::2], words[2::2], strict=False)
        return tuple(Link(first, second, sign) for first, sign, second in triples)

    def __str__(self) -> str:
        return f"{self.order} ({self.by})"


@dataclasses.dataclass(frozen=True)
class Scale:
    """How a measure is read.

    Attributes:
      higher: whether a higher value is better.
      margin: the largest difference that counts as none; None = no link is equivalent.
    """

    higher: bool
    margin: float | None = None


@dataclasses.dataclass(frozen=True)
class Difference:
    """The mean difference of two variants, positive where the first is better.

    Attributes:
      mean: over the seeds; NaN without a pair.
      error: its standard error; NaN for fewer than two pairs.
      freedom: the degrees of freedom of the error.
      pairs: the number of seeds that both variants have.
    """

    mean: float = math.nan
    error: float = math.nan
    freedom: int = 0
    pairs: int = 0

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Returns the ends of the interval that has the mean with probability 1 - level."""
        if math.isnan(self.error):
            return math.nan, math.nan
        width = float(stats.t.ppf(1 - level / 2, self.freedom)) * self.error
        return self.mean - width, self.mean + width

    @property
    def p_direction(self) -> float:
        """The p-value of the hypothesis that the mean is 0, two-sided."""
        return min(1.0, 2 * self._p(abs(self.mean)))

    def p_equivalence(self, margin: float) -> float:
        """The p-value of the hypothesis that the mean is at least as large as a margin."""
        return self._p(margin - abs(self.mean))

    def _p(self, distance: float) -> float:
        """Returns how probable a mean is that is so far on one side of the hypothesis."""
        if self.error == 0:  # the test divides by it
            return 0.0 if distance > 0 else 1.0
        return float(stats.t.sf(distance / self.error, self.freedom))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of the tests of a link.

    Attributes:
      link: the link.
      verdict: one of `VERDICTS`.
      reason: why it is void or was not tested, or an empty text.
      p_value: that of the verdict, before the correction; of an open link, the smaller one.
      level: the level that Holm gives to its claim.
      difference: the first variant minus the second.
      smallest: of an open link, the smallest difference that such runs show with 80% power.
    """

    link: Link
    verdict: str
    reason: str = ""
    p_value: float = math.nan
    level: float = LEVEL
    difference: Difference = Difference()
    smallest: float = math.nan

    @property
    def agrees(self) -> bool:
        """Whether the link is as the claim says."""
        return self.verdict in self.link.expected


def summary(values: Values) -> tuple[float, float]:
    """Returns the mean over the seeds and its standard error (NaN for fewer than two)."""
    known = [value for value in values.values() if math.isfinite(value)]
    if not known:
        return math.nan, math.nan
    error = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return statistics.fmean(known), error


def differences(a: Values, b: Values, higher: bool) -> list[float]:
    """Returns `a` minus `b` for each seed that both have, positive where `a` is better."""
    sign = 1 if higher else -1
    pairs = ((a[seed], b[seed]) for seed in a if seed in b)
    return [sign * (x - y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]


def compare(
    a: Values, b: Values, higher: bool, pooled: tuple[float, int] | None = None
) -> Difference:
    """Returns the mean difference of two variants.

    Args:
      a: the first variant.
      b: the second one.
      higher: whether a higher value is better.
      pooled: what `pooled_variance` returns for all variants; None = that of these two.
    """
    found = differences(a, b, higher)
    if not found:
        return Difference()
    mean = statistics.fmean(found)
    if pooled is None and len(found) > 1:
        pooled = statistics.variance(found), len(found) - 1
    if pooled is None:
        return Difference(mean, pairs=1)
    return Difference(mean, math.sqrt(pooled[0] / len(found)), pooled[1], len(found))


def compared(claims: Sequence[Claim], measure: str) -> set[str]:
    """Returns the variants that claims by a measure compare."""
    links = [link for claim in claims if claim.by == measure for link in claim.links]
    return {name for link in links for name in (link.first, link.second)}


def pooled_variance(variants: Sequence[Values]) -> tuple[float, int] | None:
    """Returns the variance of a difference of two variants, and its degrees of freedom.

    It is twice the mean square of the residuals of variants × seeds, a block design. None = it is
    not that of each pair: there are fewer than three variants or two seeds, a variant lacks a seed
    of another, or the variances of two differences have a ratio of nine or more.
    """
    seeds = sorted({seed for values in variants for seed in values})
    if len(variants) < 3 or len(seeds) < 2 or any(len(v) < len(seeds) for v in variants):
        return None
    table = np.array([[values[seed] for seed in seeds] for values in variants])
    if not np.isfinite(table).all():
        return None
    alone = [np.var(a - b, ddof=1) for a, b in itertools.combinations(table, 2)]
    if max(alone) >= _ALIKE * min(alone):
        return None
    residuals = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    freedom = (len(variants) - 1) * (len(seeds) - 1)
    return float(2 * np.square(residuals).sum() / freedom), freedom


def judge(
    claims: Sequence[Claim],
    measured: Mapping[str, Mapping[str, Values]],
    scales: Mapping[str, Scale],
    void: Mapping[str, str] | None = None,
    level: float = LEVEL,
) -> list[list[Verdict]]:
    """Returns the verdicts of the links of each claim.

    Args:
      claims: all claims of a study.
      measured: measure → variant → values by seed.
      scales: how each measure is read.
      void: measure → why it gives no verdicts, for those that give none.
      level: the probability that any claim of the study gets a wrong verdict as a whole.
    """
    void = void or {}
    pools = {}
    for name in scales:
        values = measured.get(name, {})
        own = sorted(compared(claims, name) & values.keys())
        pools[name] = pooled_variance([values[variant] for variant in own])
    tests = [
        [
            _tested(claim, link, measured, scales[claim.by], pools[claim.by], void)
            for link in claim.links
        ]
        for claim in claims
    ]
    p_values = []
    for parts in tests:
        known = [part.p_value for part in parts if not math.isnan(part.p_value)]
        p_values.append(max(known, default=math.nan))
    return [
        [_decided(part, scales[claim.by].margin, own) for part in parts]
        for claim, parts, own in zip(claims, tests, holm_levels(p_values, level), strict=True)
    ]


def _tested(
    claim: Claim,
    link: Link,
    measured: Mapping[str, Mapping[str, Values]],
    scale: Scale,
    pooled: tuple[float, int] | None,
    void: Mapping[str, str],
) -> Verdict:
    """Returns a link with its difference and its smallest p-value, as yet open."""
    values = measured.get(claim.by, {})
    a, b = values.get(link.first, {}), values.get(link.second, {})
    difference = compare(a, b, scale.higher, pooled)
    if claim.by in void:
        return Verdict(link, VOID, void[claim.by], difference=difference)
    for name in (link.first, link.second):
        if name not in values:
            return Verdict(link, OPEN, f"{name} has no {claim.by}")
        diverged = sum(not math.isfinite(value) for value in values[name].values())
        if diverged:
            return Verdict(link, OPEN, f"{diverged} of {len(values[name])} runs of {name} diverged")
    if difference.pairs < 2:
        seeds = "seed" if difference.pairs == 1 else "seeds"
        return Verdict(link, OPEN, f"{difference.pairs} {seeds} in common", difference=difference)
    p_value = min(p for _, p in _questions(link, difference, scale.margin))
    return Verdict(link, OPEN, p_value=p_value, difference=difference)


def _questions(link: Link, difference: Difference, margin: float | None) -> list[tuple[str, float]]:
    """Returns the verdicts that a link may get with their p-values, in the order of asking."""
    direction = BETTER if difference.mean > 0 else WORSE, difference.p_direction
    if margin is None:
        return [direction]
    equivalent = EQUIVALENT, difference.p_equivalence(margin)
    return [direction, equivalent] if link.sign == ">" else [equivalent, direction]


def _decided(tested: Verdict, margin: float | None, level: float) -> Verdict:
    if math.isnan(tested.p_value):  # void, or not tested
        return tested
    difference = tested.difference
    for verdict, p_value in _questions(tested.link, difference, margin):
        if p_value < level:
            return dataclasses.replace(tested, verdict=verdict, p_value=p_value, level=level)
    smallest = shown_difference(difference.error, difference.freedom, level)
    return dataclasses.replace(tested, level=level, smallest=smallest)


def holm_levels(p_values: Sequence[float], level: float = LEVEL) -> list[float]:
    """Returns the level at which each hypothesis is tested (Holm, 1979), from their p-values.

    The smallest p-value is tested at `level` divided by the number of hypotheses, the next one at
    `level` divided by one less, and so on up to the first that is not significant; all after it
    have its level. NaN (no test) is not counted.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    levels, own = [level] * len(p_values), level
    significant = True
    for rank, (p, i) in enumerate(known):
        if significant:
            own = level / (len(known) - rank)
            significant = p < own
        levels[i] = own
    return levels


def failed_controls(
    controls: Sequence[Claim],
    measured: Mapping[str, Mapping[str, Values]],
    scales: Mapping[str, Scale],
) -> dict[str, str]:
    """Returns measure → the first control that does not come out as known, and how it came out.

    A control is tested for itself: that a measure is used needs all of its controls to agree.
    """
    failed: dict[str, str] = {}
    for control in controls:
        (parts,) = judge([control], measured, scales)
        for part in parts:
            if not part.agrees:
                why = f" ({part.reason})" if part.reason else ""
                failed.setdefault(control.by, f"control {part.link} is {part.verdict}{why}")
    return failed


def shown_difference(error: float, freedom: int, level: float = LEVEL) -> float:
    """Returns the smallest difference that is found `better` with a probability of 80%.

    Args:
      error: the standard error of a difference.
      freedom: its degrees of freedom.
      level: of the two-sided test.
    """
    return error * _difference_in_errors(freedom, level)


def deciding_pairs(
    difference: Difference, margin: float | None = None, level: float = LEVEL
) -> int | None:
    """Returns how many seeds would decide a difference of this size with a probability of 80%.

    The variance is taken to be as it was found.

    Args:
      difference: the difference that was found.
      margin: within which two variants are equivalent; None = they never are.
      level: of the tests.

    Returns:
      The number of seeds; None if that is not known, or more than `MOST_PAIRS`.
    """
    if difference.pairs < 2 or math.isnan(difference.error):
        return None
    room = -math.inf if margin is None else margin - abs(difference.mean)
    for pairs in range(difference.pairs + 1, MOST_PAIRS + 1):
        error = difference.error * math.sqrt(difference.pairs / pairs)
        freedom = difference.freedom * (pairs - 1) // (difference.pairs - 1)
        differs = shown_difference(error, freedom, level) <= abs(difference.mean)
        if differs or shown_margin(error, freedom, level) <= room:
            return pairs
    return None


def shown_margin(error: float, freedom: int, level: float = LEVEL) -> float:
    """Returns the smallest margin within which two equal variants are found `equivalent`.

    Arguments are those of `shown_difference`, and the probability is 80% too.
    """
    return error * _margin_in_errors(freedom, level)


@functools.cache
def _difference_in_errors(freedom: int, level: float) -> float:
    least = float(stats.t.ppf(1 - level / 2, freedom))

    def excess(difference: float) -> float:
        # The t-value of a difference that is not 0 has a noncentral distribution.
        return float(stats.nct.sf(least, freedom, difference)) - POWER

    return optimize.brentq(excess, 0.0, 10 * least)


@functools.cache
def _margin_in_errors(freedom: int, level: float) -> float:
    """Both one-sided tests are significant if |mean| + t × error < margin (Schuirmann, 1987)."""
    least = float(stats.t.ppf(1 - level, freedom))
    parts = (np.arange(2000) + 0.5) / 2000
    errors = np.sqrt(stats.chi2.ppf(parts, freedom) / freedom)  # as they are estimated

    def excess(margin: float) -> float:
        room = np.maximum(margin - least * errors, 0)
        return float(np.mean(2 * stats.norm.cdf(room) - 1)) - POWER

    return optimize.brentq(excess, 0.0, 10 * least)
