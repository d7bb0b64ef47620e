"""The rows of a stream: which worker reads which shards, and where a run goes on."""

import numpy as np
import pytest
import tensorflow as tf

from official.data.example_order import Files
from official.data.row_groups import Folder, RowGroups
from tfrecords_tools.writing import records, row_groups

ROWS = 12


def write(folder, steps, num_shards=12, first=0):
    """Shards of `steps` steps; a record has the number of its example, from `first` on."""
    folder.mkdir()
    paths, counts = [], []
    for shard in row_groups.divide(ROWS, steps, 10, num_shards):
        paths.append(str(folder / f"{shard.number}.tfrecord"))
        numbers = [first + step * ROWS + row for step in shard.steps for row in shard.rows]
        counts.append(records.write(paths[-1], [str(n).encode() for n in numbers]).records)
    return Folder(Files(paths, counts), row_groups.count_groups(ROWS, num_shards))


def take(folders, steps, start=0, first=0, count=ROWS, share=None, repeat=True):
    """Rows of some batches, each [steps, count], after a look at each record."""
    stream = RowGroups(folders, ROWS)
    dataset = stream.dataset(start, first, count, share or count, repeat)
    elements = list(dataset.take(steps * count // (share or count)).as_numpy_iterator())
    rows = {name: np.concatenate([e[name] for e in elements]) for name in elements[0]}
    assert rows["record"].astype(int).tolist() == rows["index"].tolist()
    return {name: x.reshape(-1, count) for name, x in rows.items()}


@pytest.mark.parametrize("num_shards", [1, 3, 4, 7, 12, 30])
def test_steps_follow_one_another_in_every_epoch(tmp_path, num_shards):
    rows = take([write(tmp_path / "a", 5, num_shards)], 11)
    numbers = np.arange(5 * ROWS).reshape(5, ROWS)
    np.testing.assert_array_equal(rows["index"], np.concatenate([numbers, numbers, numbers[:1]]))
    np.testing.assert_array_equal(
        rows["epoch"], np.repeat([0, 1, 2], [5, 5, 1])[:, None] + 0 * rows["index"]
    )


def test_one_pass_ends(tmp_path):
    rows = take([write(tmp_path / "a", 5)], 100, start=2, repeat=False)
    np.testing.assert_array_equal(rows["index"], np.arange(2 * ROWS, 5 * ROWS).reshape(3, ROWS))


def test_shards_of_steps_of_all_rows_are_read(tmp_path):
    """Those of an earlier version, where a shard may end within a step."""
    paths = []
    for i, numbers in enumerate((range(17), range(17, 25), range(25, 36))):
        paths.append(str(tmp_path / f"{i}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for number in numbers:
                writer.write(str(number).encode())
    folder = Folder(Files(paths, [17, 8, 11]))
    expected = np.arange(36).reshape(3, ROWS)
    np.testing.assert_array_equal(take([folder], 3)["index"], expected)
    np.testing.assert_array_equal(take([folder], 2, start=4, first=4, count=4)["index"],
                                  expected[1:, 4:8])  # fmt: skip


def two_folders(tmp_path):
    """7 steps of 4 groups, and 4 steps of 12."""
    return [write(tmp_path / "a", 7, 4), write(tmp_path / "b", 4, 40, first=7 * ROWS)]


@pytest.mark.parametrize(("workers", "start"), [(1, 9), (2, 3), (3, 12), (4, 7), (6, 11), (12, 0)])
def test_workers_have_the_rows_of_one_and_start_anywhere(tmp_path, workers, start):
    folders = two_folders(tmp_path)
    whole = take(folders, 24)
    count = ROWS // workers
    for worker in {0, workers // 2, workers - 1}:
        share = 1 if count % 2 else count // 2
        first = worker * count
        own = take(folders, 12, start, first, count, share)
        for name, value in own.items():
            np.testing.assert_array_equal(
                value, whole[name][start : start + 12, first : first + count]
            )


def test_a_worker_opens_the_shards_of_its_groups_only(tmp_path):
    folder = write(tmp_path / "a", 8, 24)  # 12 groups of two shards
    for path in folder.files.paths[:6] + folder.files.paths[12:]:
        tf.io.gfile.remove(path)
    assert take([folder], 20, first=3, count=3)["index"].shape == (20, 3)
    with pytest.raises(tf.errors.NotFoundError):
        take([folder], 1, first=2, count=3)


def test_a_resumed_run_opens_one_shard_of_each_group(tmp_path):
    folder = write(tmp_path / "a", 8, 48)  # shards of two steps
    for i, path in enumerate(folder.files.paths):
        if i % 4 != 2:
            tf.io.gfile.remove(path)
    stream = RowGroups([folder], ROWS)
    rows = next(stream.dataset(8 * 10**9 + 5, 0, ROWS, ROWS, True).as_numpy_iterator())
    assert rows["index"].tolist() == list(range(5 * ROWS, 6 * ROWS))
    assert set(rows["epoch"]) == {10**9}
