import subprocess
import sys

import pytest

SMALL = "--layers 1 --hidden 16 --heads 2 --intermediate 32 --length 32 --batch 4 --predictions 5"


@pytest.mark.slow
def test_our_side_runs_and_is_tabled():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.train_step", "--sides", "encoder garden",
         *SMALL.split(), "--vocab", "100", "--steps", "2", "--rounds", "2"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if "first loss" in line]
    # Untrained: ln 100 for the masked tokens and ln 2 for the sentence.
    assert losses == pytest.approx([5.30, 5.30], abs=0.1)
    table = [line for line in done.stdout.splitlines() if "garden" in line and "|" in line]
    rows = [line.split("|")[2].strip() for line in table]
    assert rows == ["float32", "bfloat16"]
    assert done.stdout.count("1.00x") == 1
