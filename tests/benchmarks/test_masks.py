import pytest

from benchmarks import masks
from official.config.corruptions import TARGET_UNITS, UNITS
from tests import commands

ROWS = [*UNITS, *(f"permutation/{unit}" for unit in TARGET_UNITS)]


def test_every_unit_has_a_row():
    assert list(masks.ROWS) == ROWS
    assert all(settings["unit"] in row for row, (_, settings) in masks.ROWS.items())


@pytest.mark.slow
@pytest.mark.long
def test_table():
    done = commands.run(
        "benchmarks.masks",
        *"--batch 8 --batches 3 --rounds 1".split(),
        status=0,
    )
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row[1].strip() for row in rows] == ROWS
    assert all(int(row[2].replace(",", "")) > 0 for row in rows)
