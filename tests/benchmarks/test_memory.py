import re

import pytest

from benchmarks import memory
from official import config as configs
from tests import CONFIGS, commands


@pytest.mark.slow
@pytest.mark.long
def test_an_estimate_is_near_the_measured_peak():
    done = commands.run("benchmarks.memory", "--only", "smoke/bert_demo", status=0)
    [row] = re.findall(
        r"^\| smoke/bert_demo \| ([\d.]+) GB \| ([\d.]+) GB \| .*\|$", done.stdout, re.M
    )
    estimate, measured = map(float, row)
    assert 0.8 < estimate / measured < 1.25


def test_each_smoke_config_has_a_row():
    names = {run.config for run in memory.RUNS if run.config.startswith("smoke/")}
    assert names == {f"smoke/{path.stem}" for path in (CONFIGS / "smoke").glob("*.yaml")}
    for run in memory.RUNS:
        configs.load(CONFIGS / f"{run.config}.yaml", list(run.overrides))
