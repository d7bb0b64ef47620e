"""Makes claims.json: tests of the differences of made studies, by scipy and statsmodels.

pip install statsmodels==0.15.0
python tests/golden/make_claims_golden.py
"""

import itertools
import json
from pathlib import Path

import numpy as np
import scipy
import statsmodels
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.weightstats import ttost_paired

draw = np.random.default_rng(0)
cases = []
for number in range(60):
    variants, seeds = 2 + number % 4, 2 + number % 6
    spread = draw.choice([0.05] * 8 + [0.4], size=(variants, 1))
    values = draw.normal(draw.normal(size=(1, seeds)), spread, size=(variants, seeds))
    values += draw.normal(0, 0.05, size=(variants, 1))
    margin = float(draw.choice([0.05, 0.2, 0.5]))
    first, second = values[:2]
    paired = stats.ttest_rel(first, second)
    # Two-way without interaction: a column for each variant, and for each seed but the first.
    rows = list(itertools.product(range(variants), range(seeds)))
    design = np.zeros((len(rows), variants + seeds - 1))
    for row, (variant, seed) in enumerate(rows):
        design[row, variant] = 1
        if seed:
            design[row, variants + seed - 1] = 1
    contrast = np.zeros(design.shape[1])
    contrast[:2] = 1, -1
    block = OLS(values.reshape(-1), design).fit().t_test(contrast)
    alone = [np.var(a - b, ddof=1) for a, b in itertools.combinations(values, 2)]
    cases.append(
        {
            "values": values.tolist(),
            "margin": margin,
            "mean": float(np.mean(first - second)),
            "paired": {
                "direction": float(paired.pvalue),
                "equivalence": float(ttost_paired(first, second, -margin, margin)[0]),
                "interval": [float(end) for end in paired.confidence_interval(0.95)],
            },
            "block": {
                "direction": float(block.pvalue),
                "error": float(block.sd.item()),
                "freedom": int(block.df_denom),
                "interval": block.conf_int()[0].tolist(),
            },
            "ratio": float(max(alone) / min(alone)),
        }
    )
versions = {"scipy": scipy.__version__, "statsmodels": statsmodels.__version__}
path = Path(__file__).with_name("claims.json")
path.write_text(json.dumps({**versions, "cases": cases}) + "\n")
