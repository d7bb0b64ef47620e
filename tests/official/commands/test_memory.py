"""`garden memory` says what `garden train` says before its first step."""

import re

import pytest

from official import config as configs
from tests import commands, small

GARDEN = "official.commands.garden"
LINE = re.compile(
    r"^memory: about .* at the peak of a step \((\d+) MB of activations and gradients, .* of the "
    r"program with (\d+) MB of weights and (\d+) MB of the optimizer\)$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The flags of a run whose encoder has some megabytes."""
    folder = tmp_path_factory.mktemp("memory")
    config = small.config(
        encoder__hidden_size=256, encoder__num_heads=4, encoder__intermediate_size=1024
    )
    small.shard_folder(folder / "shards", config, count=80)
    configs.save(small.replace(config, batch_size=128), folder / "config.yaml")
    return [f"--config={folder}/config.yaml", f"--data={folder}/shards"]


@pytest.mark.slow
@pytest.mark.long
def test_the_command_says_what_a_run_says(run, tmp_path):
    alone = commands.run(GARDEN, "memory", *run, status=0).stdout
    steps = ["--noevaluate", f"--model_dir={tmp_path}/model", "--override=recipe.steps=2"]
    trained = commands.run(GARDEN, "train", *run, *steps, status=0).stdout
    assert LINE.search(alone).groups() == LINE.search(trained).groups()
    halves = commands.run(GARDEN, "memory", *run, "--override=recipe.accumulation=2", status=0)
    whole, part = (int(LINE.search(text)[1]) for text in (alone, halves.stdout))
    assert 0.4 < part / whole < 0.8  # of the batch, but the gradients of the weights
    assert trained.index("memory: about") < trained.index("step 1")


def test_data_are_needed():
    done = commands.run(GARDEN, "memory", "--config=configs/smoke/bert.yaml", status=2)
    assert "--data is missing" in done.stderr
