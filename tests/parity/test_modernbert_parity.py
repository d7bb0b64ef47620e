"""ModernBERT against transformers, computed anew: long rows in blocks, packed rows, gradients."""

import json

import numpy as np
import pytest
import tensorflow as tf

from official.conversion import converted_model, huggingface, mapping, modernbert
from official.saving import model_folder
from tests.official.conversion import systems

NAMES = ("wide", "deep", "biases")


@pytest.fixture(scope="module")
def base(hf, tmp_path_factory):
    """The models of transformers, and our model folder of each."""
    parent = tmp_path_factory.mktemp("modernbert")
    hf.run("hf_modernbert.py", parent)
    for name in NAMES:
        systems.write_vocabulary(parent / name, "modernbert")
        converted_model.write(huggingface.read(parent / name), parent / f"{name}-model")
    return parent


@pytest.mark.parametrize("name", NAMES)
def test_states_logits_and_gradients(base, name):
    config, _, model = model_folder.restore(base / f"{name}-model")
    theirs = np.load(base / name / "outputs.npz")
    real, (head,) = theirs["real"], model.objectives
    batch = {"token_ids": tf.constant(theirs["ids"], tf.int32), "padding_mask": tf.constant(real)}
    with tf.GradientTape() as tape:
        states = model.encode(batch)["sequence_output"]
        logits = head.logits(tf.reshape(states, (-1, states.shape[-1])), model.encoder)
        loss = tf.reduce_sum(tf.reshape(logits, theirs["logits"].shape) * theirs["factors"])
    np.testing.assert_allclose(states[real], theirs["states"][real], rtol=0, atol=1e-5)
    logits = tf.reshape(logits, theirs["logits"].shape)
    np.testing.assert_allclose(logits[real], theirs["logits"][real], rtol=0, atol=1e-5)
    variables = model.variables_by_path()
    found = tape.gradient(loss, list(variables.values()))
    found = {
        path: tf.convert_to_tensor(g).numpy() for path, g in zip(variables, found, strict=True)
    }
    rows = modernbert.SYSTEM.rows(config.encoder, ["masked_lm"])
    for tensor, ours in mapping.take_out(rows, found).items():
        expected = theirs[f"gradient/{tensor}"]
        largest = np.abs(expected).max()
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4 * largest, err_msg=tensor)


@pytest.mark.parametrize("name", NAMES)
def test_packed_rows_are_texts_alone(base, name):
    model = model_folder.restore(base / f"{name}-model")[2]
    theirs = np.load(base / name / "outputs.npz")
    places = np.arange(theirs["ids"].shape[1])
    parts = np.searchsorted(theirs["bounds"][1:, 0], places, side="right")
    starts = theirs["bounds"][parts, 0]
    batch = {
        "token_ids": tf.constant(theirs["ids"][2:], tf.int32),
        "part_ids": tf.constant(parts[None], tf.int32),
    }
    for more in ({}, {"positions": tf.constant((places - starts)[None], tf.int32)}):
        states = model.encode(batch | more)["sequence_output"]
        np.testing.assert_allclose(states, theirs["packed"], rtol=0, atol=1e-5)


def test_transformers_reads_what_is_written(hf, base):
    for name in NAMES:
        huggingface.write(base / f"{name}-model", base / f"{name}_back", "last")
    hf.run("hf_modernbert.py", base)
    for name in NAMES:
        before = np.load(base / name / "outputs.npz")
        after = np.load(base / f"{name}_back" / "again.npz")["logits"]
        np.testing.assert_array_equal(after[before["real"]], before["logits"][before["real"]])


def test_configs_of_transformers_5(hf5, base):
    """It lists the kind of each layer, and theta in `rope_parameters`."""
    hf5.run("hf5_modernbert.py", base, *NAMES)
    for name in NAMES:
        written = json.loads((base / f"{name}_5" / "config.json").read_text())
        assert "layer_types" in written and "global_rope_theta" not in written
        systems.write_vocabulary(base / f"{name}_5", "modernbert")
        read, before = (huggingface.read(base / folder) for folder in (f"{name}_5", name))
        assert read.config.encoder == before.config.encoder
        assert read.variables.keys() == before.variables.keys()
        for path, array in before.variables.items():
            np.testing.assert_array_equal(read.variables[path], array, err_msg=path)
