"""BERT's two phases by their commands: short sequences, then long ones under the same schedule."""

import json

import numpy as np
import pytest

from official import config as configs
from official.saving import checkpoints
from tests import ROOT, commands, small

CONFIGS = ROOT / "configs" / "pretrain"
# Small, and a hundred thousandth of the steps.
SIZES = {
    "encoder.vocab_size": 125, "encoder.hidden_size": 16, "encoder.num_layers": 2,
    "encoder.num_heads": 2, "encoder.intermediate_size": 32, "encoder.max_positions": 32,
    "recipe.batch_size": 8, "recipe.precision": "float32", "recipe.report_every": 1,
    "recipe.eval_every": 0, "recipe.schedule.warmup_steps": 2,
}  # fmt: skip
FIRST = {**SIZES, "segments.max_length": 16, "corruption.max_predictions": 3,
         "recipe.steps": 9, "recipe.schedule.steps": 10}  # fmt: skip
SECOND = {**SIZES, "segments.max_length": 32, "corruption.max_predictions": 5, "recipe.steps": 10}


def run(name, overrides, *options):
    options += tuple(f"--override={key}={value}" for key, value in overrides.items())
    options += (f"--config={CONFIGS / name}.yaml",)
    return commands.run("official.main", "--mode=train", *options, status=0).stdout


@pytest.mark.slow
@pytest.mark.long
def test_the_second_phase_goes_on_with_moments_step_and_rate(tmp_path):
    for name, overrides in (("bert_base", FIRST), ("bert_base_phase2", SECOND)):
        settings = configs.load(
            CONFIGS / f"{name}.yaml", [f"{key}={value}" for key, value in overrides.items()]
        )
        small.shard_folder(tmp_path / f"{name}-shards", settings)
    first, second = tmp_path / "first", tmp_path / "second"
    run("bert_base", FIRST, f"--data={tmp_path}/bert_base-shards", f"--model_dir={first}")
    options = (
        f"--data={tmp_path}/bert_base_phase2-shards", f"--model_dir={second}", f"--init={first}",
        "--checkpoint=last",
    )  # fmt: skip
    said = run("bert_base_phase2", SECOND, *options)
    assert "going on from step 9" in said and "done: 10 steps" in said
    (report,) = map(json.loads, (second / "metrics.jsonl").read_text().splitlines())
    # The tenth of ten steps: the decay is nearly over, and no warm-up begins again.
    assert report["step"] == 10 and report["learning_rate"] < 0.11 * 1e-4
    before, after = (checkpoints.load_variables(f, "last", optimizer=True) for f in (first, second))
    assert before.keys() == after.keys()
    moments = [path for path in before if path.endswith("/v")]
    for path in moments:
        # The second moment keeps 0.999 of what it was.
        assert (after[path] >= 0.998 * before[path]).all() and (before[path] > 0).any(), path
    assert any((before[path] != after[path]).any() for path in moments)
    (table,) = (path for path in moments if path.endswith("position_embedding/table/v"))
    rows = before[table]
    assert rows.shape == (32, 16) and not np.any(rows[16:])  # which only long sequences reach
    assert np.any(after[table][16:])
    # The same command again has nothing to do.
    assert "trained already, to step 10" in run("bert_base_phase2", SECOND, *options)
