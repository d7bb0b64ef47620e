"""Claims of a study, such as `electra > replace >= bert`, and their tests over the seeds.

A claim is an order of variants by one measure, the better one first. Each `>` or `>=` is a link
between two variants. The runs of a link are paired by their seeds, because runs with the same seed
share the data order and, where the networks are alike, the initial weights.

The null hypothesis of a link `a > b` is that the mean of the paired differences is 0, and that of
`a >= b` with margin m that it is -m. It is tested by the two-sided paired t-test, and the p-values
of all links of a study are corrected together by the method of Holm (1979). The sign of a
difference is that of the better direction: a smaller loss is a positive difference.
"""

import dataclasses
import math
import re
import statistics
from collections.abc import Mapping, Sequence

from scipy import stats

LEVEL = 0.05  # the level of all tests of a study together
HOLDS, REVERSED, OPEN = "holds", "the reverse holds", "not resolved"

Values = Mapping[int, float]  # the values of a variant by seed; NaN where the run diverged


@dataclasses.dataclass(frozen=True)
class Link:
    """Two variants of a claim.

    Attributes:
      better: the variant that is claimed to be better.
      worse: the variant that is claimed to be worse.
      strict: True for `>`, False for `>=`.
    """

    better: str
    worse: str
    strict: bool

    def __str__(self) -> str:
        return f"{self.better} {'>' if self.strict else '>='} {self.worse}"


@dataclasses.dataclass(frozen=True)
class Claim:
    """An order of variants by a measure.

    Attributes:
      order: the variants, the best one first, with `>` or `>=` between them.
      by: the measure.
      margin: how much worse the first variant of a `>=` may be, in units of the measure.
    """

    order: str
    by: str
    margin: float = 0.0

    def __post_init__(self):
        words = re.split(r"\s*(>=|>)\s*", self.order.strip())
        if len(words) < 3 or any(not re.fullmatch(r"[\w.+-]+", name) for name in words[::2]):
            raise ValueError(
                f"order: {self.order!r}: expected names of variants with > or >= between them"
            )
        if self.margin < 0:
            raise ValueError(f"margin: {self.margin} is negative")

    @property
    def links(self) -> tuple[Link, ...]:
        """The links between neighboring variants."""
        words = re.split(r"\s*(>=|>)\s*", self.order.strip())
        triples = zip(words[::2], words[1::2], words[2::2], strict=False)
        return tuple(Link(better, worse, sign == ">") for better, sign, worse in triples)

    def __str__(self) -> str:
        return f"{self.order} ({self.by})"


@dataclasses.dataclass(frozen=True)
class Difference:
    """The paired difference of two variants.

    Attributes:
      mean: the mean of the differences; NaN without a pair.
      low: the lower end of its 95% interval; NaN for fewer than two pairs.
      high: the upper end.
      pairs: the number of seeds that both variants have.
    """

    mean: float
    low: float
    high: float
    pairs: int


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of the tests of a link or of a claim.

    Attributes:
      verdict: `HOLDS`, `REVERSED` or `OPEN`.
      reason: why it is open, or an empty text.
      p_value: the corrected p-value; NaN without a test.
      difference: for a link, the better variant minus the worse one; None for a claim.
    """

    verdict: str
    reason: str = ""
    p_value: float = math.nan
    difference: Difference | None = None


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


def compare(a: Values, b: Values, higher: bool, level: float = LEVEL) -> Difference:
    """Returns the mean paired difference with its interval by the t-distribution."""
    found = differences(a, b, higher)
    if not found:
        return Difference(math.nan, math.nan, math.nan, 0)
    mean = statistics.fmean(found)
    if len(found) == 1:
        return Difference(mean, math.nan, math.nan, 1)
    error = statistics.stdev(found) / math.sqrt(len(found))
    width = float(stats.t.ppf(1 - level / 2, len(found) - 1)) * error
    return Difference(mean, mean - width, mean + width, len(found))


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values for the number of tests (Holm, 1979). NaN (no test) stays."""
    known = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    corrected, largest = list(p_values), 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        corrected[i] = largest
    return corrected


def judge(
    claims: Sequence[Claim],
    measured: Mapping[str, Mapping[str, Values]],
    higher: Mapping[str, bool],
    level: float = LEVEL,
) -> list[tuple[Verdict, list[Verdict]]]:
    """Returns the verdict of each claim, and of each of its links.

    A claim holds if all its links hold. It is reversed if all its links are reversed.

    Args:
      claims: all claims of a study.
      measured: measure → variant → values by seed.
      higher: measure → whether a higher value is better.
      level: the probability that any true null hypothesis of the study is rejected.
    """
    links = [(claim, link) for claim in claims for link in claim.links]
    raw = [_p_value(claim, link, measured, higher) for claim, link in links]
    corrected = holm([p for p, _ in raw])
    verdicts = []
    for (claim, link), p, (_, reason) in zip(links, corrected, raw, strict=True):
        values = measured.get(claim.by, {})
        a, b = values.get(link.better, {}), values.get(link.worse, {})
        difference = compare(a, b, higher[claim.by], level)
        if not reason and not p < level:
            reason = f"p = {p:.2g}"
        shift = 0.0 if link.strict else claim.margin
        known = HOLDS if difference.mean + shift > 0 else REVERSED
        verdicts.append(Verdict(OPEN if reason else known, reason, p, difference))
    judged, at = [], 0
    for claim in claims:
        parts = verdicts[at : at + len(claim.links)]
        at += len(claim.links)
        kinds = {part.verdict for part in parts}
        verdict = kinds.pop() if len(kinds) == 1 else OPEN
        open_links = [
            f"{link}: {part.reason or part.verdict}"
            for link, part in zip(claim.links, parts, strict=True)
            if part.verdict != HOLDS
        ]
        reason = "; ".join(open_links) if verdict == OPEN else ""
        judged.append((Verdict(verdict, reason), parts))
    return judged


def _p_value(
    claim: Claim,
    link: Link,
    measured: Mapping[str, Mapping[str, Values]],
    higher: Mapping[str, bool],
) -> tuple[float, str]:
    """Returns the p-value of a link, and why there is none."""
    values = measured.get(claim.by, {})
    for name in (link.better, link.worse):
        if name not in values:
            return math.nan, f"{name} has no {claim.by}"
        diverged = sum(not math.isfinite(value) for value in values[name].values())
        if diverged:
            return math.nan, f"{diverged} of {len(values[name])} runs of {name} diverged"
    found = differences(values[link.better], values[link.worse], higher[claim.by])
    if len(found) < 2:
        return math.nan, f"{len(found)} seed{'s' if len(found) != 1 else ''} in common"
    shift = 0.0 if link.strict else claim.margin
    shifted = [value + shift for value in found]
    if statistics.stdev(shifted) == 0:  # the test divides by it
        return (1.0, "") if shifted[0] == 0 else (0.0, "")
    return float(stats.ttest_1samp(shifted, 0.0).pvalue), ""
