"""Systems in the loop: the same weights on one device and on two, stopped or not, with XLA."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from official.data import Source
from official.training import checkpoints, loop, setup
from tests import small


def config(**settings):
    plain = {"encoder__dropout": 0.0, "encoder__attention_dropout": 0.0}
    made = small.config(**plain, **settings, recipe__precision="float64")
    return small.replace(made, steps=20, save_every=8)


ALBERT = config(
    segments__relation="sentence_order",
    corruption__unit="ngram",
    corruption__max_ngram=2,
    encoder__num_layers=4,
    encoder__embedding_size=8,
    encoder__layer_groups=2,
    encoder__inner_layers=2,
    objectives=[
        {"type": "masked_lm"},
        {"type": "sentence_pair", "relation": "sentence_order"},
    ],
    recipe__optimizer={"type": "lamb", "learning_rate": 1e-2},
)
SPANBERT = config(
    corruption__unit="span",
    corruption__count="up",
    corruption__max_span=3,
    corruption__action="unit",
    objectives=[{"type": "masked_lm"}, {"type": "span_boundary", "offset_size": 4}],
)


@pytest.fixture(autouse=True)
def float64():
    setup.set_precision("float64")
    yield
    setup.set_precision("float32")


def trainer(shards, model_dir, config, strategy=None):
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
@pytest.mark.parametrize(
    ("config", "learned", "count"),
    [
        pytest.param(ALBERT, "encoder/group_1_layer_1/", 12, id="albert"),
        pytest.param(SPANBERT, "span_boundary/transform_1/", 2, id="spanbert"),
    ],
)
def test_two_replicas_xla_and_a_stop_change_nothing(config, learned, count, tmp_path, mirrored):
    shards = small.shard_folder(tmp_path / "shards", config)
    start = checkpoints.values(trainer(shards, tmp_path / "start", config).variables)
    whole = trained(trainer(shards, tmp_path / "one", config))
    assert config is not ALBERT or "sentence_order/kernel" in whole
    paths = [path for path in whole if path.startswith(learned)]
    assert len(paths) == count
    for path in paths:
        assert np.abs(whole[path] - start[path]).max() > 1e-4, path
    assert_close(trained(trainer(shards, tmp_path / "two", config, mirrored(2))), whole)
    compiled = small.replace(config, jit_compile=True)
    assert_close(trained(trainer(shards, tmp_path / "xla", compiled)), whole)
    made = trainer(shards, tmp_path / "stopped", config)
    made.save = lambda at, save=made.save: (save(at), os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(loop.Stopped):
        made.train()
    assert checkpoints.last_step(tmp_path / "stopped") < 20
    again = trained(trainer(shards, tmp_path / "stopped", config))
    for path, value in whole.items():
        np.testing.assert_array_equal(again[path], value, err_msg=path)
