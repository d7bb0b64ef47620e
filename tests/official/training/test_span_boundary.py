"""SpanBERT in the loop: the same weights on one device and on two, stopped or not, with XLA."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from official.data import Source
from official.training import checkpoints, loop, setup
from tests import small

CONFIG = small.replace(
    small.config(
        corruption__unit="span",
        corruption__count="up",
        corruption__max_span=3,
        corruption__action="unit",
        objectives=[{"type": "masked_lm"}, {"type": "span_boundary", "offset_size": 4}],
        encoder__dropout=0.0,
        encoder__attention_dropout=0.0,
        recipe__precision="float64",
    ),
    steps=20,
    save_every=8,
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return small.shard_folder(tmp_path_factory.mktemp("shards") / "train", CONFIG)


@pytest.fixture(autouse=True)
def float64():
    setup.set_precision("float64")
    yield
    setup.set_precision("float32")


def trainer(shards, model_dir, strategy=None, config=CONFIG):
    strategy = strategy or tf.distribute.get_strategy()
    source = Source(shards, config, "train", training=True)
    return loop.Trainer(config, setup.build_model(config, strategy), source, strategy, model_dir)


def trained(made):
    made.train()
    return checkpoints.values(made.variables)


def assert_close(found, expected):
    for path, value in expected.items():
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(found[path] - value).max() <= 1e-9 * scale, path


def test_two_replicas_xla_and_a_stop_change_nothing(shards, tmp_path, mirrored):
    whole = trained(trainer(shards, tmp_path / "one"))
    assert any(path.startswith("span_boundary/transform_1") for path in whole)
    assert_close(trained(trainer(shards, tmp_path / "two", mirrored(2))), whole)
    compiled = small.replace(CONFIG, jit_compile=True)
    assert_close(trained(trainer(shards, tmp_path / "xla", config=compiled)), whole)
    made = trainer(shards, tmp_path / "stopped")
    made.save = lambda at, save=made.save: (save(at), os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(loop.Stopped):
        made.train()
    again = trained(trainer(shards, tmp_path / "stopped"))
    for path, value in whole.items():
        np.testing.assert_array_equal(again[path], value, err_msg=path)
