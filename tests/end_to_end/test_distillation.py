"""Students learn from teachers by commands: a task, its cached outputs, and pretraining."""

import json
import re

import numpy as np
import pytest
import yaml

import official
from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.distribution import numerics
from official.evaluation import run as evaluation
from official.evaluation import teacher_outputs
from official.saving import checkpoints, derived_models, model_folder, named_arrays
from official.training import train
from official.utils import progress
from official.utils.errors import UserError
from tests import small
from tests.end_to_end.test_fine_tuning import examples
from tests.official.saving.test_teachers import folder_of
from tests.tfrecords_tools.tasks import test_ranking
from tfrecords_tools.tasks import builder as task_builder

MASKED_LM = {"type": "masked_lm"}


@pytest.fixture(autouse=True)
def float32():
    yield
    numerics.set_precision("float32")


def quiet(line):
    """Reports nothing."""


def task_shards(folder, init, seed=1, **options):
    files = {}
    for split, count in (("train", 200), ("validation", 50)):
        files[split] = folder.with_name(f"{folder.name}-{split}.jsonl")
        rows = examples(count, seed + len(split), "classification")
        files[split].write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = tasks.generic("classification", "a", "b", "y", labels=["bad", "good"])
    tokenizer = tokenizers.load(f"{init}/tokenizer")
    task_builder.build(task, files, tokenizer, folder, 24, report=quiet, **options)
    return folder


def config_of(objectives, steps=80, **recipe):
    return configs.from_dict(
        {
            "name": "run",
            "objectives": objectives,
            "recipe": {
                "steps": steps, "batch_size": 16, "report_every": 5, "save_every": 50,
                "optimizer": {"learning_rate": 5e-3}, **recipe,
            },
        }
    )  # fmt: skip


def weights(folder):
    return checkpoints.load_variables(folder, "last")


@pytest.mark.slow
@pytest.mark.long
def test_a_task_from_a_teacher_and_from_its_cached_outputs(tmp_path, monkeypatch):
    still = {"encoder__dropout": 0.0, "encoder__attention_dropout": 0.0}
    init, _ = folder_of(tmp_path / "init", MASKED_LM, encoder__num_layers=2, **still)
    shards = task_shards(tmp_path / "shards", init)
    teacher = str(tmp_path / "teacher")
    head = {"type": "classification", "dropout": 0.0}
    train(config_of([head], 120), shards, teacher, init=init, evaluate=False, report=quiet)

    small_init, _ = folder_of(tmp_path / "small", MASKED_LM, encoder__hidden_size=8, **still)
    unlabelled = task_shards(tmp_path / "unlabelled", init, unlabelled_train=True)
    outputs = str(tmp_path / "outputs")
    with monkeypatch.context() as patched:
        patched.setattr(progress, "SECONDS_BETWEEN_REPORTS", 0)
        lines = []
        teacher_outputs.write([teacher], unlabelled, ["train"], outputs, report=lines.append)
    assert re.match(r"train: [0-9,]+ of [0-9,]+ examples \([0-9]+%\), .* left$", lines[0])
    distillation = {"type": "distillation", "teachers": [teacher], "cross_entropy": 1.0}
    learn = [{**head, "weight": 0.0}, distillation]
    bare = config_of([{**head}, distillation])
    with pytest.raises(
        UserError, match="the train split does not give label, which classification"
    ):
        train(bare, unlabelled, tmp_path / "refused", init=small_init, report=quiet)
    live, cached = tmp_path / "live", tmp_path / "cached"
    train(config_of(learn, 160), unlabelled, live, init=small_init, report=quiet)
    learn = [learn[0], {**distillation, "cache": outputs}]
    train(config_of(learn, 160), unlabelled, cached, init=small_init, report=quiet)
    ours, theirs = weights(live), weights(cached)
    assert ours.keys() == theirs.keys()
    assert not [path for path in ours if "teacher" in path or "layer_1" in path]
    for path, array in theirs.items():
        np.testing.assert_allclose(array, ours[path], atol=2e-4, err_msg=path)

    figures = evaluation.evaluate(live, shards)["validation"]
    assert figures["distillation_cross_entropy"] > 0 and figures["accuracy"] > 0.85
    assert official.load(live).classify(["ba be"])[0].label in ("bad", "good")
    checks = (
        (shards, {}, "these outputs of a teacher belong to other shards"),
        (unlabelled, {"teachers": [init]}, "these are the outputs of other teachers"),
    )
    for data, changes, message in checks:
        refused = config_of([learn[0], {**learn[1], **changes}])
        with pytest.raises(UserError, match=message):
            train(refused, data, tmp_path / "refused", init=small_init, report=quiet)
    monkeypatch.setattr(evaluation.errors, "warn", lambda line: None)
    gone = [f"objectives.distillation.teachers=[{tmp_path}/gone]"]
    assert "distillation_cross_entropy" not in evaluation.evaluate(live, shards, overrides=gone)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("term", ["logits", "cross_entropy"])
def test_a_ranker_from_a_teacher_and_from_its_cached_scores(tmp_path, term):
    """Lists that are filled, with the scores that a teacher with random weights gives."""
    still = {"encoder__dropout": 0.0, "encoder__attention_dropout": 0.0}
    head = {"type": "ranking", "dropout": 0.0}
    wide = {"encoder__num_layers": 2, "encoder__initializer_range": 0.3}
    teacher, _ = folder_of(tmp_path / "teacher", head, **wide, **still)
    init, _ = folder_of(tmp_path / "small", MASKED_LM, encoder__hidden_size=8, **wide, **still)
    data = test_ranking.write(tmp_path / "in")
    shards, outputs = tmp_path / "shards", tmp_path / "outputs"
    test_ranking.build(data, shards, negatives=8, list_size=4)
    teacher_outputs.write([teacher], shards, ["train"], outputs, report=quiet)
    distillation = {"type": "distillation", "teachers": [teacher], term: 1.0}
    found = {}
    for name, changes in (("live", {}), ("cached", {"cache": str(outputs)})):
        objectives = [{**head, "weight": 0.0}, {**distillation, **changes}]
        # A large epsilon: rounding is no step of a weight that has no gradient.
        optimizer = {"learning_rate": 5e-3, "epsilon": 1e-3}
        config = config_of(objectives, 30, batch_size=8, optimizer=optimizer)
        train(config, shards, tmp_path / name, init=init, evaluate=False, report=quiet)
        found[name] = weights(tmp_path / name)
    start = checkpoints.load_variables(init, "last")
    moved = [
        abs(array - start[path]).max() for path, array in found["live"].items() if path in start
    ]
    assert max(moved) > 1e-2
    for path, array in found["cached"].items():
        np.testing.assert_allclose(array, found["live"][path], atol=2e-5, err_msg=path)
    lines = (tmp_path / "live" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line) for line in lines]
    losses = [x[f"distillation_{term}"] for x in losses if f"distillation_{term}" in x]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.xla
def test_pretraining_on_two_replicas_and_compiled_is_the_same(tmp_path, mirrored):
    """DistilBERT's terms and MiniLM's, from copied layers, in float64."""
    teacher, tokenizer = folder_of(tmp_path / "teacher", MASKED_LM, encoder__num_layers=4)
    config, _, model = model_folder.restore(teacher)
    student, arrays = derived_models.make_student(
        config, named_arrays.values(model.variables_by_path()), derived_models.StudentPlan((0, 3))
    )
    model_folder.write_new(student, tokenizer, arrays, tmp_path / "student")
    raw = configs.to_dict(
        small.config(
            segments__relation="none",
            objectives=[
                {**MASKED_LM, "weight": 2.0},
                {
                    "type": "distillation", "teachers": [teacher], "temperature": 2.0,
                    "head": "masked_lm", "cross_entropy": 5.0, "cosine": 1.0, "relation": 1.0,
                },
            ],
            encoder__num_layers=2, encoder__segment_types=0, encoder__pooler=False,
            encoder__dropout=0.0, encoder__attention_dropout=0.0,
        )
    )  # fmt: skip
    raw["recipe"] |= {"init_weights": "all", "precision": "float64", "steps": 6, "save_every": 3}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(raw))
    shards = small.shard_folder(tmp_path / "shards", configs.load(path))
    assert ShardDataset(shards, configs.load(path)).num_examples > 16

    def run(name, strategy=None, *overrides):
        options = {"init": tmp_path / "student", "evaluate": False, "report": quiet}
        train(configs.load(path, overrides), shards, tmp_path / name, strategy=strategy, **options)
        return weights(tmp_path / name)

    one = run("one")
    two = run("two", mirrored(2), "recipe.jit_compile=true")
    assert one.keys() == two.keys() and not [p for p in one if p.startswith("distillation")]
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, rtol=0, atol=1e-9, err_msg=name)
    before = arrays["encoder/layer_1/attention/output/kernel"]
    assert np.abs(one["encoder/layer_1/attention/output/kernel"] - before).max() > 1e-3

    changed = named_arrays.values(model.variables_by_path())
    changed["masked_lm/output_bias"] = changed["masked_lm/output_bias"] + 1
    checkpoints.save(teacher, 0, changed, {})
    with pytest.raises(UserError, match="made with another config .*teacher_checksums"):
        run("one")
