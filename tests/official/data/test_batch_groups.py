"""Batches of similar lengths or of distinct texts: their order, and where a run goes on."""

import numpy as np
import pytest
import tensorflow as tf

from official.data import batch_groups
from official.data.batch_groups import Arrangement, BatchGroups
from official.data.order import Lanes
from tests.small import numbered_shards as write

B, BOUNDS = 6, [4, 7, 10]


def lengths(records):
    """The "length" of a record is its number modulo 10, plus 1."""
    return tf.strings.to_number(records, tf.int32) % 10 + 1


def groups(files, seed=0):
    lanes = Lanes(files, seed, B)
    return BatchGroups(lanes, Arrangement(lengths, BOUNDS), seed, B, sum(files.counts))


def take(files, steps, start=0, first=0, count=B, share=None, seed=0):
    """Rows of some batches, each [steps, count]."""
    dataset = groups(files, seed).dataset(start, first, count, share or count)
    elements = list(dataset.take(steps * count // (share or count)).as_numpy_iterator())
    rows = {name: np.concatenate([e[name] for e in elements]) for name in elements[0]}
    assert rows["record"].astype(int).tolist() == rows["index"].tolist()
    return {name: x.reshape(steps, count) for name, x in rows.items()}


def test_a_group_has_the_rows_of_its_batches_sorted_by_bucket(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_groups, "MAX_BATCHES", 20)
    files = write(tmp_path, [100] * 4)
    assert groups(files).batches == 20
    rows = take(files, 40)
    plain = list(Lanes(files, 0, B).dataset(0, 0, B, B).take(40).as_numpy_iterator())
    for group in (slice(0, 20), slice(20, 40)):
        given = np.concatenate([batch["index"] for batch in plain[group]])
        actual = rows["index"][group]
        assert sorted(actual.ravel()) == sorted(given)
        longest = (actual % 10 + 1).max(axis=1)
        expected = np.array(BOUNDS)[np.searchsorted(BOUNDS, longest)]
        np.testing.assert_array_equal(rows["length"][group], expected[:, None].repeat(B, axis=1))
        # Sorted by bucket, only two batches have rows of two buckets.
        buckets = np.searchsorted(BOUNDS, actual % 10 + 1)
        assert (buckets.min(axis=1) != buckets.max(axis=1)).sum() <= 2
        # The batches are shuffled: about half of the neighbors have rising lengths.
        rising = (np.diff(longest) > 0).sum()
        assert 3 <= rising <= 14
        # Within a bucket, rows keep the order of the lanes.
        places = {number: place for place, number in enumerate(given)}
        for batch, bucket in zip(actual, buckets, strict=True):
            if bucket.min() == bucket.max():
                assert np.all(np.diff([places[number] for number in batch]) > 0)


def test_a_group_is_no_longer_than_an_epoch(tmp_path):
    files = write(tmp_path, [30, 25])
    assert groups(files).batches == 9
    rows = take(files, 55)  # six epochs
    counts = np.bincount(rows["index"].ravel(), minlength=55)
    assert set(counts) <= {5, 6, 7} and (counts == 6).sum() > 40
    few = write(tmp_path, [3])
    assert groups(few).batches == 1
    np.testing.assert_array_equal(np.bincount(take(few, 5)["index"].ravel()), [10] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("batches", [4, pytest.param(9, marks=pytest.mark.long)])
def test_a_run_of_whole_epochs_has_each_example_as_often(tmp_path, monkeypatch, batches):
    """A group that went on behind the end would leave out some of the last epoch."""
    monkeypatch.setattr(batch_groups, "MAX_BATCHES", batches)
    files = write(tmp_path, [30, 24])
    steps = 3 * 54 // B

    def read(start, count):
        elements = groups(files).dataset(start, 0, B, B, end=steps).take(count)
        return np.array([rows["index"] for rows in elements.as_numpy_iterator()])

    whole = read(0, steps + 9)
    assert set(np.bincount(whole[:steps].ravel())) == {3}
    for start in (batches + 1, steps - steps % batches, steps - 1, steps, steps + 2):
        np.testing.assert_array_equal(read(start, 3), whole[start : start + 3])
    plain = take(files, steps)["index"]
    np.testing.assert_array_equal(
        whole[: steps - steps % batches], plain[: steps - steps % batches]
    )


@pytest.mark.slow
@pytest.mark.parametrize("start", [1, 8, 9, 10, 31])
def test_starting_later_gives_the_same_batches(tmp_path, start):
    files = write(tmp_path, [30, 25])
    whole, rows = take(files, 40), take(files, 5, start=start)
    for name, value in rows.items():
        np.testing.assert_array_equal(value, whole[name][start : start + 5])


def test_a_resumed_run_reads_one_group(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_groups, "MAX_BATCHES", 4)
    files = write(tmp_path, [10] * 60)
    rows = take(files, 1, start=4002)
    shards = set((take(files, 4, start=4000)["index"] // 10).ravel())
    for shard in set(range(60)) - shards:
        (tmp_path / f"{shard}.tfrecord").unlink()
    assert len(shards) <= 12
    rest = take(files, 1, start=4002)
    np.testing.assert_array_equal(rest["index"], rows["index"])


def test_workers_have_batches_of_one_length(tmp_path):
    files = write(tmp_path, [30, 25])
    whole = take(files, 20)
    for first in (0, 2, 4):
        part = take(files, 20, first=first, count=2, share=1)
        for name, value in part.items():
            np.testing.assert_array_equal(value, whole[name][:, first : first + 2])


def test_only_the_seed_matters(tmp_path):
    files = write(tmp_path, [30, 25])
    first = take(files, 20)["index"]
    tf.random.set_seed(99)
    np.testing.assert_array_equal(take(files, 20)["index"], first)
    assert (take(files, 20, seed=1)["index"] != first).mean() > 0.8


def texts(records):
    """Two texts of a record: some stand in many records, and some in both places."""
    number = tf.strings.to_number(records, tf.int32)
    return tf.stack([number % 40, tf.where(number % 10 < 8, number + 20, 7)], axis=1)


def distinct(files, bounds=(), seed=0):
    arrangement = Arrangement(lengths, bounds, texts)
    return BatchGroups(Lanes(files, seed, B), arrangement, seed, B, sum(files.counts))


def take_distinct(files, steps, start=0, first=0, count=B, end=None, **how):
    dataset = distinct(files, **how).dataset(start, first, count, count, end).take(steps)
    return [{name: x.copy() for name, x in rows.items()} for rows in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("bounds", [(), BOUNDS])
def test_no_text_stands_twice_in_a_batch(tmp_path, monkeypatch, bounds):
    monkeypatch.setattr(batch_groups, "MAX_BATCHES", 20)
    files = write(tmp_path, [50] * 5)
    steps = 5 * 40  # of five epochs but a little
    batches = take_distinct(files, steps, bounds=bounds)
    times = np.zeros(250, int)
    for batch in batches:
        real = batch["index"] >= 0
        rows = batch["index"][real]
        assert real.any() and len(set(rows)) == len(rows)
        both = texts(tf.constant(batch["record"][real])).numpy()
        kept = [text for row in both for text in set(row.tolist())]
        assert len(set(kept)) == len(kept)
        times[rows] += 1
        assert batch["record"][real].astype(int).tolist() == rows.tolist()
        if bounds:
            assert (batch["length"] >= lengths(tf.constant(batch["record"])).numpy()).all()
            assert len(set(batch["length"])) == 1 and batch["length"][0] in BOUNDS
    # 20 batches of 120 rows have about 24 rows with the text 7, which stand once in a batch.
    left_out = 1 - times.sum() / (steps * B)
    assert 0.01 < left_out < 0.1
    alone = np.arange(250) % 10 < 8
    assert times[alone].mean() > 4.7 and times[~alone].mean() < times[alone].mean()


@pytest.mark.slow
@pytest.mark.long
def test_batches_without_a_text_twice_are_those_of_any_workers_and_any_start(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_groups, "MAX_BATCHES", 7)
    files = write(tmp_path, [30, 33])
    whole = take_distinct(files, 24, end=24)
    for start in (1, 7, 20, 23):
        for rows, expected in zip(
            take_distinct(files, 24 - start, start=start, end=24), whole[start:], strict=True
        ):
            for name, value in rows.items():
                np.testing.assert_array_equal(value, expected[name])
    for first in (0, 2, 4):
        for rows, expected in zip(
            take_distinct(files, 24, first=first, count=2, end=24), whole, strict=True
        ):
            np.testing.assert_array_equal(rows["index"], expected["index"][first : first + 2])
    other = take_distinct(files, 24, seed=1)
    assert any((a["index"] != b["index"]).any() for a, b in zip(other, whole, strict=True))
