"""Makes holm.json: p-values of simulated studies, corrected by statsmodels.

pip install statsmodels==0.14.5
python tests/golden/make_holm_golden.py
"""

import json
from pathlib import Path

import numpy as np
import statsmodels
from scipy import stats
from statsmodels.stats.multitest import multipletests

draw = np.random.default_rng(0)
cases = []
for number in range(200):
    links, seeds = 1 + number % 8, 2 + number % 4
    differences = draw.normal(draw.choice([0, 1], size=(links, 1)), 1, size=(links, seeds))
    p = stats.ttest_1samp(differences, 0, axis=1).pvalue
    if number % 5 == 0:
        p[-1] = p[0]  # a tie
    corrected = multipletests(p, method="holm")[1]
    cases.append({"p": p.tolist(), "corrected": corrected.tolist()})
path = Path(__file__).with_name("holm.json")
path.write_text(json.dumps({"statsmodels": statsmodels.__version__, "cases": cases}) + "\n")
