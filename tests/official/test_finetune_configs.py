from pathlib import Path

import pytest

from official import config, tasks

FOLDER = Path(__file__).parents[2] / "configs" / "finetune"


OTHERS = "electra xlnet ranking ranking_kernels squad1 squad2 xlnet_squad race swag dream".split()
# (Those of ELECTRA and XLNet: test_electra_configs.py, test_xlnet_configs.py.)
BERT = sorted(path for path in FOLDER.glob("*.yaml") if path.stem not in OTHERS)


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
    assert len(read.objectives) == 1 or all(objective.task for objective in read.objectives)
    for objective in read.objectives:
        assert objective.dropout == 0.1
        kind = config.type_of(objective)
        task = tasks.TASKS.get(objective.task or read.name)
        assert kind == (task.kind if task else read.name)


def test_rankings():
    pair, kernels = (config.load(FOLDER / f"{n}.yaml") for n in ("ranking", "ranking_kernels"))
    for read, name in ((pair, "ranking"), (kernels, "ranking_kernels")):
        assert (read.name, read.encoder, read.segments) == (name, None, None)
        assert (read.recipe.batch_size, read.recipe.schedule.end_ratio) == (16, 0)
        (objective,) = read.objectives
        assert (objective.loss, objective.margin) == ("pairwise", 1)
    assert config.type_of(pair.objectives[0]) == "ranking"
    assert pair.recipe.optimizer.learning_rate in (2e-5, 3e-5, 5e-5)
    assert config.type_of(kernels.objectives[0]) == "kernel_ranking"
    assert len(kernels.objectives[0].means_and_widths) == 11
    optimizer = kernels.recipe.optimizer
    assert (optimizer.learning_rate, optimizer.epsilon) == (1e-3, 1e-5)


@pytest.mark.parametrize(
    "name, epochs, steps, batch_size, rate, form",
    [
        ("squad1", 3, 0, 32, 5e-5, "independent"),
        ("squad2", 2, 0, 48, 5e-5, "independent"),
        ("xlnet_squad", 0, 8000, 48, 5.33e-5, "conditional"),
    ],
)
def test_settings_for_questions_and_spans(name, epochs, steps, batch_size, rate, form):
    read = config.load(FOLDER / f"{name}.yaml")
    recipe, optimizer = read.recipe, read.recipe.optimizer
    assert read.name == name and read.encoder is None
    assert (recipe.epochs, recipe.steps, recipe.batch_size) == (epochs, steps, batch_size)
    assert optimizer.learning_rate == rate
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.clip_norm) == (0.01, 1e-6, 1.0)
    (objective,) = read.objectives
    assert objective.form == form
    if form == "conditional":
        # Table 8's rate is that of the last layer.
        assert optimizer.layer_decay == 0.75 and rate * 0.75**2 == pytest.approx(3e-5, rel=1e-3)
        assert (objective.start_beam, objective.end_beam, objective.n_best) == (5, 5, 5)
        assert recipe.bucket_lengths[-1] == 512
    else:
        assert optimizer.layer_decay == 1 and recipe.schedule.warmup_fraction == 0.1
        assert (objective.max_answer_length, objective.n_best) == (30, 20)
        assert recipe.bucket_lengths[-1] == 384


@pytest.mark.parametrize(
    "name, length, batch_size, rate, weight_decay",
    [
        ("race", {"steps": 12000, "epochs": 0}, 32, 2e-5, 0),
        ("swag", {"steps": 0, "epochs": 3}, 16, 2e-5, 0.01),
        ("dream", {"steps": 0, "epochs": 4}, 16, 2e-5, 0.01),
    ],
)
def test_choices(name, length, batch_size, rate, weight_decay):
    read = config.load(FOLDER / f"{name}.yaml")
    assert (read.name, read.encoder, read.segments) == (name, None, None)
    recipe, (objective,) = read.recipe, read.objectives
    assert {key: getattr(recipe, key) for key in length} == length
    assert (recipe.batch_size, recipe.schedule.end_ratio) == (batch_size, 0)
    assert recipe.optimizer.learning_rate == rate
    assert (recipe.optimizer.weight_decay, recipe.optimizer.epsilon) == (weight_decay, 1e-6)
    assert (config.type_of(objective), objective.dropout) == ("multiple_choice", 0.1)
    assert tasks.TASKS[name].kind == "choice"
