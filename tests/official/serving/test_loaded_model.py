import dataclasses
import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import official
from official import config, tokenizers
from official.conversion import converted_model, huggingface
from official.saving import checkpoints, model_folder
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "hf_files"
TEXTS = ["The cat sat on a mat.", "", "dog " * 60, "a", "A quickly running dog, under the tree!"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "pretraining"
    converted_model.write(huggingface.read(GOLDEN / "pretraining"), folder)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    """A copy to spoil."""
    shutil.copytree(original, tmp_path / "model")
    return tmp_path / "model"


def by_hand(loaded, text):
    """Encoder outputs of one text alone."""
    ids = loaded.tokenizer.encode([text])[0][: loaded.max_length - 2]
    ids = [loaded.tokenizer.cls_id, *ids, loaded.tokenizer.sep_id]
    encoded = loaded.model.encode({"token_ids": np.array([ids], np.int32)})
    return {name: np.asarray(value)[0] for name, value in encoded.items()}


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_encode_does_not_depend_on_what_else_is_in_the_batch(original, batch_size):
    loaded = official.load(original)
    alone = [by_hand(loaded, text) for text in TEXTS]
    for pooling, expected in {
        "mean": [one["sequence_output"].mean(axis=0) for one in alone],
        "first": [one["sequence_output"][0] for one in alone],
        "last": [one["sequence_output"][-1] for one in alone],
        "pooled": [one["pooled_output"] for one in alone],
    }.items():
        vectors = loaded.encode(TEXTS, batch_size=batch_size, pooling=pooling)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_long_texts_are_cut_at_the_length_of_training(original, folder):
    assert official.load(original).max_length == 24
    (folder / "task.json").write_text(json.dumps({"max_length": 7, "pair": False}))
    loaded = official.load(folder)
    assert loaded.max_length == 7
    five, six, four = loaded.encode(["dog " * 5, "dog " * 6, "dog " * 4])
    np.testing.assert_allclose(five, six, atol=1e-5)
    assert abs(five - four).max() > 1e-3


def test_no_texts_no_vectors(original):
    assert official.load(original).encode([]).shape == (0, 12)


def test_what_encode_cannot_do_is_refused(original):
    loaded = official.load(original)
    with pytest.raises(UserError, match=r"give a list of texts, such as \[text\]"):
        loaded.encode("a text")
    with pytest.raises(UserError, match="pooling: 'median' is not one of mean, first, last"):
        loaded.encode(["a text"], pooling="median")
    with pytest.raises(UserError, match="batch_size: 0 is less than 1"):
        loaded.encode(["a text"], batch_size=0)


def test_float32_is_float32(folder):
    """A GPU that has TF32 would compute products with 10 bits of mantissa."""
    tf.config.experimental.enable_tensor_float_32_execution(True)
    official.load(folder)
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def test_import_is_light():
    code = "import official, sys; print([m for m in ('tensorflow', 'keras') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_checkpoint_is_named_by_step_or_place(folder):
    variables = checkpoints.load_variables(folder)
    variables["encoder/pooler/bias"] = variables["encoder/pooler/bias"] + 1
    checkpoints.save(folder, 5, variables, {})

    def bias(which):
        return model_folder.restore(folder, which)[2].encoder.pooler.bias.numpy()

    np.testing.assert_array_equal(bias("last"), bias("0") + 1)
    np.testing.assert_array_equal(bias("last"), bias("5"))
    np.testing.assert_array_equal(bias("0"), bias(str(folder / "checkpoints" / "step-00000000")))


def test_what_is_no_model_folder_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match=r"nowhere: not a model folder: there is no config\.yaml"):
        official.load(tmp_path / "nowhere")
    for number in (1, 2):  # of a run in phases that was stopped
        phase = model_folder.phase_folder(tmp_path / "run", number)
        phase.mkdir(parents=True)
        (phase / "config.yaml").touch()
    with pytest.raises(
        UserError, match=r"run: not a model folder: .* name .*run/phase_2, or train"
    ):
        official.load(tmp_path / "run")
    with pytest.raises(UserError, match=r"not a model folder: there is no config\.yaml in it"):
        official.load(GOLDEN)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint in it"):
        official.load(folder)


@pytest.mark.slow
def test_shapes_take_no_memory_later_either(original):
    settings = config.load(original)
    large = dataclasses.replace(settings.encoder, vocab_size=10**12)
    assert (10**12, settings.encoder.hidden_size) in model_folder.shapes(
        dataclasses.replace(settings, encoder=large)
    ).values()
    with keras.StatelessScope():  # gives values to all variables that wait for one
        pass


def test_another_tokenizer_is_refused(folder):
    tokenizer = tokenizers.load(folder / "tokenizer")
    tokenizers.WordPiece([*tokenizer.pieces, "more"], tokenizer.lower_case).save(
        folder / "tokenizer"
    )
    with pytest.raises(UserError, match=r"tokenizer has 36 pieces, but encoder\.vocab_size .* 35"):
        official.load(folder)


def test_weights_of_another_config_are_refused(folder):
    path = folder / "config.yaml"
    config.save(config.load(path, ["encoder.num_layers=3"]), path)
    with pytest.raises(UserError, match=r"has no encoder/layer_2/.* belong to another config"):
        official.load(folder)
