"""Shards that change after they are opened: all examples are read, or the shard is named."""

import os
import struct

import numpy as np
import pytest

from official.data import ShardDataset, each_batch
from official.evaluation import evaluator
from official.shards import layer_states
from official.utils.errors import UserError
from tests.official.training.test_frozen_encoder import config, task_shards


def without_last_record(path):
    """Cuts a TFRecord file between two records, which TensorFlow reads without an error."""
    data = path.read_bytes()
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 16 + struct.unpack_from("<Q", data, ends[-1])[0])
    os.truncate(path, ends[-2])


def test_a_shard_that_is_cut_while_it_is_read(tmp_path):
    folder = task_shards(tmp_path)
    source = ShardDataset(folder, config(), "test", numbered=True)
    assert sum(int((batch["row"] >= 0).numpy().sum()) for batch in each_batch(source, 4)) >= 9
    (shard,) = folder.glob("test-*")
    content = shard.read_bytes()
    without_last_record(shard)
    with pytest.raises(UserError, match=f"{shard.name} is cut: expected {len(content)} bytes"):
        list(each_batch(source, 4))
    shard.unlink()
    with pytest.raises(UserError, match=f"{shard} was removed while it was read"):
        list(each_batch(source, 4))
    shard.write_bytes(content)  # The same again: a copy of the folder.
    assert len(list(each_batch(source, 4))) == 3


def test_examples_are_counted_before_they_are_written(tmp_path):
    source = ShardDataset(task_shards(tmp_path), config(), "test")
    evaluator.check_count(source, 9)
    with pytest.raises(UserError, match="shards: 8 of 9 test examples were read: copy the folder"):
        evaluator.check_count(source, 8)
    writer = layer_states.Writer(tmp_path, "model", "encoder")
    batches = [(np.array([0]), np.zeros((2, 3, 4), np.float32))]
    with pytest.raises(UserError, match="1 of 2 test examples are missing"):
        writer.write("test", "fingerprint", np.array([2, 1]), (3, 4), batches)
