"""Weights of classes in a run: numbers in its config, and the same model in parts of a batch."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.distribution import numerics, strategies
from official.saving import model_folder, named_arrays
from official.training import resolve, train
from official.training.trainer import Trainer
from tests.official.modeling.objectives.test_label_weights import shards
from tests.official.training.test_systems import assert_close

ENCODER = {
    "type": "transformer", "hidden_size": 8, "num_layers": 1, "num_heads": 2, "pooler": True,
    "intermediate_size": 16, "max_positions": 128, "dropout": 0.1, "attention_dropout": 0.1,
}  # fmt: skip
HEAD = {"type": "classification", "class_weights": "balanced", "label_smoothing": 0.1}
ROWS = [("a cat", "x")] * 6 + [("a dog", "y")] * 3 + [("a bird", "z")]


def config(head, **recipe):
    recipe = {"steps": 6, "batch_size": 4, "optimizer": {"learning_rate": 1e-2}, **recipe}
    raw = {"name": "uneven", "encoder": ENCODER, "objectives": [head], "recipe": recipe}
    return configs.from_dict(raw)


@pytest.mark.slow
def test_a_run_has_the_numbers_that_balance_its_classes(tmp_path):
    shards(tmp_path, "classification", ROWS, ("x", "y", "z"))
    data = tmp_path / "shards"
    train(config(HEAD), data, tmp_path / "model", evaluate=False)
    (head,) = model_folder.config_of(tmp_path / "model").objectives
    assert head.class_weights == pytest.approx((10 / 18, 10 / 9, 10 / 3))
    # The same command finds the run whole.
    lines = []
    train(config(HEAD), data, tmp_path / "model", evaluate=False, report=lines.append)
    assert "trained already" in lines[-1]


@pytest.mark.slow
@pytest.mark.long
def test_two_replicas_and_accumulation_change_nothing(tmp_path, mirrored):
    opened = shards(tmp_path, "classification", ROWS, ("x", "y", "z"))
    result = {}
    numerics.set_precision("float64")
    try:
        for place, strategy, accumulation, head in (
            ("one", tf.distribute.get_strategy(), 1, HEAD),
            ("parts", mirrored(2), 2, HEAD),
            ("even", tf.distribute.get_strategy(), 1, {"type": "classification"}),
        ):
            settings = config(head, accumulation=accumulation, precision="float64")
            read = resolve.resolve(settings, opened)
            source = ShardDataset(tmp_path / "shards", read, "train", training=True)
            model = strategies.build_model(read, strategy)
            trainer = Trainer(read, model, source, strategy, tmp_path / place)
            trainer.train()
            result[place] = named_arrays.values(trainer.variables)
    finally:
        numerics.set_precision("float32")
    assert_close(result["parts"], result["one"])
    bias = "classification/output/bias"
    bias = next(path for path in result["one"] if bias in path)
    assert np.argmax(result["even"][bias]) == 0  # the frequent class
    assert abs(result["one"][bias] - result["even"][bias]).max() > 1e-3
