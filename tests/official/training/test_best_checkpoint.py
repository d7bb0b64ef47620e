import math

import pytest

from official.saving import checkpoints
from official.training.best_checkpoint import BestCheckpoint
from official.utils.errors import UserError


@pytest.mark.parametrize(
    ("higher", "best"), [(True, [True, False, True]), (False, [True, True, False])]
)
def test_the_best_value_is_named(tmp_path, higher, best):
    (tmp_path / "checkpoints").mkdir()
    keeper = BestCheckpoint(tmp_path, "f1", higher, 0, True)
    values = [0.5, 0.25, 0.75]
    assert [keeper.update(step, {"f1": value}) for step, value in enumerate(values)] == best
    step = 2 if higher else 1
    expected = {"step": step, "metric": "f1", "value": values[step]}
    assert keeper.record == checkpoints.best(tmp_path) == expected
    assert str(keeper) == f"best step {step} (f1 {values[step]:.4g})"


def test_patience_counts_evaluations_since_the_best(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    best = BestCheckpoint(tmp_path, "loss", False, 2, True)
    waited = []
    for step, value in enumerate([3.0, math.nan, 2.0, 2.0, math.inf]):
        assert not best.patience_is_over
        best.update(step, {"loss": value})
        waited.append(best.waited)
    assert waited == [0, 1, 0, 1, 2] and best.patience_is_over
    assert best.record["step"] == 2


def test_an_evaluation_may_be_compared_twice(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    best = BestCheckpoint(tmp_path, "loss", False, 1, True)
    assert best.update(4, {"loss": 1.0}) and best.update(4, {"loss": 1.0})
    assert best.waited == 0


def test_workers_that_are_not_the_chief_write_nothing(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    best = BestCheckpoint(tmp_path, "loss", False, 0, False)
    assert best.update(1, {"loss": 1.0})
    assert not list((tmp_path / "checkpoints").iterdir())


def test_an_unknown_metric_is_refused(tmp_path):
    best = BestCheckpoint(tmp_path, "f1", True, 0, True)
    with pytest.raises(UserError, match="recipe.best_metric: 'f1' is not measured here: loss"):
        best.update(1, {"loss": 1.0})
