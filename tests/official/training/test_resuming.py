"""Going on: after signals at awkward moments, with damaged checkpoints, on other data."""

import json
import signal

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.distribution import strategies
from official.saving import checkpoints, model_folder, named_arrays
from official.training.stop_signal import Stopped
from official.training.sweep import best_result
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import small

# What a step computes does not matter here: only the head of the sentence pair is trained.
CONFIG = small.config(
    corruption=None, objectives=[{"type": "sentence_pair"}], recipe__freeze_encoder=True
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("resuming")


@pytest.fixture(scope="module")
def shards(folder):
    return small.shard_folder(folder / "train", CONFIG)


def trainer(shards, model_dir, recipe=None, **options):
    """A run of 6 steps, saved at every second one."""
    config = small.replace(CONFIG, **(recipe or {}))
    strategy = tf.distribute.get_strategy()
    source = ShardDataset(shards, config, "train", training=True)
    model = strategies.build_model(config, strategy)
    return Trainer(config, model, source, strategy, model_dir, **options)


def held_out(shards):
    return ShardDataset(shards, CONFIG, "train")


def weights(result):
    return named_arrays.values(result.variables)


@pytest.fixture(scope="module")
def whole(folder, shards):
    """A run that nothing disturbed: its weights, metrics and last state."""
    training = trainer(shards, folder / "whole", {"eval_every": 2})
    metrics = training.train(held_out(shards))
    return weights(training), metrics, checkpoints.load(folder / "whole", "last").state


def assert_as_whole(whole, result, model_dir):
    for path, value in whole[0].items():
        np.testing.assert_array_equal(weights(result)[path], value, err_msg=path)
    assert checkpoints.load(model_dir, "last").state["figures"] == whole[1]
    assert checkpoints.load(model_dir, "last").state["best"] == whole[2]["best"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["last chunk", "last evaluation"])
def test_an_evaluation_that_a_signal_left_out_is_made_at_the_next_start(
    shards, tmp_path, whole, moment, capsys
):
    training = trainer(shards, tmp_path, {"eval_every": 2})
    configs.save(training.config, tmp_path / model_folder.CONFIG)
    place = training.train_step if moment == "last chunk" else training.evaluator
    run = place.run

    def signalled(iterator_or_source, count):
        steps = count if moment == "last chunk" else 0
        if int(training.optimizer.iterations.numpy()) + steps == 6:
            signal.raise_signal(signal.SIGTERM)
        return run(iterator_or_source, count)

    place.run = signalled
    with pytest.raises(Stopped, match="SIGTERM"):
        training.train(held_out(shards))
    assert checkpoints.load(tmp_path, "last").step == 6
    assert checkpoints.load(tmp_path, "last").state["figures"] == {}
    again = trainer(shards, tmp_path, {"eval_every": 2})
    assert again.train(held_out(shards)) == whole[1]
    assert_as_whole(whole, again, tmp_path)
    assert "trained already, to step 6" in capsys.readouterr().out
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    evaluated = [r["step"] for r in map(json.loads, lines) if r["split"] == "validation"]
    assert evaluated == [2, 4, 6]
    actual = best_result(tmp_path)  # of a sweep
    best = whole[2]["best"]
    assert actual["metric"] == "loss" and np.isfinite(actual["figures"]["loss"])
    assert best is None or actual["figures"]["loss"] <= best["value"]


@pytest.mark.slow
def test_a_run_without_an_evaluation_gets_it_when_it_is_asked_for(shards, tmp_path, whole):
    trainer(shards, tmp_path).train()
    assert trainer(shards, tmp_path).train(held_out(shards)) == whole[1]
    assert checkpoints.best(tmp_path)["step"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ["variables.safetensors", "state.json"])
def test_a_run_goes_on_from_the_newest_whole_checkpoint(shards, tmp_path, whole, damaged, capsys):
    trainer(shards, tmp_path, {"eval_every": 2}).train(held_out(shards))
    best = checkpoints.best(tmp_path)
    last = checkpoints.find(tmp_path, "last")
    (last / damaged).write_bytes(b"garbage")
    (tmp_path / "checkpoints" / "best.json").write_bytes(b"garbage")
    capsys.readouterr()
    again = trainer(shards, tmp_path, {"eval_every": 2})
    assert again.train(held_out(shards)) == whole[1]
    out, err = capsys.readouterr()
    assert f"warning: {last / damaged}: damaged" in err and "step-00000004" in err
    assert f"going on from step 4 of {tmp_path}" in out
    assert_as_whole(whole, again, tmp_path)
    assert checkpoints.best(tmp_path) == best


@pytest.mark.slow
def test_a_missing_best_is_written_anew(shards, tmp_path):
    training = trainer(shards, tmp_path, {"eval_every": 2})
    losses = {2: 1.0, 4: 2.0, 6: 3.0}
    run = lambda *_: {"loss": losses[int(training.optimizer.iterations.numpy())]}  # noqa: E731
    training.evaluator.run = run
    training.train(held_out(shards))
    best = tmp_path / "checkpoints" / "best.json"
    written = best.read_bytes()
    best.unlink()
    with pytest.raises(UserError, match="best.json is missing, and .*step-00000006 was not the"):
        checkpoints.load(tmp_path)
    assert trainer(shards, tmp_path, {"eval_every": 2}).train(held_out(shards)) == {"loss": 3.0}
    assert best.read_bytes() == written and checkpoints.load(tmp_path).step == 2


@pytest.mark.slow
def test_other_data_is_refused_unless_it_is_allowed(folder, shards, tmp_path):
    few = small.shard_folder(folder / "few", CONFIG, count=9, seed=1)
    recipe = {"epochs": 2.0, "steps": 0}
    training = trainer(shards, tmp_path, recipe)
    training.save(2)
    other = trainer(few, tmp_path, recipe)
    ours, theirs = (training.source, training.total_steps), (other.source, other.total_steps)
    with pytest.raises(UserError) as refused:
        other.train()
    assert str(refused.value) == (
        f"{tmp_path / 'checkpoints' / 'step-00000002'}: this run has other train data: {shards} "
        f"with {ours[0].num_examples} examples there ({ours[1]} planned steps), {few} with "
        f"{theirs[0].num_examples} examples now ({theirs[1]} planned steps). Give the data that "
        "it began with, or another --model_dir; --allow_other_data goes on with the data given now"
    )
    assert ours[1] > theirs[1] > 2
    # The same shards in another place are the same data.
    moved = tmp_path / "moved"
    moved.symlink_to(shards)
    trainer(moved, tmp_path, recipe).restore()
    trainer(few, tmp_path, recipe, allow_other_data=True).train()
    assert checkpoints.last_step(tmp_path) == theirs[1]
    trainer(few, tmp_path, recipe).train()  # from here on it is the run's data


@pytest.mark.slow
def test_other_validation_data_is_refused(folder, shards, tmp_path):
    trainer(shards, tmp_path).train(held_out(shards))
    other = small.shard_folder(folder / "other", CONFIG, count=9, seed=2)
    with pytest.raises(UserError, match=f"this run has other validation data: {shards} with "):
        trainer(shards, tmp_path).train(held_out(other))
    trainer(shards, tmp_path).train()
    trainer(shards, tmp_path, allow_other_data=True).train(held_out(other))


def test_the_fingerprint_is_of_the_examples_and_their_order(folder, shards):
    two = small.shard_folder(folder / "two", CONFIG, count=9, seed=4)
    config = CONFIG
    prints = [
        ShardDataset(folders, config, training=True).fingerprint
        for folders in (shards, two, [shards, two], [two, shards], [shards, shards])
    ]
    assert len(set(prints)) == 5
    assert ShardDataset(str(shards), config).fingerprint == prints[0]
