"""benchmarks.groups: all records are read, and its table."""

from benchmarks import groups


def test_all_records_are_read(tmp_path, monkeypatch):
    made = [groups.write(tmp_path, number, 20) for number in range(3)]
    seen = []
    original = groups.local.SortedRuns.read

    def counted(runs, first, end):
        found = original(runs, first, end)
        seen.append(len(found[1]))
        return found

    monkeypatch.setattr(groups.local.SortedRuns, "read", counted)
    for count, reads in ((1, 15), (2, 9), (8, 3)):
        seen.clear()
        assert groups.read(made, 5, count) >= 0
        assert sum(seen) == 60 and len(seen) == reads


def test_the_table_compares_with_single_parts():
    assert groups.table({1: [9.0, 4.0, 1.0], 8: [0.5]}, 100, 400)[2:] == [
        "| 1 | 4.0 | 100.0 | 1.00 |",
        "| 8 | 0.5 | 12.5 | 8.00 |",
    ]
