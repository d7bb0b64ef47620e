from pathlib import Path

import pytest

from official import config, tasks

FOLDER = Path(__file__).parents[2] / "configs" / "finetune"


# (Those of ELECTRA and XLNet: test_electra_configs.py, test_xlnet_configs.py.)
BERT = sorted(path for path in FOLDER.glob("*.yaml") if path.stem not in ("electra", "xlnet"))


@pytest.mark.parametrize("path", BERT, ids=lambda path: path.stem)
def test_settings_are_those_of_the_paper(path):
    read = config.load(path)
    recipe, optimizer = read.recipe, read.recipe.optimizer
    assert read.name == path.stem
    assert (read.encoder, read.segments, read.corruption) == (None, None, None)
    assert (recipe.batch_size, recipe.epochs, recipe.schedule.warmup_fraction) == (32, 3, 0.1)
    assert optimizer.learning_rate in (2e-5, 3e-5, 4e-5, 5e-5)
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.clip_norm) == (0.01, 1e-6, 1.0)
    assert not optimizer.bias_correction
    assert recipe.init_weights == "encoder"
    assert recipe.bucket_lengths[-1] == 128
    (objective,) = read.objectives
    assert objective.dropout == 0.1
    kind = config.type_of(objective)
    task = tasks.TASKS.get(read.name)
    assert kind == (task.kind if task else read.name)
