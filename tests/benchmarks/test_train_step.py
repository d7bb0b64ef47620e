import subprocess
import sys

import pytest

SMALL = "--layers 1 --hidden 16 --heads 2 --intermediate 32 --length 32 --batch 4 --predictions 5"


@pytest.mark.slow
def test_our_sides_run_and_are_tabled():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.train_step", "--sides", "encoder garden",
         "encoder garden, ALBERT", *SMALL.split(), "--vocab", "100", "--steps", "2",
         "--rounds", "2"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if "first loss" in line]
    # Untrained: ln 100 for the masked tokens and ln 2 for the sentence.
    assert losses == pytest.approx([5.30] * 4, abs=0.1)
    table = [line for line in done.stdout.splitlines() if "garden" in line and "|" in line]
    rows = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in table]
    assert rows == [
        (side, precision)
        for side in ("encoder garden", "encoder garden, ALBERT")
        for precision in ("float32", "bfloat16")
    ]
    assert "1.00x" in table[0] + table[1]
