"""Tests of the power of studies: by simulated t-tests, and the lines of a page."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments import forecast, study_page

PAGE = """\
name: made
about: a study
sizes:
  mini: {config: bert_mini.yaml, steps: 10, seeds: 6}
  one: {config: bert_mini.yaml, steps: 9, seeds: 1}
variants: {a: {}, b: {}, c: {}, d: {}, long: {budget: 2}}
measures:
  loss: {margin: 0.085, because: a tenth of the steps, spread: 0.016}
  score: {}
  narrow: {margin: 0.005, because: a few rows, spread: 0.016}
claims:
  - {order: a > b = c, by: loss}
  - {order: d > a, by: loss}
  - {order: a > b, by: score}
  - {order: a = b, by: narrow}
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "made.yaml").write_text(PAGE)
    return study_page.load(tmp_path / "made.yaml")


def test_the_table_agrees_with_simulated_studies():
    """Two variants, 2,000 studies each: four of five find the difference of the table."""
    rows = [line.split("|") for line in forecast.table(2, 3, (3, 6)).splitlines()[2:]]
    draw = np.random.default_rng(0)
    for _, seeds, one, three, equality, _ in rows:
        draws = draw.normal(size=(2000, int(seeds)))
        for text, level in ((one, 0.05), (three, 0.05 / 3)):
            p = stats.ttest_1samp(draws + float(text), 0, axis=1).pvalue
            assert 0.74 <= (p < level).mean() <= 0.86
        margin = float(equality)
        sides = [
            stats.ttest_1samp(draws, sign * margin, axis=1, alternative=side).pvalue
            for sign, side in ((-1, "greater"), (1, "less"))
        ]
        assert 0.74 <= (np.maximum(*sides) < 0.05).mean() <= 0.86


def test_a_page_says_what_its_seeds_show(study):
    loss, score, narrow = forecast.power(study, "mini")
    # Four variants of six seeds: 15 degrees of freedom.
    error = 0.016 / math.sqrt(6)
    places = []
    for level in (0.05, 0.0125):
        least = stats.t.ppf(1 - level / 2, 15)
        grid = np.linspace(1, 6, 5001)
        places.append(grid[np.argmax(stats.nct.sf(least, 15, grid) >= 0.8)] * error)
    words = f"{places[0]:.2g} to {places[1]:.2g}"
    assert loss.startswith(f"loss: 6 seeds of 4 variants show a difference of {words}, and ")
    assert loss.endswith("; the margin is 0.085")
    assert "6 seeds of 2 variants show a difference of 1.4 to 2 SD" in score
    assert score.endswith("give it as `spread`)")
    assert narrow.endswith("; the margin is 0.005, which so few seeds may not show")
    assert forecast.power(study, "one")[0] == "loss: one seed shows nothing"
