"""The orders of examples, and which worker reads which bytes in training."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official.data import order
from official.data.order import Files
from tests.small import numbered_shards as write


def take(files, steps, batch=10, seed=0, start=0, first=0, count=None, share=None):
    """Rows of some batches, each [steps, count], after a look at each record."""
    count = count or batch
    dataset = order.Lanes(files, seed, batch).dataset(start, first, count, share or count)
    elements = list(dataset.take(steps * count // (share or count)).as_numpy_iterator())
    rows = {name: np.concatenate([e[name] for e in elements]) for name in elements[0]}
    assert rows["record"].astype(int).tolist() == rows["index"].tolist()
    return {name: x.reshape(steps, count) for name, x in rows.items()}


@pytest.mark.parametrize("counts", [[150], [40, 40, 40, 30], [1] * 150, [0, 149, 1]])
@pytest.mark.parametrize("batch", [10, 7, 16])
def test_every_example_is_read_once_in_each_epoch(tmp_path, counts, batch):
    rows = take(write(tmp_path, counts), 600 // batch + batch, batch)
    for epoch in range(4):
        read = rows["index"][rows["epoch"] == epoch]
        assert sorted(read) == list(range(150))
    # Lanes differ by one example, so epochs overlap in two batches at most.
    bounds = [np.nonzero((rows["epoch"] == epoch).any(axis=1))[0] for epoch in range(4)]
    for before, after in itertools.pairwise(bounds):
        assert before.max() <= after.min() + 1


def test_lanes_never_drift_apart(tmp_path):
    read = order.Lanes(Files(["a"] * 7, [5, 9, 1, 30, 2, 8, 12]), 0, 6)
    assert read.lanes == 6
    for epochs in (1, 2, 1000, 10**9):
        lengths = [read.length(lane, epochs) for lane in range(6)]
        assert sum(lengths) == 67 * epochs
        assert max(lengths) - min(lengths) <= 1
    for lane, number in itertools.product(range(6), (0, 10, 11, 12, 10**9)):
        epoch = read.epoch(lane, number)
        assert read.length(lane, epoch) <= number < read.length(lane, epoch + 1)


@pytest.mark.parametrize(
    "shards, megabytes, batch, expected",
    [
        (400, 32, 512, 32), (400, 1, 512, 32), (8000, 32, 512, 32), (8000, 4, 512, 256),
        (8000, 1, 512, 256), (8000, 1, 768, 384), (8000, 1, 16, 16), (8000, None, 512, 32),
    ],
)  # fmt: skip
def test_many_small_shards_are_read_in_more_lanes(shards, megabytes, batch, expected):
    """Those of all lanes have a gibibyte, so 256 workers can each read 1 / 256 of the bytes."""
    size = None if megabytes is None else shards * megabytes << 20
    files = Files(["a"] * shards, [10] * shards, size)
    assert order.count_lanes([files], batch) == expected
    if megabytes == 4:
        assert order.count_lanes([files, files], batch) == 128
    assert Files.joined([files, files]).bytes == (None if size is None else 2 * size)


def test_epochs_have_no_neighbors_in_common_beyond_chance(tmp_path):
    size = 2000
    rows = take(write(tmp_path, [500] * 4), 3 * size // 20, 20)["index"].reshape(3, size)
    pairs = [set(map(tuple, np.stack([epoch[:-1], epoch[1:]], axis=1))) for epoch in rows]
    for a, b in itertools.combinations(pairs, 2):
        assert len(a & b) <= 6  # of two random orders: 1, with a standard deviation of 1
    assert len(pairs[0] & {(i, i + 1) for i in range(size)}) <= 6


def test_one_shard_is_shuffled_evenly(tmp_path):
    places = take(write(tmp_path, [20]), 500, 20)["index"]
    counts = np.zeros((20, 20))
    np.add.at(counts, (places, np.arange(20)[None].repeat(500, axis=0)), 1)
    chi2 = ((counts - 25) ** 2 / 25).sum()
    assert abs(chi2 - 19 * 19) < 4 * np.sqrt(2 * 19 * 19)


def test_only_the_seed_matters(tmp_path):
    files = write(tmp_path, [40, 40, 40, 30])
    first = take(files, 40)["index"]
    tf.random.set_seed(99)
    np.random.seed(99)
    np.testing.assert_array_equal(take(files, 40)["index"], first)
    assert (take(files, 40, seed=1)["index"] != first).mean() > 0.9


@pytest.mark.parametrize("start", [1, 7, 14, 15, 16, 44, 100])
def test_starting_later_gives_the_same_batches(tmp_path, start):
    files = write(tmp_path, [40, 40, 40, 30])
    whole, rows = take(files, 110), take(files, 10, start=start)
    for name, value in rows.items():
        np.testing.assert_array_equal(value, whole[name][start : start + 10])


def test_whole_epochs_are_not_read_to_be_left_out(tmp_path):
    rows = take(write(tmp_path, [4]), 1, 2, start=2 * 10**12 + 1)
    assert rows["epoch"].tolist() == [[10**12] * 2]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, pytest.param(16, marks=pytest.mark.long)])
def test_workers_read_their_own_shards_and_together_the_same_batches(tmp_path, workers):
    files = write(tmp_path, [20] * 64)
    whole = take(files, 80, 16)  # an epoch
    share = 16 // workers
    parts = [
        take(files, 80, 16, first=worker * share, count=share)["index"] for worker in range(workers)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole["index"])
    for part in parts:
        # A shard at the end of a part may continue in another lane.
        assert len(set((part // 20).flatten())) <= 64 / workers + 2 * share


def test_a_worker_does_not_open_the_shards_of_others(tmp_path):
    files = write(tmp_path, [50] * 64)
    own = set((take(files, 200, 16, first=4, count=4)["index"] // 50).flatten())
    for shard in set(range(64)) - own:
        (tmp_path / f"{shard}.tfrecord").unlink()
    take(files, 200, 16, first=4, count=4)
    assert len(own) <= 20


def test_a_resumed_run_opens_one_shard_for_each_lane(tmp_path):
    files = write(tmp_path, [50] * 64)
    needed = set((take(files, 1, 8, start=12345)["index"] // 50).flatten())
    for shard in set(range(64)) - needed:
        (tmp_path / f"{shard}.tfrecord").unlink()
    take(files, 1, 8, start=12345)
    assert len(needed) <= 8


def test_replicas_have_elements_of_their_own(tmp_path):
    files = write(tmp_path, [40, 40])
    np.testing.assert_array_equal(take(files, 10, 8, share=2)["index"], take(files, 10, 8)["index"])


def test_a_changed_record_is_refused_when_it_is_read(tmp_path):
    files = write(tmp_path, [40, 40])
    path = tmp_path / "1.tfrecord"
    data = bytearray(path.read_bytes())
    data[12] ^= 1  # the first byte of the first record
    path.write_bytes(data)
    with pytest.raises(tf.errors.DataLossError, match="corrupted record"):
        take(files, 10)


def test_two_iterators_of_a_data_set_do_not_disturb_one_another(tmp_path):
    files = write(tmp_path, [40, 40, 40, 30])
    whole = take(files, 40)["index"]
    dataset = order.Lanes(files, 0, 10).dataset(0, 0, 10, 10)
    first = dataset.as_numpy_iterator()
    for step in range(30):
        assert next(first)["index"].tolist() == whole[step].tolist()
        if step % 7 == 0:
            again = next(dataset.as_numpy_iterator())
            assert again["index"].tolist() == whole[0].tolist()


@pytest.mark.slow
@pytest.mark.long
def test_a_process_ends_in_the_middle_of_an_epoch(tmp_path):
    files = write(tmp_path, [4000])
    code = f"""
from official.data import order
from official.data.order import Files
rows = order.Lanes(Files({files.paths!r}, {files.counts!r}), 0, 8)
batches = iter(rows.dataset(0, 0, 8, 8).prefetch(100))
next(batches)
"""
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)


def arrays(rows):
    """All rows as one dict of arrays, after a look at each record."""
    batches = list(rows.as_numpy_iterator())
    result = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    assert result["record"].astype(int).tolist() == result["index"].tolist()
    return result


def test_in_order(tmp_path):
    rows = arrays(order.in_order(write(tmp_path, [70, 1, 0, 5])))
    assert rows["index"].tolist() == list(range(76))
    assert not rows["epoch"].any()


def test_filled():
    rows = {"index": tf.constant([4, 5], tf.int64), "record": tf.constant(["4", "5"])}
    result = order.filled(rows, 4)
    assert result["index"].numpy().tolist() == [4, 5, -1, -1]
    assert result["record"].numpy().tolist() == [b"4", b"5", b"4", b"4"]
    assert order.filled(rows, 2)["index"].numpy().tolist() == [4, 5]


def test_bucketed(tmp_path):
    # The "length" of a record is its number modulo 10, plus 1.
    files = write(tmp_path, [53])
    length = lambda record: tf.strings.to_number(record, tf.int32) % 10 + 1  # noqa: E731
    batches = list(order.bucketed(order.in_order(files), length, [4, 7, 10], 5).as_numpy_iterator())
    for batch in batches:
        (places,) = set(batch["length"])
        shorter = {4: 0, 7: 4, 10: 7}[places]
        assert all(shorter < i % 10 + 1 <= places for i in batch["index"])
        assert batch["index"].tolist() == sorted(batch["index"])
    assert sorted(i for batch in batches for i in batch["index"]) == list(range(53))
    sizes = [len(batch["index"]) for batch in batches]
    assert sorted(sizes) == [3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
