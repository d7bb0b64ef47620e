#!/usr/bin/env bash
# The macro F1 of tags without an entity, in the gold tags and in the predictions.
#
# Expected: 0.0, as `average="micro"` gives, since `zero_division=0` says what 0 / 0 is.
# What happens: `average="macro"` returns NaN with a RuntimeWarning of numpy.
# Why: the mean is taken over the types of entities, and there is none: numpy's mean of an empty
#   array. `zero_division` is only applied to each type.
# Versions: seqeval 1.2.2 with numpy 2.4.6 and scikit-learn 1.9.1, Python 3.11.
# Consequence: a validation set that happens to have no entity makes the metric NaN, and NaN is
#   neither better nor worse than any other, which decides what "best checkpoint" means.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  seqeval==1.2.2 numpy==2.4.6 scikit-learn==1.9.1 setuptools==80.9.0 wheel==0.45.1
"$folder/venv/bin/python" - <<'PYTHON'
import math
import sys
import warnings

from seqeval.metrics import f1_score

warnings.simplefilter("ignore")
tags = [["O", "O"]]
made = {name: float(f1_score(tags, tags, average=name, zero_division=0)) for name in ("micro", "macro")}
print(made)
if made["micro"] != 0.0 or not math.isnan(made["macro"]):
    sys.exit("changed: expected micro 0.0 and macro nan")
print("as described: micro is 0.0, macro is nan")
PYTHON
