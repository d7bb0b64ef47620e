import itertools

import numpy as np
import pytest
import tensorflow as tf

from official.data import example_order


def write(folder, counts):
    """Shards whose records say their numbers."""
    paths, number = [], 0
    for part, count in enumerate(counts):
        paths.append(str(folder / f"{part}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                writer.write(str(number).encode())
                number += 1
    return example_order.Files(tuple(paths), tuple(counts))


def arrays(rows):
    """All rows as one dict of arrays, after a look at each record."""
    batches = list(rows.as_numpy_iterator())
    result = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
    assert result["record"].astype(int).tolist() == result["index"].tolist()
    return result


def take(files, count, seed=0, buffer=1000, start=0):
    return arrays(example_order.shuffled(files, seed, buffer, start).rebatch(count).take(1))


def test_in_order(tmp_path):
    rows = arrays(example_order.in_order(write(tmp_path, [70, 1, 0, 5])))
    assert rows["index"].tolist() == list(range(76))
    assert not rows["epoch"].any()


@pytest.mark.parametrize("buffer", [1000, 100])
def test_epochs_are_whole_shuffled_and_without_a_gap(tmp_path, buffer):
    files = write(tmp_path, [40, 40, 40, 30])
    rows = take(files, 600, buffer=buffer)
    assert rows["epoch"].tolist() == np.repeat(range(4), 150).tolist()
    epochs = rows["index"].reshape(4, 150)
    for epoch in epochs:
        assert sorted(epoch) == list(range(150))
        # Far from the order of the shards, and from that of other epochs.
        assert np.abs(epoch - np.arange(150)).mean() > 20
    assert all((a != b).mean() > 0.9 for a, b in itertools.combinations(epochs, 2))


def test_a_small_buffer_still_mixes_the_shards(tmp_path):
    rows = take(write(tmp_path, [500] * 4), 2000, buffer=256)
    blocks = rows["index"][:1792].reshape(7, 256) // 500
    assert all(len(set(block)) == 4 for block in blocks)
    assert sorted(rows["index"]) == list(range(2000))


@pytest.mark.slow
def test_a_buffer_as_large_as_the_data_shuffles_evenly(tmp_path):
    rows = take(write(tmp_path, [12, 8]), 20 * 500)
    places = np.zeros((20, 20))
    np.add.at(places, (rows["index"], np.tile(np.arange(20), 500)), 1)
    chi2 = ((places - 25) ** 2 / 25).sum()
    assert abs(chi2 - 19 * 19) < 4 * np.sqrt(2 * 19 * 19)


def test_only_the_seed_matters(tmp_path):
    files = write(tmp_path, [40, 40, 40, 30])
    first = take(files, 400, buffer=32)
    tf.random.set_seed(99)
    np.testing.assert_array_equal(take(files, 400, buffer=32)["index"], first["index"])
    assert (take(files, 400, seed=1, buffer=32)["index"] != first["index"]).mean() > 0.9


@pytest.mark.parametrize("start", [1, 63, 64, 65, 149, 150, 151, 214, 299, 300, 1000])
def test_starting_later_gives_the_same_rows(tmp_path, start):
    files = write(tmp_path, [40, 40, 40, 30])
    whole = take(files, 1100, buffer=64)
    rows = take(files, 100, buffer=64, start=start)
    for name, value in rows.items():
        np.testing.assert_array_equal(value, whole[name][start : start + 100])


def test_whole_epochs_are_not_read_to_be_left_out(tmp_path):
    files = write(tmp_path, [3])
    rows = take(files, 2, start=3 * 10**12 + 1)
    assert rows["epoch"].tolist() == [10**12] * 2


def test_filled():
    rows = {"index": tf.constant([4, 5], tf.int64), "record": tf.constant(["4", "5"])}
    result = example_order.filled(rows, 4)
    assert result["index"].numpy().tolist() == [4, 5, -1, -1]
    assert result["record"].numpy().tolist() == [b"4", b"5", b"4", b"4"]
    assert example_order.filled(rows, 2)["index"].numpy().tolist() == [4, 5]


def test_bucketed(tmp_path):
    # The "length" of a record is its number modulo 10, plus 1.
    files = write(tmp_path, [53])
    length = lambda record: tf.strings.to_number(record, tf.int32) % 10 + 1  # noqa: E731
    batches = list(
        example_order.bucketed(
            example_order.in_order(files), length, [4, 7, 10], 5
        ).as_numpy_iterator()
    )
    for batch in batches:
        (places,) = set(batch["length"])
        shorter = {4: 0, 7: 4, 10: 7}[places]
        assert all(shorter < i % 10 + 1 <= places for i in batch["index"])
        assert batch["index"].tolist() == sorted(batch["index"])
    assert sorted(i for batch in batches for i in batch["index"]) == list(range(53))
    sizes = [len(batch["index"]) for batch in batches]
    assert sorted(sizes) == [3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
