"""Tests of tfrecords_tools.writing.row_groups."""

from tfrecords_tools.writing import row_groups


def divided(rows, steps, num_shards=0, record_bytes=5):
    """The shards as (steps, rows); they are numbered in order."""
    shards = row_groups.divide(rows, steps, record_bytes, num_shards)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert {shard.total for shard in shards} == {len(shards)}
    return row_groups.count_groups(rows, num_shards), [(s.steps, s.rows) for s in shards]


def test_a_shard_has_steps_of_one_group_of_rows():
    groups, shards = divided(rows=4, steps=5, num_shards=4)
    assert groups == 4
    assert shards == [(range(5), range(b, b + 1)) for b in range(4)]


def test_groups_share_the_shards_that_are_asked_for():
    groups, shards = divided(rows=4, steps=5, num_shards=3)
    assert groups == 2
    assert shards == [
        (range(5), range(2)), (range(2), range(2, 4)), (range(2, 5), range(2, 4)),
    ]  # fmt: skip


def test_no_shard_is_empty():
    groups, shards = divided(rows=2, steps=3, num_shards=9)
    assert groups == 2
    assert shards == [(range(t, t + 1), range(b, b + 1)) for b in range(2) for t in range(3)]


def test_shards_have_a_largest_size(monkeypatch):
    monkeypatch.setattr(row_groups, "SHARD_BYTES", 40)  # 4 steps of 2 rows of 5 bytes
    monkeypatch.setattr(row_groups, "MAX_GROUPS", 5)
    groups, shards = divided(rows=6, steps=9)
    assert groups == 3
    ranges = [range(3), range(3, 6), range(6, 9)]
    assert shards == [(steps, range(g, g + 2)) for g in (0, 2, 4) for steps in ranges]
