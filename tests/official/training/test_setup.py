import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from official import config as config_lib
from official import manifest
from official.errors import UserError
from official.training import checkpoints, setup
from tests import small

ONE = tf.distribute.get_strategy()


def tuned(**changes):
    return config_lib.from_dict(
        {
            "name": "tuned",
            "objectives": [{"type": "classification"}],
            "recipe": {"epochs": 1},
            **changes,
        }
    )


def test_the_encoder_comes_from_init_and_the_labels_from_the_data():
    initial = small.config()
    found = setup.resolve(tuned(), initial.encoder.vocab_size, ("bad", "good"), initial)
    assert found.encoder == initial.encoder and found.objectives[0].labels == ("bad", "good")


def test_the_config_may_change_the_dropout_of_init():
    initial = small.config()
    encoder = {**config_lib.to_dict(initial)["encoder"], "dropout": 0.5}
    found = setup.resolve(tuned(encoder=encoder), initial.encoder.vocab_size, (), initial)
    assert found.encoder == dataclasses.replace(initial.encoder, dropout=0.5)


def test_sizes_other_than_those_of_init_are_refused():
    initial = small.config()
    encoder = {**config_lib.to_dict(initial)["encoder"], "num_layers": 3}
    with pytest.raises(UserError, match="encoder.num_layers: 3 in the config and 2 in the model"):
        setup.resolve(tuned(encoder=encoder), initial.encoder.vocab_size, (), initial)


def test_the_vocabulary_size_comes_from_the_tokenizer():
    config = small.config(encoder__vocab_size=None)
    assert setup.resolve(config, 77).encoder.vocab_size == 77
    with pytest.raises(UserError, match="encoder.vocab_size: 125 is less than the 126 pieces"):
        setup.resolve(small.config(), 126)


def test_no_encoder_anywhere():
    with pytest.raises(UserError, match="encoder: the config has none: give one, or .* --init"):
        setup.resolve(tuned(), 10)


def test_labels_of_another_task():
    config = tuned(objectives=[{"type": "classification", "labels": ["a", "b"]}])
    with pytest.raises(UserError, match="labels a, b in the config, b, a in the data"):
        setup.resolve(config, 10, ("b", "a"), small.config())


def test_a_model_folder_of_another_config_is_refused(tmp_path):
    config = small.config()
    setup.check_same_run(config, tmp_path)
    config_lib.save(config, tmp_path / "config.yaml")
    setup.check_same_run(small.replace(config, report_every=7), tmp_path)
    with pytest.raises(UserError) as caught:
        setup.check_same_run(small.replace(config, steps=7), tmp_path)
    assert "config.yaml: this model folder was made with another config" in str(caught.value)
    assert "recipe.steps: 6 there, 7 now" in str(caught.value)


def test_weights_from_another_model(tmp_path):
    config = small.config()
    model = setup.build_model(config, ONE)
    variables = model.variables_by_path()
    arrays = {path: np.full(v.shape, 0.5, np.float32) for path, v in variables.items()}
    checkpoints.save(tmp_path, 1, arrays, {"figures": {}})
    count = setup.start_from(model, str(tmp_path), "last", "encoder")
    for path, variable in variables.items():
        assert (variable.numpy() == 0.5).all() == path.startswith("encoder/"), path
    assert count == sum(path.startswith("encoder/") for path in variables)
    assert setup.start_from(model, str(tmp_path), "last", "all") == len(variables)
    assert all((variable.numpy() == 0.5).all() for variable in variables.values())
    assert setup.start_from(model, "nowhere", "last", "none") == 0


def test_the_same_seed_gives_the_same_weights():
    one, two = (setup.build_model(small.config(), ONE).variables_by_path() for _ in range(2))
    other = setup.build_model(small.config(seed=1), ONE).variables_by_path()
    for path, variable in one.items():
        np.testing.assert_array_equal(variable.numpy(), two[path].numpy())
    kernel = "encoder/pooler/kernel"
    assert (one[kernel].numpy() != other[kernel].numpy()).any()


def test_the_task_is_noted_for_serving(tmp_path):
    task = {"name": "sst2", "labels": ["bad", "good"], "pair": False}
    found = manifest.Manifest("task", (), {}, "", 64, 0, (), task=task)
    setup.save_task(found, tmp_path)
    assert json.loads((tmp_path / "task.json").read_text()) == {**task, "max_length": 64}
