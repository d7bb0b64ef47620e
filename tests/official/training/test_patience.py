"""A run ends where its figures have not become better for a while, however often it is stopped."""

import signal

import numpy as np
import pytest
import tensorflow as tf

from official.data import ShardDataset
from official.distribution import strategies
from official.saving import checkpoints, named_arrays
from official.training.stop_signal import Stopped
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import small

# What a step computes does not matter here: only the head of the sentence pair is trained.
CONFIG = small.config(
    corruption=None, objectives=[{"type": "sentence_pair"}], recipe__freeze_encoder=True
)
# Losses at the evaluations: the best is the second, and the fifth would be better still.
LOSSES = [3.0, 1.0, 2.0, 1.5, 0.5, 0.4]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return small.shard_folder(tmp_path_factory.mktemp("shards") / "train", CONFIG)


def trainer(shards, model_dir, losses=LOSSES, **recipe):
    """A run of 12 steps with an evaluation every second one, of the losses given, by the step."""
    recipe = {"steps": 12, "eval_every": 2, "save_every": 100, "patience": 2, **recipe}
    config = small.replace(CONFIG, **recipe)
    strategy = tf.distribute.get_strategy()
    source = ShardDataset(shards, config, "train", training=True)
    training = Trainer(
        config, strategies.build_model(config, strategy), source, strategy, model_dir
    )
    training.evaluated = []

    def run(source, batches):
        step = int(training.optimizer.iterations.numpy())
        training.evaluated.append(step)
        return {"loss": losses[step // 2 - 1]}

    training.evaluator.run = run
    return training


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """A run that nothing stops but the patience."""
    training = trainer(shards, tmp_path_factory.mktemp("runs") / "whole")
    training.train(validation=training.source)
    return training


def steps(model_dir):
    return sorted(int(path.name[5:]) for path in (model_dir / "checkpoints").glob("step-*"))


@pytest.mark.slow
def test_a_run_ends_after_evaluations_that_were_not_better(shards, tmp_path, capsys):
    training = trainer(shards, tmp_path)
    assert training.train(validation=training.source) == {"loss": 1.5}
    assert training.evaluated == [2, 4, 6, 8]
    assert checkpoints.best(tmp_path) == {"step": 4, "metric": "loss", "value": 1.0}
    assert steps(tmp_path) == [4, 6, 8]
    said = "stopped early at step 8 of 12: 2 evaluations without a better loss (recipe.patience)"
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{said}; last checkpoint ")
    assert lines[-1].endswith("; best step 4 (loss 1)")
    # Given again, the command says the same and trains no further; with more patience it does.
    again = trainer(shards, tmp_path)
    assert again.train(validation=again.source) == {"loss": 1.5}
    assert again.evaluated == []
    assert capsys.readouterr().out.splitlines() == [f"{tmp_path}: {said}"]
    patient = trainer(shards, tmp_path, patience=3)
    patient.train(validation=patient.source)
    assert patient.evaluated == [10, 12]
    assert checkpoints.best(tmp_path)["step"] == 12
    assert "done: 12 steps" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "between", "after"])
@pytest.mark.parametrize("at", [4, 6])
def test_a_run_that_is_killed_ends_at_the_same_step(shards, tmp_path, whole, at, moment):
    """Before an evaluation, between its checkpoint and its comparison, or after that."""
    training = trainer(shards, tmp_path / "killed")
    compare, evaluate = training.best.after_evaluation, training.evaluator.run

    class Killed(Exception):
        pass

    def killed(step, metrics):
        note = "" if step == at and moment == "between" else compare(step, metrics)
        if step == at:
            raise Killed
        return note

    def signalled(source, batches):
        # Looked at after the next two steps, where the next evaluation is due.
        if training.optimizer.iterations.numpy() == at - 2:
            signal.raise_signal(signal.SIGTERM)
        return evaluate(source, batches)

    if moment == "before":
        training.evaluator.run = signalled
    else:
        training.best.after_evaluation = killed
    with pytest.raises(Stopped if moment == "before" else Killed):
        training.train(validation=training.source)
    assert checkpoints.last_step(tmp_path / "killed") == at
    assert training.evaluated[-1] == (at - 2 if moment == "before" else at)
    resumed = trainer(shards, tmp_path / "killed")
    resumed.train(validation=resumed.source)
    assert steps(tmp_path / "killed") == steps(whole.model_dir) == [4, 6, 8]
    best = [checkpoints.best(folder) for folder in (whole.model_dir, tmp_path / "killed")]
    assert best[0] == best[1] == {"step": 4, "metric": "loss", "value": 1.0}
    for path, value in named_arrays.values(whole.variables).items():
        np.testing.assert_array_equal(resumed.variables[path].numpy(), value, err_msg=path)


@pytest.mark.slow
def test_figures_that_are_no_numbers_are_not_better(shards, tmp_path):
    training = trainer(shards, tmp_path, [3.0, float("nan"), float("nan"), 1.0])
    training.train(validation=training.source)
    assert training.evaluated == [2, 4, 6]
    assert checkpoints.best(tmp_path)["step"] == 2


def test_patience_without_evaluations_is_refused(shards, tmp_path):
    with pytest.raises(UserError, match="recipe.patience: 2 evaluations, but this run makes none"):
        trainer(shards, tmp_path).train()
    with pytest.raises(ValueError, match="patience: needs several evaluations, but eval_every: 0"):
        small.replace(CONFIG, patience=2)
    with pytest.raises(ValueError, match="patience: -1 is negative"):
        small.replace(CONFIG, patience=-1)
