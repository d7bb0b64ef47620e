"""A run in phases: one schedule, the weights and the data go on, and it resumes at any moment."""

import collections
import dataclasses
import json
import re

import numpy as np
import pytest

from official import config as configs
from official.data import ShardDataset, mixture
from official.saving import checkpoints
from official.training import phases, run
from official.training.train_step import TrainStep
from official.utils import paths
from official.utils.errors import UserError
from tests import small

HALVES = [{"share": 0.5}, {"share": 0.5}]
LONGER = [
    {"share": 0.5, "change": {"segments.max_length": 16, "corruption.max_predictions": 3}},
    {"share": 0.5, "change": {"recipe.batch_size": 4}},
]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Shards of 32 and of 16 tokens."""
    folder = tmp_path_factory.mktemp("phases")
    short = small.config(segments__max_length=16, corruption__max_predictions=3)
    return (
        str(small.shard_folder(folder / "long", small.config())),
        str(small.shard_folder(folder / "short", short)),
    )


def train(given, data, model_dir, allow_other_data=False, **changes):
    said = []
    config = small.config(phases=given, **changes)
    run.train(
        config, data, model_dir, evaluate=False, allow_other_data=allow_other_data,
        report=said.append,
    )  # fmt: skip
    return checkpoints.load_variables(model_dir, "last", optimizer=True), said


def assert_alike(actual, expected):
    assert actual.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(actual[path], value, err_msg=path)


@pytest.mark.slow
@pytest.mark.long
def test_phases_without_changes_are_one_run_bit_for_bit(shards, tmp_path):
    whole, _ = train([], shards[0], tmp_path / "whole")
    halves, said = train(HALVES, shards[0], tmp_path / "halves")
    assert_alike(halves, whole)
    assert any("tiny_phase_1: " in line and "3 steps of 8" in line for line in said)
    assert "going on from step 3" in "".join(said)
    rates = [
        json.loads(line)["learning_rate"]
        for folder in (tmp_path / "halves" / "phase_1", tmp_path / "halves")
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    assert rates == sorted(rates, reverse=True) and len(set(rates)) == len(rates)
    # Other data is refused, also for a phase that is over.
    data = [str(small.shard_folder(tmp_path / "other", small.config(), seed=1)), shards[0]]
    with pytest.raises(UserError, match="phase_1/checkpoints/step-00000003: this run has other tr"):
        train(HALVES, data, tmp_path / "halves")
    again, said = train(HALVES, data, tmp_path / "halves", allow_other_data=True)
    assert_alike(again, whole)
    assert "halves/phase_1: trained already, to step 3" in "".join(said)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_that_is_stopped_in_any_phase_ends_with_the_same_weights(
    shards, tmp_path, monkeypatch
):
    data = [shards[1], shards[0]]
    whole, _ = train(LONGER, data, tmp_path / "whole")
    assert configs.load(tmp_path / "whole" / "phase_1").segments.max_length == 16
    assert configs.load(tmp_path / "whole").segments.max_length == 32
    steps = TrainStep.run

    class Killed(Exception):
        pass

    # A step fails: the second one, the first and the second one of the second phase.
    for failing in (2, 4, 5):
        folder = tmp_path / str(failing)
        ran = []

        def fails(self, iterator, count, ran=ran, failing=failing):
            if sum(ran) + count >= failing:
                raise Killed
            ran.append(count)
            return steps(self, iterator, count)

        with monkeypatch.context() as patch:
            patch.setattr(TrainStep, "run", fails)
            with pytest.raises(Killed):
                train(LONGER, data, folder, recipe__save_every=1)
        resumed, said = train(LONGER, data, folder, recipe__save_every=1)
        assert_alike(resumed, whole)
        over = any("phase_1: trained already, to step 3" in line for line in said)
        assert over == (failing > 3), said
    # The whole command again has nothing to do, and another first phase is refused.
    _, said = train(LONGER, data, tmp_path / "whole")
    assert any("whole: trained already, to step 6" in line for line in said)
    changed = [{**LONGER[0], "change": {**LONGER[0]["change"], "seed": 5}}, LONGER[1]]
    with pytest.raises(UserError, match="phase_1/config.yaml: this model folder was made with ano"):
        train(changed, data, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.long
def test_a_damaged_end_of_a_phase_is_made_again(shards, tmp_path, monkeypatch):
    data = [shards[1], shards[0]]
    whole, _ = train(LONGER, data, tmp_path / "whole")

    def fails(self, iterator, count):
        if self.optimizer.iterations.numpy() == 3:
            raise OSError("killed at the first step of the second phase")
        return steps(self, iterator, count)

    steps = TrainStep.run
    with monkeypatch.context() as patch:
        patch.setattr(TrainStep, "run", fails)
        with pytest.raises(OSError, match="killed at the first step"):
            train(LONGER, data, tmp_path / "again", recipe__save_every=1)
    first = tmp_path / "again" / "phase_1"
    (file,) = checkpoints.find(first, "last").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    resumed, said = train(LONGER, data, tmp_path / "again", recipe__save_every=1)
    assert any("going on from step 2" in line and "phase_1" in line for line in said), said
    assert_alike(resumed, whole)


@pytest.mark.parametrize(
    ("change", "folder", "message"),
    [
        ({}, "nowhere", "nowhere: no such folder; name a folder that build_shards or build_task"),
        ({"recipe.accumulation": 3}, None, "a batch of 8 cannot be shared by 1 replicas × 3 accum"),
        ({"encoder.activation": "relu"}, None, "encoder.activation: relu in the config and gelu_t"),
        (
            {"objectives": [{"type": "masked_lm"}]}, None,
            "phases: tiny_phase_1 and tiny have different weights (next_sentence: 34 and 0): a ph",
        ),
    ],
)  # fmt: skip
def test_a_later_phase_is_checked_before_the_first_step(shards, tmp_path, change, folder, message):
    data = [shards[0], str(tmp_path / folder) if folder else shards[0]]
    with pytest.raises(UserError, match=re.escape(message)):
        train([{"share": 0.5}, {"share": 0.5, "change": change}], data, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_data_goes_on_where_an_earlier_phase_ended(shards, tmp_path):
    config = small.config(
        phases=[
            {"share": 0.2, "change": {"recipe.batch_size": 4}},
            {"share": 0.3, "change": {"recipe.batch_size": 6}},
            {"share": 0.5},
        ],
        recipe__steps=20,
    )
    parts = list(phases.of_run(config, shards[0], None, paths.path(tmp_path), None, "best"))
    source = mixture.open_shards(shards[0], "train").read(parts[0].config, training=True)
    other = mixture.open_shards(shards[0], "train").read(parts[0].config, training=True)
    other.fingerprint = "another"
    assert [part.begin for part in parts] == [0, 4, 10]
    read = collections.defaultdict(float)
    firsts = [part.begin + part.data_offset(source, read) for part in parts]
    # 4 steps of 4 examples fill 2.67 batches of 6, and 52 examples 6.5 batches of 8.
    assert firsts == [0, 3, 7]
    assert dict(read) == {source.fingerprint: 4 * 4 + 6 * 6 + 10 * 8}
    assert parts[2].begin + parts[2].data_offset(other, read) == 0
    # Equal batches go on at the step itself.
    alike = dataclasses.replace(parts[1], config=parts[2].config, begin=10)
    assert alike.data_offset(source, collections.defaultdict(float, {source.fingerprint: 80})) == 0


def test_corpora_go_on_where_they_ended_under_other_shares(shards, tmp_path):
    """Two phases in which both of two corpora are read once in all."""
    other = str(small.shard_folder(tmp_path / "other", small.config(), seed=1))
    config = small.config(
        phases=[{"share": 1, "data_shares": [3, 1]}, {"share": 1, "data_shares": [1, 3]}],
        recipe__batch_size=4,
        recipe__steps=68,
    )
    read, numbers = collections.defaultdict(float), []
    folders = [shards[0], other]
    for part in phases.of_run(config, folders, None, paths.path(tmp_path), None, "best"):
        source = ShardDataset(
            list(part.data), part.config, training=True, numbered=True, shares=[*part.data.values()]
        )
        start = part.begin + part.data_offset(source, read)
        batches = source.dataset(4, start_step=start).take(part.config.recipe.steps - part.begin)
        numbers += [batch["example_number"].numpy() for batch in batches]
    assert sorted(read.values()) == [136, 136] and source.num_examples == 275
    # In each phase, the lanes of a corpus differ by an example at most.
    assert len({*np.concatenate(numbers)}) >= 2 * 136 - 2 * 2 * 2


def test_the_folders_of_the_phases(tmp_path):
    config = small.config(phases=[{"share": 0.25}, {"share": 0.5}, {"share": 0.25}])

    def folders(data, config=config):
        given = phases.of_run(config, data, "held", paths.path(tmp_path), "start", "best")
        return [(p.data, p.validation_data, p.model_dir.name, p.init, p.checkpoint) for p in given]

    one, two = tmp_path / "phase_1", tmp_path / "phase_2"
    assert folders("all") == [
        ("all", "held", "phase_1", "start", "best"),
        ("all", "held", "phase_2", one, "last"),
        ("all", "held", tmp_path.name, two, "last"),
    ]
    assert [row[0] for row in folders(["a", "b", "c"])] == ["a", "b", "c"]
    mixed = {"a": 0.5, "b": 0.5}
    assert [row[0] for row in folders(mixed)] == [mixed] * 3
    with pytest.raises(UserError, match="--data: 2 folders for 3 phases: name one for all of"):
        folders(["a", "b"])
    shares = small.config(
        phases=[{"share": 0.5, "data_shares": [3, 1]}, {"share": 0.5, "data_shares": [0, 1]}]
    )
    assert [row[0] for row in folders(["a", "b"], shares)] == [{"a": 3.0, "b": 1.0}, {"b": 1.0}]
    with pytest.raises(UserError, match=r"3 folders, and phases.0.data_shares has 2 numbers"):
        folders(["a", "b", "c"], shares)
    with pytest.raises(UserError, match="--data: a folder is named twice: give it one of the"):
        folders(["a", "a"], shares)
    alone = small.config(phases=[{"share": 1, "data_shares": [3, 1]}])
    assert folders(["a", "b"], alone)[0][0] == {"a": 3.0, "b": 1.0}
    with pytest.raises(UserError, match="the phases have data_shares: name folders without"):
        folders(mixed, shares)
