"""Runs killed at random moments end at the weights of a run that nobody killed."""

import json
import os
import random
import time

import numpy as np
import pytest

from official import config as configs
from official.saving import checkpoints
from tests import commands, small
from tests.systems import SYSTEMS, shard_folder

KILLS = int(os.environ.get("GARDEN_KILLS", "1"))
# GARDEN_SYSTEMS=all kills runs of each system. What a kill may break, all have in common but for
# the memory of rows that go on. (A stop of each system is in `test_systems`.)
ALL = ("bert", *SYSTEMS)
NAMES = ALL if os.environ.get("GARDEN_SYSTEMS") == "all" else ("xlnet_stream",)


def command(folder, name):
    return [
        "official.main", "--mode=train", f"--config={folder / 'run.yaml'}",
        f"--data={folder / 'shards'}", f"--model_dir={folder / name}",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_killed_runs_end_at_the_same_weights(name, tmp_path):
    config = small.replace(
        small.config(**SYSTEMS.get(name, {})),
        steps=40 * (KILLS + 1),
        save_every=1,
        report_every=50,
        accumulation=2,
    )
    configs.save(config, tmp_path / "run.yaml")
    shard_folder(tmp_path / "shards", config)
    # The same command twice: one of the two is refused, and the other one does not notice.
    twice = [commands.Command(*command(tmp_path, "whole")) for _ in range(2)]

    moments = random.Random(KILLS)
    in_a_save = 0
    for _ in range(KILLS):
        before = checkpoints.last_step(tmp_path / "killed")
        process = commands.Command(*command(tmp_path, "killed"))
        while checkpoints.last_step(tmp_path / "killed") == before and process.returncode is None:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.5))
        process.kill()
        process.wait()
        in_a_save += any((tmp_path / "killed" / "checkpoints").glob(".tmp-*"))
    assert process.returncode == -9, "the run ended before it could be killed"
    last = commands.run(*command(tmp_path, "killed"), status=0)
    assert "going on from step" in last.stdout
    whole, refused = sorted(twice, key=commands.Command.wait)
    assert (whole.returncode, refused.returncode) == (0, 2)
    assert "whole: another run trains in this model folder (process " in refused.stderr.read_text()
    metrics = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in metrics]
    assert steps and len(set(steps)) == len(steps)

    print(f"{KILLS} kills, {in_a_save} of them during a save")
    wanted = checkpoints.load_variables(tmp_path / "whole", "last", optimizer=True)
    actual = checkpoints.load_variables(tmp_path / "killed", "last", optimizer=True)
    assert (
        wanted.keys() == actual.keys() and int(actual["optimizer/iteration"]) == config.recipe.steps
    )
    for path, value in wanted.items():
        np.testing.assert_array_equal(actual[path], value, err_msg=path)
    assert ("memory/states" in actual) == (config.segments.format == "stream")
    assert not list((tmp_path / "killed" / "checkpoints").glob(".tmp-*"))
