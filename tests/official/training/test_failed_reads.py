"""Runs whose shards cannot be read for a while end at the weights of a run without that."""

import numpy as np
import pytest
import tensorflow as tf

from official import training
from official.evaluation import evaluator
from official.saving import checkpoints, metrics_log
from official.training.train_step import TrainStep
from official.utils import gfile
from official.utils.errors import UserError
from tests import small

pytestmark = pytest.mark.slow


@pytest.fixture
def pauses(monkeypatch):
    found = []
    monkeypatch.setattr(gfile.time, "sleep", found.append)
    return found


def unavailable():
    """What TensorFlow makes of an error of a file system in a graph."""
    return tf.errors.InternalError(
        None,
        None,
        "Graph execution error:\n\nDetected at node while/IteratorGetNext\n"
        "flaky://shard; overloaded\n\t [[{{node while/IteratorGetNext}}]]\n"
        "Executing non-communication op <while/IteratorGetNext> originally returned "
        "UnavailableError, and was replaced by InternalError to avoid invoking TF network error "
        "handling logic.",
    )


@pytest.mark.long
def test_training_goes_on_from_its_last_checkpoint(tmp_path, pauses, monkeypatch):
    config = small.replace(small.config(), eval_every=2, report_every=1, save_every=2)
    shards = small.shard_folder(tmp_path / "shards", config)

    def train(name):
        said = []
        training.train(config, shards, tmp_path / name, validation_data=shards, report=said.append)
        return [line for line in said if "training again" in line]

    assert train("whole") == []
    run, calls = TrainStep.run, []

    def failing(self, iterator, steps):
        result = run(self, iterator, steps)  # and so in the middle of an update
        calls.append(int(self.optimizer.iterations.numpy()))
        if len(calls) in (1, 4):
            raise unavailable()
        return result

    distribute, batches = evaluator.distribute, []

    def evaluated(*args):
        for batch in distribute(*args):
            batches.append(batch)
            if len(batches) in (2, 9):
                raise unavailable()
            yield batch

    monkeypatch.setattr(TrainStep, "run", failing)
    monkeypatch.setattr(evaluator, "distribute", evaluated)
    line = "Unavailable: flaky://shard; overloaded: training again from step"
    assert train("failing") == [f"{line} {step}" for step in (0, 2)]
    assert calls == [1, 1, 2, 3, 3, 4, 5, 6]
    wanted, actual = (
        checkpoints.load_variables(tmp_path / name, "last", optimizer=True)
        for name in ("whole", "failing")
    )
    for path, value in wanted.items():
        np.testing.assert_array_equal(actual[path], value, err_msg=path)
    losses = [
        {(r.step, r.split): r.metrics["loss"] for r in metrics_log.read(tmp_path / name)}
        for name in ("whole", "failing")
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 9
    assert len(batches) > 9


@pytest.mark.slow
@pytest.mark.long
def test_training_gives_up_without_a_new_checkpoint(tmp_path, pauses, monkeypatch):
    shards = small.shard_folder(tmp_path / "shards", small.config())

    def failing(self, iterator, steps):
        raise unavailable()

    monkeypatch.setattr(TrainStep, "run", failing)
    with pytest.raises(UserError, match=f"{shards}: the file system fails again and again, for 34"):
        training.train(small.config(), shards, tmp_path / "model", evaluate=False)
    assert len(pauses) == 5
