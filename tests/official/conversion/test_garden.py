"""Checkpoints of the Model Garden; the stored one was made by tests/parity/tfm_garden.py."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from official.conversion import garden, tf1
from official.saving import model_folder
from official.utils.errors import UserError
from tests import GOLDEN
from tests.official.conversion import systems


@pytest.fixture
def source(tmp_path):
    """A copy to change."""
    shutil.copytree(GOLDEN / "garden", tmp_path / "source")
    systems.write_vocabulary(tmp_path / "source", "bert")
    return tmp_path / "source"


def test_a_pretrainer_answers_as_the_garden(source):
    converted = garden.read(source)
    model = model_folder.build(converted.config)
    for path, variable in model.variables_by_path().items():
        variable.assign(converted.variables[path])
    theirs = np.load(source / "outputs.npz")
    real = theirs["input_mask"] > 0
    assert not real.all()
    batch = {"token_ids": theirs["input_word_ids"], "padding_mask": real}
    encoded = systems.run(model.encoder, {**batch, "segment_ids": theirs["input_type_ids"]})
    states = np.asarray(encoded["sequence_output"])
    np.testing.assert_allclose(states[real], theirs["sequence_output"][real], atol=1e-5)
    fill, pair = model.objectives
    logits = systems.logits_of(fill, model, encoded)
    np.testing.assert_allclose(logits[real], theirs["mlm_logits"][real], atol=1e-5)
    np.testing.assert_allclose(pair.logits(encoded), theirs["next_sentence"], atol=1e-5)


def test_the_pooler_is_that_of_the_head_and_the_other_is_named(source):
    converted = garden.read(source)
    assert converted.config.encoder.activation == "gelu_tanh"
    assert (converted.config.encoder.num_heads, converted.config.encoder.num_layers) == (3, 2)
    left = {name.split("/.ATTR")[0] for name in converted.leftover}
    assert left == {f"encoder/layer_with_weights-6/{kind}" for kind in ("kernel", "bias")}


def test_readers_name_one_another(source, tmp_path):
    with pytest.raises(UserError, match="is a checkpoint of TF2's objects: use --source=garden"):
        tf1.read(source)
    other = tmp_path / "other"
    other.mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(other / "model.ckpt"), tensor_names=["a"], shape_and_slices=[""],
        tensors=[tf.zeros([2])],
    )  # fmt: skip
    with pytest.raises(UserError, match="not a checkpoint of TF2's objects. .*--source=tf1"):
        garden.read(other)


def test_objects_without_an_encoder_and_damaged_graphs(tmp_path):
    tf.train.Checkpoint(thing=tf.Variable([1.0])).save(tmp_path / "ckpt")
    with pytest.raises(UserError, match="has no encoder of the Model Garden .*save_counter, thing|"
                                        "has no encoder of the Model Garden .*thing, save_counter"):  # fmt: skip # noqa: E501
        garden.read(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(other / "ckpt"), tensor_names=[tf1.OBJECTS], shape_and_slices=[""],
        tensors=[tf.constant(b"\xff\xff\xff")],
    )  # fmt: skip
    with pytest.raises(UserError, match="the graph of objects is damaged"):
        garden.read(other)
