"""Systems in the loop: the same weights on one device and on two, stopped or not, with XLA."""

import dataclasses
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from official.data import ShardDataset
from official.distribution import numerics, strategies
from official.saving import checkpoints, named_arrays
from official.training.stop_signal import Stopped
from official.training.trainer import Trainer
from tests import small
from tests.systems import SYSTEMS, shard_folder

# Variables that only this system has, or has in this number. The steps of the other systems have no
# code of their own: RoBERTa's objective is also SpanBERT's, both of ERNIE's are also ALBERT's, and
# the input pipeline masks their tokens. XLNet and Transformer-XL lack the memory or the queries
# that XLNet has on a stream, and GPT-2 has the objective of Transformer-XL.
OWN = {
    "spanbert": ("span_boundary/transform_1/", 2),
    "albert": ("encoder/group_1_layer_0/", 12),
    "electra": ("replaced_tokens/", 4),
    "deberta_v3": ("encoder/embeddings/token_embedding/delta", 1),
    "modernbert": ("encoder/layer_2/feed_forward/gate/", 1),
    "xlnet_stream": ("encoder/embeddings/query_start", 1),
    "gpt2": ("encoder/final_norm/", 2),
    "elmo": ("encoder/backward_", 6),
    "t5": ("encoder/decoder/layer_0/cross_attention/", 3),
}


RATES = ("dropout", "attention_dropout", "inner_dropout")


@pytest.fixture(autouse=True)
def float64():
    numerics.set_precision("float64")
    yield
    numerics.set_precision("float32")


def trainer(shards, model_dir, config, strategy=None):
    strategy = strategy or tf.distribute.get_strategy()
    source = ShardDataset(shards, config, "train", training=True)
    return Trainer(config, strategies.build_model(config, strategy), source, strategy, model_dir)


def trained(result):
    result.train()
    remembered = {} if result.memory is None else result.memory.arrays()
    return named_arrays.values(result.variables) | remembered


def assert_close(actual, expected):
    assert actual.keys() == expected.keys()
    for path, value in expected.items():
        if value.dtype == bool:
            np.testing.assert_array_equal(actual[path], value, err_msg=path)
            continue
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(actual[path] - value).max() <= 1e-9 * scale, path


def go_on_from(training, model_dir):
    """Trains again, from the checkpoint of another run; the values of the end are left over."""
    shutil.rmtree(training.model_dir)
    shutil.copytree(model_dir, training.model_dir)
    return trained(training)


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.long
@pytest.mark.parametrize("name", OWN)
def test_two_replicas_a_stop_and_xla_change_nothing(name, tmp_path, mirrored, caplog):
    """A run on one device, compiled, and one that starts on two replicas, not compiled.

    Both have dropout.
    """
    config = small.config(**SYSTEMS[name], recipe__precision="float64")
    rates = [field for field in RATES if hasattr(config.encoder, field)]
    encoder = dataclasses.replace(config.encoder, **dict.fromkeys(rates, 0.1))
    config = dataclasses.replace(config, encoder=encoder)
    config = small.replace(config, steps=20, save_every=8)
    shards = shard_folder(tmp_path / "shards", config)
    # The chances of ELMo's sampled words are computed in float32, so they differ in the last bits.
    compiled = small.replace(config, jit_compile=name != "elmo")
    one = trainer(shards, tmp_path / "one", compiled)
    start = named_arrays.values(one.variables)
    whole = trained(one)
    own, count = OWN[name]
    paths = [path for path in whole if path.startswith(own)]
    assert len(paths) == count, sorted(whole)
    if config.segments.format == "stream":  # into another epoch, where memory starts anew
        assert (
            8 <= ShardDataset(shards, config).num_examples // 8 < 18 and whole["memory/mask"].all()
        )
    for path in paths:
        assert np.abs(whole[path] - start[path]).max() > 1e-4, path

    two = trainer(shards, tmp_path / "two", config, mirrored(2))
    two.save = lambda at, save=two.save: (save(at), signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Stopped):
        two.train()
    assert 8 <= checkpoints.last_step(tmp_path / "two") < 20
    assert_close(go_on_from(one, tmp_path / "two"), whole)
    assert "AutoGraph" not in caplog.text


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.long
def test_elmo_stopped_is_bit_exact_and_xla_changes_nothing(tmp_path):
    """The states of the rows continue after a stop. The loss is over all words."""
    config = small.config(**SYSTEMS["elmo"], recipe__precision="float64")
    objective = dataclasses.replace(config.objectives[0], samples=0)
    config = dataclasses.replace(config, objectives=(objective,))
    config = small.replace(config, steps=7, save_every=4)
    shards = shard_folder(tmp_path / "shards", config)
    training = trainer(shards, tmp_path / "one", config)
    whole = trained(training)
    assert np.abs(whole["memory/states"]).max() > 0.1
    shutil.rmtree(checkpoints.find(tmp_path / "one", "last"))
    assert checkpoints.last_step(tmp_path / "one") == 4
    again = trained(training)
    assert again.keys() == whole.keys()
    for path, value in whole.items():
        np.testing.assert_array_equal(again[path], value, err_msg=path)
    compiled = small.replace(config, jit_compile=True)
    assert_close(trained(trainer(shards, tmp_path / "xla", compiled)), whole)


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.long
def test_bfloat16_ends_within_a_percent_of_float32(tmp_path):
    """Memory, queries and relative positions; the encoder of Transformer-XL is a part of it."""
    losses = {}
    for precision in ("float32", "mixed_bfloat16"):
        numerics.set_precision(precision)
        config = small.config(**SYSTEMS["xlnet_stream"], recipe__precision=precision)
        slow = dataclasses.replace(config.recipe.optimizer, learning_rate=3e-3)
        config = small.replace(config, steps=100, save_every=100, optimizer=slow)
        if not losses:
            shards = shard_folder(tmp_path / "shards", config)
        training = trainer(shards, tmp_path / precision, config)
        training.train()
        losses[precision] = training.evaluator.run(ShardDataset(shards, config))["loss"]
    assert losses["float32"] < 4.7  # ln 125 = 4.83: it has learned something
    assert losses["mixed_bfloat16"] == pytest.approx(losses["float32"], rel=0.01)


@pytest.mark.slow
@pytest.mark.xla
@pytest.mark.long
def test_no_sum_has_an_order_that_is_left_to_the_machine(tmp_path):
    """`AddN` of three tensors begins with whichever buffer is free, and so differs from run to run.

    XLNet's queries have three uses, and the input of each of its layers more.
    """
    config = small.config(**SYSTEMS["xlnet"], recipe__precision="float64")
    training = trainer(small.shard_folder(tmp_path / "shards", config), tmp_path / "one", config)
    batch = next(iter(training.source.dataset(8)))
    traced = tf.function(training.train_step.replica_step).get_concrete_function(batch)
    graph = traced.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    sums = [node for node in nodes if node.op in ("AddN", "AccumulateNV2")]
    assert sums and all(len(node.input) == 2 for node in sums)
    options = tf.config.optimizer.get_experimental_options()
    assert options["arithmetic_optimization"] is options["remapping"] is False
