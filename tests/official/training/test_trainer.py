"""The loop: the same weights whatever shares out the work, and however often it is stopped."""

import collections
import contextlib
import errno
import json
import math
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.data import ShardDataset
from official.distribution import numerics, strategies
from official.distribution.statistics import Statistics
from official.evaluation.evaluator import target_entropy
from official.saving import checkpoints, named_arrays
from official.training import resolve, train_step
from official.training.stop_signal import Stopped
from official.training.trainer import Trainer
from official.utils.errors import Diverged, UserError
from tests import small


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return small.shard_folder(tmp_path_factory.mktemp("shards") / "train", small.config())


@contextlib.contextmanager
def precision(name):
    numerics.set_precision(name)
    try:
        yield
    finally:
        numerics.set_precision("float32")


def trainer(config, shards, model_dir, strategy=None):
    strategy = strategy or tf.distribute.get_strategy()
    source = ShardDataset(shards, config, "train", training=True)
    return Trainer(config, strategies.build_model(config, strategy), source, strategy, model_dir)


def weights(result):
    return named_arrays.values(result.variables)


def losses(model_dir):
    lines = (model_dir / "metrics.jsonl").read_text().splitlines()
    return {r["step"]: r["loss"] for r in map(json.loads, lines) if r["split"] == "train"}


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """A run of eight steps that nothing disturbed, with an evaluation at every second one."""
    config = small.replace(
        small.config(), steps=8, report_every=1, eval_every=2, keep_checkpoints=1
    )
    training = trainer(config, shards, tmp_path_factory.mktemp("runs") / "whole")
    figures = iter([3.0, 1.0, 2.0, 2.5])
    training.evaluator.run = lambda source, batches: {"loss": next(figures)}
    training.train(validation=training.source)
    return training


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "accumulation", "objectives"),
    [
        (10, 2, ["masked_lm"]),
        pytest.param(50, 4, ["masked_lm", "sentence_pair"], marks=pytest.mark.long),
    ],
)
def test_replicas_and_accumulation_change_nothing(
    shards, tmp_path, mirrored, steps, accumulation, objectives
):
    """In float64, with dropout, gradients clipped, tokens repeated within a batch."""
    config = small.config(
        recipe__precision="float64", objectives=[{"type": name} for name in objectives]
    )
    config = small.replace(config, steps=steps, report_every=1)
    assert config.encoder.dropout == config.encoder.attention_dropout == 0.1
    with precision("float64"):
        one = trainer(config, shards, tmp_path / "one")
        one.train()
        shared = small.replace(config, accumulation=accumulation)
        two = trainer(shared, shards, tmp_path / "two", mirrored(2))
        two.train()
        expected, actual = weights(one), weights(two)
    curve = list(losses(tmp_path / "one").values())
    assert len(curve) == steps
    part = steps // 5
    assert np.mean(curve[-part:]) < np.mean(curve[:part]) - 0.02
    assert expected.keys() == actual.keys()
    for path, value in expected.items():
        # The index of a bad variable and the like are whole numbers; the rest agree relatively.
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(actual[path] - value).max() <= 1e-9 * scale, path
    np.testing.assert_allclose(list(losses(tmp_path / "two").values()), curve, rtol=1e-9)


def test_rows_steps_and_seeds_draw_different_dropout():
    def masks(seed, step, first=0, examples=4):
        rng = train_step.draws(seed, tf.constant(step), first, examples)
        return [rng.keep((examples, 64), 0.5).numpy() for _ in range(2)]

    whole = masks(3, 0)
    for kept, again in zip(whole, masks(3, 0), strict=True):
        np.testing.assert_array_equal(kept, again)
    drawn = [*np.concatenate(whole), *masks(3, 1)[0], *masks(4, 0)[0]]
    for i, a in enumerate(drawn):
        assert all((a != b).any() for b in drawn[:i])
    for kept, part in zip(whole, masks(3, 0, first=2, examples=2), strict=True):
        np.testing.assert_array_equal(kept[2:], part)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_that_sigterm_stops_goes_on_to_the_same_weights(shards, tmp_path, whole, capsys):
    training = trainer(whole.config, shards, tmp_path)
    seconds = []

    def limit(before, mean):
        seconds.append(mean)
        if len(seconds) == 3:
            signal.raise_signal(signal.SIGTERM)
        return 1

    training.steps_in_graph = limit
    with pytest.raises(Stopped, match="SIGTERM"):
        training.train()
    assert checkpoints.last_step(tmp_path) == 5
    assert "SIGTERM: saved step 5" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    resumed = trainer(whole.config, shards, tmp_path)
    resumed.train()
    for path, value in weights(whole).items():
        np.testing.assert_array_equal(weights(resumed)[path], value, err_msg=path)
    assert losses(tmp_path) == losses(whole.model_dir)


@pytest.mark.slow
def test_a_checkpoint_has_every_variable(whole):
    saved = checkpoints.load_variables(whole.model_dir, "last", optimizer=True)
    in_memory = [*whole.model.variables, *whole.optimizer.variables]
    assert len(saved) == len(in_memory)
    assert {id(v) for v in whole.variables.values()} == {id(v) for v in in_memory}
    for path, variable in whole.variables.items():
        np.testing.assert_array_equal(saved[path], variable.numpy(), err_msg=path)
    assert int(saved["optimizer/iteration"]) == 8


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_the_run_and_spares_the_weights(shards, tmp_path):
    config = small.replace(small.config(), steps=40, save_every=40, max_bad_steps=3)
    training = trainer(config, shards, tmp_path)
    paths = training.model.variables_by_path()
    bias = paths["masked_lm/output_bias"]
    bias.assign(np.full(bias.shape, np.nan, np.float32))
    before = {path: v.numpy() for path, v in paths.items()}
    with pytest.raises(Diverged, match=r"step 3: the loss term masked_lm is not finite, for 3 "):
        training.train()
    for path, variable in paths.items():
        np.testing.assert_array_equal(variable.numpy(), before[path], err_msg=path)


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_is_named(shards, tmp_path):
    """sqrt at 0 has a finite value and an infinite gradient."""
    config = small.replace(small.config(), steps=40, max_bad_steps=2)
    training = trainer(config, shards, tmp_path)
    pooler = training.model.variables_by_path()["encoder/pooler/bias"]
    terms = training.model.terms

    def broken(*arguments):
        losses, metrics = terms(*arguments)
        spike = keras.ops.sum(keras.ops.sqrt(pooler * 0.0))
        return {**losses, "masked_lm": losses["masked_lm"] + spike}, metrics

    training.model.terms = broken
    with pytest.raises(UserError, match="gradient of .*encoder/pooler/bias is not finite, though"):
        training.train()


def test_weights_that_are_not_finite_are_not_saved(shards, tmp_path):
    """A rate that is infinite in float32 makes them so by gradients that are finite."""
    changes = {"recipe__optimizer__learning_rate": 1e39}
    training = trainer(
        small.replace(small.config(**changes), steps=4, save_every=1), shards, tmp_path
    )
    training.save(0)
    message = "step 1: .* is not finite, so .* checkpoint is .*step-00000000.*1e\\+39"
    with pytest.raises(Diverged, match=message):
        training.train()
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000000"]


def test_a_full_disk_keeps_the_checkpoint_before(shards, tmp_path, monkeypatch):
    training = trainer(small.config(), shards, tmp_path)
    training.save(2)

    def full(arrays, path):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints.safetensors.numpy, "save_file", full)
    with pytest.raises(UserError, match="no room to write .*step-00000004.*free some space"):
        training.save(4)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]
    assert checkpoints.load_variables(tmp_path, "last")


def test_tokens_count_no_padding(shards):
    source = ShardDataset(shards, small.config(), "train", training=True)
    batch = next(iter(source.dataset(8)))
    statistics = Statistics()
    packed = statistics.pack({"t": 1.0}, {"t": 2.0}, {"m": (3.0, 4.0)}, batch).numpy()
    named = dict(zip(statistics.names, packed, strict=True))
    assert named["tokens"] == batch["padding_mask"].numpy().sum() < 8 * 32
    figures = statistics.summarize(np.stack([packed, packed]), {"t": 2.0})
    assert figures == {"loss": 1.0, "t": 0.5, "m": 0.75}
    decoder = tf.constant([[True, True, False]] * 8)
    packed = statistics.pack({}, {}, {}, {**batch, "target_mask": decoder}).numpy()
    assert dict(zip(statistics.names, packed, strict=True))["tokens"] == named["tokens"] + 2 * 8


@pytest.mark.slow
def test_best_checkpoint_is_kept_and_named(whole):
    assert checkpoints.best(whole.model_dir) == {"step": 4, "metric": "loss", "value": 1.0}
    steps = sorted(p.name for p in (whole.model_dir / "checkpoints").glob("step-*"))
    assert steps == ["step-00000004", "step-00000008"]


@pytest.mark.slow
def test_evaluation_equals_a_mean_over_all_examples(shards, tmp_path, mirrored):
    """Also with a last batch that is not full, and shared out over replicas."""
    config = small.replace(small.config(), batch_size=8, eval_batch_size=20)
    source = ShardDataset(shards, config, "train")
    assert source.num_examples % 20
    training = trainer(config, shards, tmp_path)
    actual = training.evaluator.run(source)
    total = weight = 0.0
    assert source.num_examples % 47 == 0  # no batch is filled up
    for batch in source.dataset(47):
        terms, _ = training.model.terms(batch)
        total += float(terms["masked_lm"])
        weight += float(training.model.weight_sums(batch)["masked_lm"])
    assert actual["masked_lm"] == pytest.approx(total / weight, rel=1e-5)
    again = trainer(config, shards, tmp_path / "two", mirrored(2)).evaluator.run(source)
    assert again == pytest.approx(actual, rel=1e-5)


def test_the_entropy_of_what_is_asked_for(shards):
    source = ShardDataset(shards, small.config())
    asked = collections.Counter()
    for batch in source.dataset(7):  # 60 examples: the last batch is filled up
        for ids, weights in zip(batch["masked_ids"], batch["masked_weights"], strict=True):
            asked.update(int(i) for i, weight in zip(ids, weights, strict=True) if weight)
    total = asked.total()
    expected = sum(n / total * math.log(total / n) for n in asked.values())
    assert expected > 3
    assert target_entropy(source, 16) == pytest.approx(expected, rel=1e-12)
    plain = small.config(corruption=None, objectives=[{"type": "sentence_pair"}])
    assert target_entropy(ShardDataset(shards, plain), 16) is None


@pytest.mark.slow
@pytest.mark.long
def test_the_whole_step_compiles_with_xla(shards, tmp_path):
    training = trainer(small.replace(small.config(), accumulation=2), shards, tmp_path)
    batch = next(iter(training.source.dataset(8)))
    compiled = tf.function(training.train_step.replica_step, jit_compile=True)
    row = compiled(batch).numpy()
    assert np.isfinite(row).all() and int(training.optimizer.iterations.numpy()) == 1


@pytest.mark.slow
def test_a_second_run_goes_on_where_the_first_one_ended(shards, tmp_path, whole):
    """Weights, moments and step are those of one run; the same data give the same weights."""
    first = str(whole.model_dir)
    config = small.replace(whole.config, init_weights="run")
    second = trainer(config, shards, tmp_path / "second")
    second.continue_from(first, "4")
    second.train()
    assert sorted(losses(tmp_path / "second")) == [5, 6, 7, 8]
    for path, value in weights(whole).items():
        np.testing.assert_array_equal(weights(second)[path], value, err_msg=path)
    # Its own checkpoints are gone on from before those of the other run.
    again = trainer(config, shards, tmp_path / "second")
    again.continue_from(first, "4")
    assert again.restore() == 8
    short = trainer(small.replace(config, steps=4), shards, tmp_path / "short")
    message = "its checkpoint is of step 4, and this run ends at 4: recipe.steps counts the steps"
    with pytest.raises(UserError, match=message):
        short.continue_from(first, "4")


def test_a_run_to_continue_from_must_be_named():
    with pytest.raises(UserError, match="--init is missing: recipe.init_weights: run continues an"):
        resolve.inherit(small.config(recipe__init_weights="run"))
