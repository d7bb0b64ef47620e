import numpy as np
import pytest

from benchmarks import new_york
from tests import commands


def test_the_language():
    assert len(new_york.CITIES) == 16 and len(set(new_york.PIECES)) == len(new_york.PIECES) == 39
    words = np.array(new_york.PIECES)[new_york.SENTENCES]
    assert " ".join(words[0]) == "[CLS] New York is a city [SEP]"
    assert new_york.truth() == pytest.approx(-2.7726, abs=1e-4)


@pytest.mark.slow
@pytest.mark.long
def test_permutation_lm_learns_the_joint_and_masked_lm_stays_short_of_it():
    done = commands.run(
        "benchmarks.new_york",
        "--steps=300",
        status=0,
    )
    print(done.stdout)
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    joint = {row[1].strip(): float(row[-2]) for row in rows}
    truth = joint.pop("the truth")
    masked = joint.pop("masked LM")
    assert len(joint) == 2
    for name, value in joint.items():
        assert value == pytest.approx(truth, rel=0.05), name
    # The mutual information of two words that tell each other is how rare they are.
    assert truth - masked == pytest.approx(-truth, rel=0.1)
    for row in rows:
        first, second = (float(cell.split()[0]) for cell in row[2:4])
        if "permutation" in row[1]:
            known = second if "New before York" in row[1] else first
            assert known == pytest.approx(0, abs=0.1)
        else:
            assert [first, second] == pytest.approx([truth, truth], rel=0.1)
