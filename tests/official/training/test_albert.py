"""ALBERT in the loop: the same weights on one device and on two, stopped or not, with XLA."""

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
        segments__relation="sentence_order",
        corruption__unit="ngram",
        corruption__max_ngram=2,
        encoder__num_layers=4,
        encoder__embedding_size=8,
        encoder__layer_groups=2,
        encoder__inner_layers=2,
        encoder__dropout=0.0,
        encoder__attention_dropout=0.0,
        objectives=[
            {"type": "masked_lm"},
            {"type": "sentence_pair", "relation": "sentence_order"},
        ],
        recipe__optimizer={"type": "lamb", "learning_rate": 1e-2},
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


@pytest.mark.slow
def test_two_replicas_xla_and_a_stop_change_nothing(shards, tmp_path, mirrored):
    start = checkpoints.values(trainer(shards, tmp_path / "start").variables)
    whole = trained(trainer(shards, tmp_path / "one"))
    kernels = [path for path in whole if path.startswith("encoder/group_1_layer_1/")]
    assert "sentence_order/kernel" in whole and len(kernels) == 12
    for path in kernels:
        assert np.abs(whole[path] - start[path]).max() > 1e-4, path
    assert_close(trained(trainer(shards, tmp_path / "two", mirrored(2))), whole)
    compiled = small.replace(CONFIG, jit_compile=True)
    assert_close(trained(trainer(shards, tmp_path / "xla", config=compiled)), whole)
    made = trainer(shards, tmp_path / "stopped")
    made.save = lambda at, save=made.save: (save(at), os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(loop.Stopped):
        made.train()
    assert checkpoints.last_step(tmp_path / "stopped") < 20
    again = trained(trainer(shards, tmp_path / "stopped"))
    for path, value in whole.items():
        np.testing.assert_array_equal(again[path], value, err_msg=path)
