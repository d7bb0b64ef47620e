import pytest

from benchmarks import lstm


def test_the_ratio_is_that_of_the_better_one_of_ours():
    seconds = {(8, 4): {lstm.OURS: 0.5, lstm.XLA: 0.25, lstm.THEIRS: 1.5}}
    lines = lstm.table(seconds)
    assert lines[2] == "| 8 | 4 | 500 | 250 | 1,500 | 6.00 |"
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|")


def test_other_results_end_the_benchmark():
    means = {side: {"outputs": 1.0, "of the bias": 2.0} for side in lstm.SIDES}
    means[lstm.OURS]["outputs"] = 1.0005
    lstm.compare(means)
    means[lstm.XLA]["of the bias"] = 2.01
    with pytest.raises(SystemExit, match="XLA, of the bias: mean 2.01, but PyTorch has 2"):
        lstm.compare(means)
