"""Shards of fsspec's `memory://` have the rows of local ones, in the same order."""

import os
import tempfile

import numpy as np
import pytest
import tensorflow as tf

from official.data.order import Files, Lanes, OnePass
from official.data.row_groups import Folder, RowGroups
from official.shards import local_files, parsing
from official.utils import atomic, paths
from official.utils.errors import UserError

COUNTS = [3, 5, 1, 7]


@pytest.fixture
def folders(tmp_path):
    """The same shards, local and in `memory://`."""
    for shard, count in enumerate(COUNTS):
        with tf.io.TFRecordWriter(str(tmp_path / f"{shard}")) as writer:
            for number in range(count):
                writer.write(b"%d/%d" % (shard, number))
    remote = paths.path("memory://test_local_files")
    atomic.copy_tree(tmp_path, remote, "0")
    yield tmp_path, remote
    paths.remove_tree(remote)


def files(folder):
    return Files([str(folder / f"{shard}") for shard in range(len(COUNTS))], COUNTS)


ORDERS = {
    "pass": lambda files: OnePass(files, 4, tf.strings.length),
    "lanes": lambda files: Lanes(files, 3, 4, lanes=2),
    "groups": lambda files: RowGroups([Folder(files, groups=2)], 4, 3),
}


@pytest.mark.parametrize("name", ORDERS)
def test_rows_are_those_of_local_files(folders, name):
    read = [
        [
            {k: v.numpy().tolist() for k, v in rows.items()}
            for rows in ORDERS[name](files(folder)).dataset(1, 0, 4, 4).take(9)
        ]
        for folder in folders
    ]
    assert read[0] == read[1] and len(read[0]) > 2


def open_files():
    return len(os.listdir("/dev/fd"))


def test_no_file_is_left(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before = open_files()
    records = local_files.records(files(folders[1]).paths)
    assert len(list(records)) == sum(COUNTS) and open_files() == before
    iterator = iter(records)
    next(iterator)
    assert open_files() > before and not list((tmp_path / "temporary").iterdir())
    del iterator
    assert open_files() == before


def test_a_file_that_cannot_be_read_is_named(folders):
    (folders[1] / "2").unlink()
    with pytest.raises(UserError, match="^memory://test_local_files/2 was removed while it was re"):
        with parsing.reported("folder"):
            list(local_files.records(files(folders[1]).paths))


def test_records_are_compared_with_their_checksums(folders):
    shard = folders[1] / "3"
    data = bytearray(shard.read_bytes())
    data[-6] ^= 1
    shard.write_bytes(bytes(data))
    with pytest.raises(UserError, match="a record differs from its checksum"):
        with parsing.reported("folder"):
            np.array(list(local_files.records([str(shard)])))
