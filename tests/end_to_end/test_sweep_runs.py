"""A sweep over seeds by the command line: what it says is what its runs have measured."""

import json
import statistics

import numpy as np
import pytest
import yaml

from official import tasks, tokenizers
from tests import commands, small
from tfrecords_tools.tasks import builder as task_builder


def run(*options):
    return commands.run("official.main", *options)


@pytest.mark.slow
@pytest.mark.long
def test_sweep_over_seeds(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    rng = np.random.default_rng(0)
    files = {split: tmp_path / f"{split}.tsv" for split in ("train", "validation")}
    for path in files.values():
        rows = [f"{' '.join(rng.choice(small.WORDS, 5))}\t{rng.integers(2)}" for _ in range(40)]
        path.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    task = tasks.generic("classification", "text", label="label")
    task_builder.build(
        task, files, tokenizer, tmp_path / "shards", 16, report=lambda line: None
    )  # fmt: skip
    config = {
        "name": "tiny",
        "encoder": {
            "type": "transformer", "hidden_size": 16, "num_layers": 1, "num_heads": 2,
            "intermediate_size": 16, "max_positions": 16,
        },
        "objectives": [{"type": "classification"}],
        "recipe": {"steps": 4, "batch_size": 8},
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    options = [
        "--mode=train_and_eval", f"--config_file={tmp_path}/config.yaml",
        f"--data={tmp_path}/shards", f"--model_dir={tmp_path}/sweep", "--sweep=seed=0,1",
        "--params_override=recipe.optimizer.learning_rate=1e-2",
    ]  # fmt: skip
    done = run(*options)
    assert done.returncode == 0, done.stdout + done.stderr
    measured = []
    for seed in (0, 1):
        lines = (tmp_path / "sweep" / f"seed={seed}" / "metrics.jsonl").read_text().splitlines()
        (line,) = [r for r in map(json.loads, lines) if r["split"] == "validation"]
        measured.append(line["accuracy"])
        assert yaml.safe_load((tmp_path / "sweep" / f"seed={seed}" / "config.yaml").read_text())[
            "seed"
        ] == seed  # fmt: skip
    record = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [actual["figures"]["accuracy"] for actual in record["runs"]] == measured
    (spread,) = [actual["spread"]["accuracy"] for actual in record["settings"]]
    assert spread["median"] == statistics.median(measured)
    assert spread["std"] == pytest.approx(np.std(measured, ddof=1))
    assert f"best setting: as in the config (median accuracy {spread['median']:.4f})" in done.stdout

    again = run(*options)
    assert again.returncode == 0 and again.stdout.count(": run already") == 2
    assert "steps/s" not in again.stdout
    for changed, message in (
        ("--mode=train", "--sweep compares evaluations: it needs --mode=train_and_eval"),
        ("--sweep=recipe.stepps=1,2", "recipe.stepps: unknown key"),
        ("--override=recipe.steps=5", "a sweep with another command (config.recipe.steps: 4 there"),
    ):
        refused = run(*options, changed)
        assert refused.returncode == 2 and message in refused.stderr
