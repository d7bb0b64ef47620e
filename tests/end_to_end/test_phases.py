"""BERT's two phases by one config: short sequences, then long ones under the same schedule."""

import json

import numpy as np
import pytest

from official.saving import checkpoints
from tests import ROOT, commands, small

CONFIGS = ROOT / "configs" / "pretrain"
# Small, and a hundred thousandth of the steps.
OVERRIDES = {
    "encoder.vocab_size": 125, "encoder.hidden_size": 16, "encoder.num_layers": 2,
    "encoder.num_heads": 2, "encoder.intermediate_size": 32, "encoder.max_positions": 32,
    "recipe.batch_size": 8, "recipe.precision": "float32", "recipe.report_every": 1,
    "recipe.eval_every": 0, "recipe.schedule.warmup_steps": 2, "recipe.steps": 10,
    "segments.max_length": 16, "corruption.max_predictions": 3,
    "phases.1.change": "{segments.max_length: 32, corruption.max_predictions: 5}",
}  # fmt: skip
CONFIG = (
    f"--config={CONFIGS}/bert_base_phases.yaml",
    *(f"--override={key}={value}" for key, value in OVERRIDES.items()),
)


@pytest.mark.slow
@pytest.mark.long
def test_the_second_phase_goes_on_with_moments_step_and_rate(tmp_path):
    (tmp_path / "text.txt").write_text(
        "\n\n".join("\n".join(document) for document in small.documents(60))
    )
    build = (
        *CONFIG, f"--input={tmp_path}/text.txt",
        f"--tokenizer={small.tokenizer_folder(tmp_path / 'tokenizer')}",
    )  # fmt: skip
    for phase in (1, 2):
        commands.run(
            "tfrecords_tools.build_shards", *build, f"--phase={phase}",
            f"--output={tmp_path}/shards-{phase}", status=0,
        )  # fmt: skip
    refused = commands.run("tfrecords_tools.build_shards", *build, f"--output={tmp_path}/no")
    assert refused.returncode and "--phase is missing: the 2 phases" in refused.stderr
    second, first = tmp_path / "model", tmp_path / "model" / "phase_1"
    options = (
        "--mode=train", *CONFIG, f"--data={tmp_path}/shards-1,{tmp_path}/shards-2",
        f"--model_dir={second}",
    )  # fmt: skip
    said = commands.run("official.main", *options, status=0).stdout
    assert "done: 9 steps" in said
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
    again = commands.run("official.main", *options, status=0).stdout
    assert "trained already, to step 9" in again and "trained already, to step 10" in again
