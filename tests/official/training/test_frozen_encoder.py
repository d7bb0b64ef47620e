"""Heads with a layer mix over a frozen encoder: what is trained, computed, saved and served."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.distribution import strategies
from official.evaluation.run import predict
from official.modeling.model import Model
from official.saving import checkpoints, model_folder, task_file
from official.serving.export import saved_model
from official.training import trainable
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import small
from tests.official.training.test_trainer import losses, precision, trainer, weights
from tfrecords_tools.tasks import builder as task_builder

GOOD, BAD = small.WORDS[:4], small.WORDS[4:8]
HEAD = {"type": "classification", "num_labels": 2, "labels": ["bad", "good"], "pooling": "mean"}


def rows(count, seed):
    """Texts of words of one of two sets, which is the label."""
    draw = np.random.default_rng(seed)
    for _ in range(count):
        words = (BAD, GOOD)[label := int(draw.integers(2))]
        yield {"a": " ".join(draw.choice(words, draw.integers(2, 12))), "y": ("bad", "good")[label]}


def task_shards(folder):
    """Makes the shards of a task of `rows`."""
    files = {}
    for seed, (split, count) in enumerate({"train": 96, "validation": 24, "test": 9}.items()):
        files[split] = folder / f"{split}.jsonl"
        files[split].write_text("".join(json.dumps(row) + "\n" for row in rows(count, seed)))
    tokenizer = tokenizers.load(small.tokenizer_folder(folder / "tokenizer"))
    task = tasks.generic("classification", "a", None, "y")
    task_builder.build(task, files, tokenizer, folder / "shards", 16, report=lambda line: None)
    return folder / "shards"


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return task_shards(tmp_path_factory.mktemp("frozen"))


def config(mix=None, **changes):
    """A tiny encoder, frozen, with a head that reads a mix of its layers."""
    settings = {
        "segments": None,
        "corruption": None,
        "objectives": [HEAD | {"mix": mix or {}}],
        "encoder__num_layers": 2,
        "encoder__initializer_range": 0.3,
        "recipe__freeze_encoder": True,
    }
    return small.config(**settings | changes)


@pytest.mark.slow
def test_only_the_head_is_trained(shards, tmp_path):
    settings = config({"dropout": 0.0, "penalty": 0.01}, recipe__steps=30, recipe__report_every=1)
    training = trainer(settings, shards, tmp_path / "frozen")
    before = weights(training)
    training.train()
    changed = {
        path
        for path, value in weights(training).items()
        if not path.startswith(checkpoints.OPTIMIZER) and (value != before[path]).any()
    }
    head = "mix/weights mix/gamma output/kernel output/bias".split()
    assert changed == {f"classification/{name}" for name in head}
    moments = [p for p in training.variables if p.startswith(checkpoints.OPTIMIZER)]
    assert not [path for path in moments if "encoder" in path]
    assert len([path for path in moments if "classification" in path]) == 8  # two of each variable
    curve = losses(tmp_path / "frozen")
    assert np.mean([curve[step] for step in range(21, 31)]) < curve[1] - 0.2


@pytest.mark.slow
def test_frozen_encoder_has_no_dropout(shards, tmp_path):
    curves = []
    for rate in (0.0, 0.5):
        settings = config(
            {"dropout": 0.0}, encoder__dropout=rate, recipe__steps=2, recipe__report_every=1
        )
        head = dataclasses.replace(settings.objectives[0], dropout=0.0)
        settings = dataclasses.replace(settings, objectives=(head,))
        trainer(settings, shards, tmp_path / str(rate)).train()
        curves.append(losses(tmp_path / str(rate)))
    assert curves[0] == curves[1]


def test_step_has_no_backward_pass_of_a_frozen_encoder():
    """The matrix products of a step: a trained encoder has two more for each of its own."""
    ids = tf.ones((4, 6), tf.int32)
    batch = {"token_ids": ids, "padding_mask": ids > 0, "label": ids[:, 0]}
    batch["example_weights"] = tf.ones(4)
    model = Model(config())
    counts = {}
    for frozen in (False, True):
        if frozen:
            model.freeze_encoder()
        variables = [variable.value for variable in model.trainable_variables]

        def step(variables=variables):
            losses, _ = model.terms(batch)
            return [g for g in tf.gradients(losses["classification"], variables) if g is not None]

        graph = tf.function(step, autograph=False).get_concrete_function().graph
        products = ("MatMul", "BatchMatMulV2", "Einsum")
        counts[frozen] = sum(op.type in products for op in graph.get_operations())
    assert 0 < counts[True] < counts[False] / 2, counts


@pytest.mark.slow
@pytest.mark.parametrize(
    "learning",
    [
        {},
        pytest.param(
            {
                "recipe__freeze_encoder": False,
                "recipe__trainable": {"layers": 0, "unfreeze_every": 4, "embeddings": False},
            },
            marks=pytest.mark.long,
        ),
    ],
    ids=["frozen", "gradually"],
)
def test_replicas_and_accumulation_change_nothing(shards, tmp_path, mirrored, learning):
    """Ten steps in float64 with a penalty; the norm of single tokens does not read the batch."""
    settings = config(
        {"dropout": 0.2, "penalty": 0.1, "norm": "token"},
        recipe__precision="float64",
        recipe__steps=10,
        recipe__report_every=1,
        **learning,
    )
    assert settings.objectives[0].dropout > 0
    with precision("float64"):
        one = trainer(settings, shards, tmp_path / "one")
        one.train()
        half = small.replace(settings, accumulation=2)
        two = trainer(half, shards, tmp_path / "two", mirrored(2))
        two.train()
        expected, actual = weights(one), weights(two)
    for path, value in expected.items():
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(actual[path] - value).max() <= 1e-9 * scale, path


@pytest.mark.slow
@pytest.mark.long
def test_a_head_with_a_mix_predicts_and_is_served(shards, tmp_path):
    settings = config({"norm": "token"})
    source = ShardDataset(shards, settings, "train", training=True)
    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(settings, strategy)
    folder = tmp_path / "model"
    Trainer(settings, model, source, strategy, folder).train()
    configs.save(settings, folder / model_folder.CONFIG)
    source.tokenizer.save(folder / "tokenizer")
    task_file.save(source.manifest, folder)

    predict(folder, shards, tmp_path / "out.jsonl", split="test")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    predicted = [[line["probabilities"][name] for name in ("bad", "good")] for line in lines]
    texts = [row["a"] for row in rows(9, 2)]
    saved_model.export(folder, tmp_path / "saved")
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    served = serve(text=tf.constant(texts))["probabilities"]
    np.testing.assert_allclose(served, predicted, atol=1e-6)


def test_a_frozen_encoder_needs_a_head(shards):
    model = strategies.build_model(
        small.config(
            encoder__causal=True,
            encoder__pooler=False,
            encoder__pooled_position="last",
            corruption=None,
            objectives=[{"type": "causal_lm"}],
        ),
        tf.distribute.get_strategy(),
    )
    frozen = configs.Recipe(steps=1, freeze_encoder=True)
    with pytest.raises(UserError, match=r"recipe.freeze_encoder: true, .*\(causal_lm\) have no"):
        trainable.freeze(model, frozen)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe__dropout": 0.1}, "recipe.dropout: not supported for a frozen encoder"),
        ({"recipe__trainable": {"layers": 1}}, "recipe.trainable: not supported for a frozen"),
        (
            {"recipe__optimizer__layer_decay": 0.9},
            "recipe.optimizer.layer_decay: not supported for a frozen",
        ),
    ],
)
def test_settings_of_a_trained_encoder_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        config(**changes)
