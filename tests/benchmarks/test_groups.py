"""benchmarks.groups: all records are read, and its table."""

import pytest

from benchmarks import groups


@pytest.mark.parametrize("together, files", [(1, 3), (2, 2), (8, 1)])
def test_all_records_are_read(tmp_path, monkeypatch, together, files):
    made = groups.write(tmp_path, 3, together, 20)
    seen = []
    original = groups.local.SortedRuns.read

    def counted(runs, first, end):
        found = original(runs, first, end)
        seen.append(len(found[1]))
        return found

    monkeypatch.setattr(groups.local.SortedRuns, "read", counted)
    for count, reads in ((1, 5), (2, 3), (8, 1)):
        seen.clear()
        assert groups.read(made, 5, count) >= 0
        assert sum(seen) == 60 and len(seen) == reads * files


def test_the_table_compares_with_single_groups_and_shards():
    times = {(1, 1): [9.0, 4.0, 1.0], (1, 8): [0.5], (8, 8): [0.25]}
    assert groups.table(times, 100, 400)[2:] == [
        "| 1 | 1 | 4.0 | 100.0 | 1.0 |",
        "| 1 | 8 | 0.5 | 12.5 | 8.0 |",
        "| 8 | 8 | 0.2 | 6.2 | 16.0 |",
    ]


def test_groups_of_a_corpus():
    number, seconds, memory = groups.planned(2)
    assert number == 2 * 10**9 // (8 << 20) and 0 < seconds < 100 and memory >= 0
