"""The encoder of a model folder and its tokenizer as Keras layers, and the page about them."""

import json
import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import official
from official import tokenizers
from official.keras_layers.text import TextPreprocessor
from official.modeling.model import Model
from official.saving import model_folder, named_arrays
from official.utils.errors import UserError
from tests import ROOT, small

PAGE = ROOT / "docs" / "keras.md"
TEXTS = ["bada fife lalo", "", "mo", "nine \u4e2d bada bada lalo mo ta"]


def write(path):
    """A model folder with random weights."""
    tokenizer = tokenizers.load(small.tokenizer_folder(path.parent / "tokenizer"))
    config = small.config(encoder__num_layers=2)
    values = named_arrays.values(Model(config).variables_by_path())
    rng = np.random.default_rng(0)
    values = {name: x + 0.1 * rng.standard_normal(x.shape, x.dtype) for name, x in values.items()}
    model_folder.write_new(config, tokenizer, values, path)
    return path


def code(page=PAGE):
    """The code of the page: that of the TensorFlow backend, and that of JAX."""
    text = page.read_text(encoding="utf-8")
    return [
        "\n".join(re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE))
        for part in text.split("\n## JAX\n")
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("keras") / "model")


def test_vectors_are_those_of_the_model_folder(folder):
    encoder, preprocess = official.keras_encoder(folder, max_length=9)
    features = preprocess(TEXTS)
    states = encoder(**features)["sequence_output"]
    mean = keras.layers.GlobalAveragePooling1D()(states)
    model = official.load(folder)
    model.max_length = model.embedder.max_length = 9
    np.testing.assert_allclose(mean, model.encode(TEXTS), rtol=0, atol=1e-5)
    pairs = preprocess(TEXTS, TEXTS[::-1])
    assert pairs["token_ids"].shape == (4, 9)
    assert pairs["segment_ids"].numpy()[1].tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0]
    second = official.keras_encoder(folder, name="other", dtype="mixed_bfloat16")[0]
    for mine, theirs in zip(second.weights, encoder.weights, strict=True):
        assert mine.path.split("/", 1)[1] == theirs.path.split("/", 1)[1]
        np.testing.assert_array_equal(mine, theirs)
    assert second.compute_dtype == "bfloat16"


@pytest.mark.parametrize("layout", ["cls_first", "cls_last", "no_cls"])
def test_rows_are_padded_on_the_side_of_their_layout(folder, layout):
    tokenizer = tokenizers.load(folder / "tokenizer")
    short, long = (
        TextPreprocessor(tokenizer, max_length=12, layout=layout, pad=pad)(TEXTS)
        for pad in (False, True)
    )
    width = short["token_ids"].shape[1]
    own = slice(-width, None) if layout == "cls_last" else slice(width)
    for name, values in long.items():
        assert values.shape == (4, 12) and values.dtype == short[name].dtype
        np.testing.assert_array_equal(values[:, own], short[name])
    padding = ~long["padding_mask"].numpy()
    assert padding.sum() > 4 * (12 - width)
    assert set(long["token_ids"].numpy()[padding]) == {tokenizer.pad_id}
    assert set(long["segment_ids"].numpy()[padding]) == {4 if layout == "cls_last" else 0}


def test_a_saved_layer_has_its_tokenizer(folder):
    _, preprocess = official.keras_encoder(folder, max_length=12)
    config = keras.saving.serialize_keras_object(preprocess)
    again = keras.saving.deserialize_keras_object(config)
    assert again.tokenizer.fingerprint == preprocess.tokenizer.fingerprint
    for name, values in again(TEXTS).items():
        np.testing.assert_array_equal(values, preprocess(TEXTS)[name])
    files = {**config["config"]["files"], "../vocab.txt": ""}
    with pytest.raises(UserError, match=r"'\.\./vocab\.txt': not the name of a file"):
        TextPreprocessor.from_config({**config["config"], "files": files})


def test_what_cannot_work_is_said(folder):
    encoder, preprocess = official.keras_encoder(folder)
    with pytest.raises(UserError, match=r"preprocess: give a list of texts, such as \[text\]"):
        preprocess("one text")
    with pytest.raises(UserError, match="max_length: 33 is not from 4 to 32"):
        official.keras_encoder(folder, max_length=33)
    with pytest.raises(UserError, match="not a model folder"):
        official.keras_encoder(folder / "tokenizer")
    assert preprocess(["bada"], None)["token_ids"].shape == (1, 4) and encoder.built


def test_an_encoder_without_its_pooler(folder):
    whole, preprocess = official.keras_encoder(folder)
    states = official.keras_encoder(folder, pooler=False)[0]
    features = preprocess(TEXTS)
    outputs = states(**features)
    assert "pooled_output" not in outputs and len(whole.weights) == len(states.weights) + 2
    expected = whole(**features)["sequence_output"]
    np.testing.assert_array_equal(outputs["sequence_output"], expected)


@pytest.mark.slow
@pytest.mark.long
def test_the_page_runs_as_it_stands(tmp_path, monkeypatch):
    write(tmp_path / "run" / "pretrained")
    monkeypatch.chdir(tmp_path)
    space = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # of Keras
        exec(compile(code()[0], str(PAGE), "exec"), space)
    # What is saved gives the same again.
    features = space["preprocess"](space["texts"])
    text_model = keras.models.load_model("text_model.keras")
    text = tf.constant(["a good film"])
    np.testing.assert_allclose(text_model(text), space["served"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(space["text_model"](text), space["served"], rtol=0, atol=1e-6)
    frozen = keras.models.load_model("frozen.keras")
    np.testing.assert_array_equal(frozen(features), space["model"](features))
    names = {v.path.split("/")[1] for v in frozen.get_layer("encoder").trainable_weights}
    assert names == {"layer_1"}
    towers = keras.models.load_model("towers.keras")
    np.testing.assert_array_equal(towers(space["pairs"]), space["towers"](space["pairs"]))
    assert len(space["history"].history["loss"]) == 3 and space["again"] is not None


def test_every_kind_of_tokenizer_is_saved(tmp_path):
    golden = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())
    merges = [tuple(line.split(" ")) for line in golden["merges.txt"].splitlines()[1:]]
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\n")
    kinds = [
        tokenizers.ByteBPE(golden["vocab.json"], merges),
        tokenizers.load(tmp_path),
        tokenizers.load(ROOT / "tests" / "golden" / "earlier" / "xlnet" / "model" / "tokenizer"),
    ]
    for number, tokenizer in enumerate(kinds):
        preprocess = TextPreprocessor(tokenizer, max_length=9)
        config = keras.saving.serialize_keras_object(preprocess)
        again = keras.saving.deserialize_keras_object(json.loads(json.dumps(config)))
        expected, found = preprocess(TEXTS), again(TEXTS)
        assert expected.keys() == found.keys()
        assert ("character_ids" in found) == (number == 1)
        for name, values in found.items():
            np.testing.assert_array_equal(values, expected[name])


@pytest.mark.slow
@pytest.mark.long
def test_a_saved_model_of_raw_text_gives_the_vectors_of_the_folder(tmp_path):
    """Of XLNet, with SentencePiece, padding on the left and a memory."""
    folder = ROOT / "tests" / "golden" / "earlier" / "xlnet" / "model"
    encoder, preprocess = official.keras_encoder(folder)
    text = keras.Input((), dtype="string")
    states = encoder(**preprocess(text))["sequence_output"]
    model = keras.Model(text, keras.layers.GlobalAveragePooling1D()(states))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    expected = official.load(folder).encode(TEXTS)
    np.testing.assert_allclose(again(tf.constant(TEXTS)), expected, rtol=0, atol=1e-5)
