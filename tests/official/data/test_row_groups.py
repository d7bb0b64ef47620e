"""The rows of a stream: which worker reads which shards, and where a run goes on."""

import numpy as np
import pytest
import tensorflow as tf

from official.data.order import Files
from official.data.row_groups import Folder, RowGroups
from tfrecords_tools.writing import shards

ROWS = 12


def write(folder, steps, num_shards=12, first=0):
    """Shards of `steps` steps; a record has the number of its example, from `first` on."""
    folder.mkdir()
    paths, counts = [], []
    for shard in shards.divide_rows(ROWS, steps, 10, num_shards):
        paths.append(str(folder / f"{shard.number}.tfrecord"))
        numbers = [first + step * ROWS + row for step in shard.steps for row in shard.rows]
        counts.append(shards.write_file(paths[-1], [str(n).encode() for n in numbers]).records)
    return Folder(Files(paths, counts), shards.count_groups(ROWS, num_shards))


def take(folders, steps, start=0, first=0, count=ROWS, share=None, repeat=True, seed=0):
    """Rows of some batches, each [steps, count], after a look at each record."""
    stream = RowGroups(folders, ROWS, seed, repeat=repeat)
    dataset = stream.dataset(start, first, count, share or count)
    elements = list(dataset.take(steps * count // (share or count)).as_numpy_iterator())
    rows = {name: np.concatenate([e[name] for e in elements]) for name in elements[0]}
    assert rows["record"].astype(int).tolist() == rows["index"].tolist()
    return {name: x.reshape(-1, count) for name, x in rows.items()}


@pytest.mark.parametrize("num_shards", [1, 3, 4, 7, 12, 30])
def test_each_epoch_has_all_rows_in_their_order_from_another_step_on(tmp_path, num_shards):
    folder, steps = write(tmp_path / "a", 9, num_shards), 9
    rows = take([folder], 4 * steps)
    numbers = np.arange(steps * ROWS).reshape(steps, ROWS)
    np.testing.assert_array_equal(
        rows["epoch"], np.repeat(range(4), steps)[:, None] + 0 * numbers[0]
    )
    epochs = rows["index"].reshape(4, steps, ROWS)
    np.testing.assert_array_equal(epochs[0], numbers)
    size = ROWS // folder.groups
    turns = epochs[:, 0] // ROWS  # [epoch, row]
    for epoch, turn in zip(epochs, turns, strict=True):
        for row in range(ROWS):
            np.testing.assert_array_equal(epoch[:, row], np.roll(numbers[:, row], -turn[row]))
        np.testing.assert_array_equal(turn, turn[::size].repeat(size))
    assert len({tuple(turn) for turn in turns}) == 4
    assert folder.groups == 1 or len(set(turns[1:].ravel())) > 2  # side by side with others
    first = np.arange(4 * steps) % steps == 0
    np.testing.assert_array_equal(rows["first"], first[:, None] | np.zeros(ROWS, bool))


def test_the_seed_decides(tmp_path):
    folder = write(tmp_path / "a", 50)
    first, same, other = (take([folder], 100, seed=seed)["index"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert (first[50:] != other[50:]).mean() > 0.9


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
    rows = take([folder], 9)["index"]
    np.testing.assert_array_equal(rows[:3], expected)
    assert [sorted(part.ravel()) for part in np.split(rows, 3)] == [list(range(36))] * 3
    np.testing.assert_array_equal(
        take([folder], 2, start=4, first=4, count=4)["index"], rows[4:6, 4:8]
    )


def two_folders(tmp_path):
    """7 steps of 4 groups, and 4 steps of 12."""
    return [write(tmp_path / "a", 7, 4), write(tmp_path / "b", 4, 40, first=7 * ROWS)]


@pytest.mark.slow
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
    start = 8 * 10**9 + 5
    expected = take([folder], 1, start)
    for i, path in enumerate(folder.files.paths):
        group, shard = divmod(i, 4)
        if shard != expected["index"][0, group] // ROWS // 2:
            tf.io.gfile.remove(path)
    stream = RowGroups([folder], ROWS, 0)
    rows = next(stream.dataset(start, 0, ROWS, ROWS).as_numpy_iterator())
    np.testing.assert_array_equal(rows["index"], expected["index"][0])
    assert set(rows["epoch"]) == {10**9} and not rows["first"].any()
    assert len(set(rows["index"] // ROWS)) > 3
