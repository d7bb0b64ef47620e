"""The torture bench as tests: one of each case of each part; see `benchmarks.torture.conftest`."""

from pathlib import Path

import pytest

from benchmarks.torture import changes, configs, disk, flips, fuzz, hostile, kills, nan, power
from benchmarks.torture.materials import Materials

PARTS = (
    kills.Trainings, kills.Builds, power.PowerCuts, flips.Flips, fuzz.Fuzz, configs.Typos,
    disk.FullDisks, hostile.Hostile, changes.Changes, nan.Nans,
)  # fmt: skip


def pytest_generate_tests(metafunc):
    """Makes the tests; one process runs those of a part."""
    option, tests = metafunc.config.option, []
    for part in PARTS:
        count = part.whole if option.whole else part.quick
        for case in range(max(1, round(count * option.share))):
            tests.append(pytest.param(part, case, id=f"{part.name}-{case}"))
    metafunc.parametrize("part, case", tests)


@pytest.fixture(scope="session")
def made(pytestconfig):
    """The parts that were begun, and what all work on."""
    return {}, Materials(Path(pytestconfig.torture["folder"], "materials"))


@pytest.mark.torture
def test_case(part, case, made, record_property, pytestconfig):
    """A case breaks no promise of its part."""
    seed, (begun, materials) = pytestconfig.option.seed, made
    if part not in begun:
        begun[part] = part(seed, materials)
    outcome = begun[part].run(case)
    about = {"kinds": dict(outcome.kinds), "about": [part.things, part.promise]}
    record_property("outcome", {**vars(outcome), **about})
    if outcome.failures:
        place = Path(__file__).relative_to(pytestconfig.rootpath)
        again = f"python -m pytest --whole --seed={seed} '{place}::test_case[{part.name}-{case}]'"
        pytest.fail("\n".join([*outcome.failures, again]), pytrace=False)
