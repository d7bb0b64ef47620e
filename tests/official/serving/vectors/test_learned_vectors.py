"""Vectors that a model has learned to make: as in training, from the folder and from an export."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official.config.encoders import BilmConfig
from official.config.heads import Mix
from official.config.sentence_embedding import Projection, SentenceEmbeddingConfig
from official.conversion import huggingface
from official.modeling.model import Model
from official.saving import embedding_settings, model_folder
from official.serving.export import saved_model
from official.serving.signatures import table
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError
from tests import GOLDEN

CLOSE = dict(rtol=0, atol=1e-5)
TEXTS = ["The cat sat on a mat.", "", "dog " * 30, "a cat and a dog"]


def write(folder, encoder=None, **options):
    """Writes a model with random weights; returns the vectors that its evaluation compares."""
    bare = huggingface.read(GOLDEN / "hf_files" / "bare")
    encoder = encoder or bare.config.encoder
    objective = SentenceEmbeddingConfig(**options)
    config = configs.ResolvedConfig.of(bare.config, encoder=encoder, objectives=(objective,))
    model = Model(config)
    for path, variable in model.variables_by_path().items():
        given = bare.variables.get(path)
        variable.assign(
            np.random.default_rng(1).normal(0, 0.5, variable.shape) if given is None else given
        )
    variables = {path: np.asarray(v) for path, v in model.variables_by_path().items()}
    model_folder.write_new(config, bare.tokenizer, variables, folder)
    length = model_folder.ModelFolder.open(folder).max_length
    batch = pack_texts([tf.constant(TEXTS)], bare.tokenizer, length, encoder.text_layout)
    batch = {name: value[:, None] for name, value in batch.items()}
    ready = model.prepare({**batch, "example_weights": tf.ones(4)})
    return model.predictions(ready)["vectors"][:, 0].numpy()


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"pooling": "mean,last", "projection": Projection(size=5)}, 5),
        ({"pooling": "first", "normalize": False}, 12),
        ({"projection": Projection(size=5, keep=False)}, 12),
    ],
)
def test_vectors_are_those_of_the_training(options, size, tmp_path):
    expected = write(tmp_path / "model", **options)
    assert expected.shape == (4, size)
    loaded = official.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, **CLOSE)
    parts, kind, default = saved_model.restore(tmp_path / "model")
    signatures = table.make(parts, kind, default)[1]
    found = signatures["embed"](tf.constant(TEXTS))["vectors"]
    np.testing.assert_allclose(found, expected, **CLOSE)
    # Another pooling has no projection that was learned for it; neither has another layer.
    assert loaded.encode(TEXTS, pooling="max").shape == (4, 12)
    poolings = len(SentenceEmbeddingConfig(**options).poolings)
    assert loaded.encode(TEXTS, layer=0).shape == (4, 12 * poolings)


def test_vectors_of_an_elmo_are_of_its_mix(tmp_path):
    size = huggingface.read(GOLDEN / "hf_files" / "bare").config.encoder.vocab_size
    elmo = BilmConfig(
        vocab_size=size, tokens="words", num_layers=2, cell_size=9,
        projection_size=6, memory_length=0, initializer_range=0.3,
    )  # fmt: skip
    expected = write(tmp_path / "model", elmo, mix=Mix(), projection=Projection(size=5))
    assert expected.shape == (4, 5)
    np.testing.assert_allclose(official.load(tmp_path / "model").encode(TEXTS), expected, **CLOSE)
    parts, kind, default = saved_model.restore(tmp_path / "model")
    found = table.make(parts, kind, default)[1]["embed"](tf.constant(TEXTS))["vectors"]
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.slow
def test_settings_of_the_file_come_first(tmp_path):
    expected = write(tmp_path / "model", projection=Projection(size=5))
    file = embedding_settings.file(tmp_path / "model")
    file.write_text(json.dumps({"normalize": False, "prompts": {"query": "a cat "}}))
    loaded = official.load(tmp_path / "model")
    vectors = loaded.encode(TEXTS)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.abs(lengths - 1).max() > 0.1
    np.testing.assert_allclose(vectors / lengths, expected, **CLOSE)
    cut = loaded.encode(TEXTS, size=3, normalize=True)
    expected = vectors[:, :3] / np.linalg.norm(vectors[:, :3], axis=1, keepdims=True)
    np.testing.assert_allclose(cut, expected, **CLOSE)
    with pytest.raises(UserError, match="size: 6, and the vectors of this model have 5"):
        loaded.encode(TEXTS, size=6)
    file.write_text(json.dumps({"size": 2, "normalize": False}))
    parts, kind, default = saved_model.restore(tmp_path / "model")
    found = table.make(parts, kind, default)[1]["embed"](tf.constant(TEXTS))["vectors"]
    np.testing.assert_allclose(found, vectors[:, :2], **CLOSE)
    file.write_text(json.dumps({"size": 6}))
    parts, kind, default = saved_model.restore(tmp_path / "model")
    with pytest.raises(UserError, match="size: 6, and the vectors of this model have 5"):
        table.make(parts, kind, default)
    file.write_text(json.dumps({"normalize": False, "prompts": {"query": "a cat "}}))
    asked = loaded.encode(["and a dog"], prompt="query")
    np.testing.assert_allclose(asked, vectors[3:], **CLOSE)
    # So does its length before that of the training, in all places.
    (tmp_path / "model" / "task.json").write_text(json.dumps({"max_length": 16}))
    file.write_text(json.dumps({"normalize": False, "max_length": 6}))
    loaded = official.load(tmp_path / "model")
    cut = loaded.encode(TEXTS)
    assert np.abs(cut - vectors).max() > 0.1
    alike = loaded.encode(["the cat sat on", "", "dog " * 4, "a cat and a"])
    np.testing.assert_allclose(cut, alike, **CLOSE)
    parts, kind, default = saved_model.restore(tmp_path / "model")
    found = table.make(parts, kind, default)[1]["embed"](tf.constant(TEXTS))["vectors"]
    np.testing.assert_allclose(found, cut, **CLOSE)
    parts, kind, default = saved_model.restore(tmp_path / "model", max_length=16)
    found = table.make(parts, kind, default)[1]["embed"](tf.constant(TEXTS))["vectors"]
    np.testing.assert_allclose(found, loaded.encode(TEXTS, max_length=16), **CLOSE)
    huggingface.write(tmp_path / "model", tmp_path / "files", "best")
    written = json.loads((tmp_path / "files" / "sentence_bert_config.json").read_text())
    assert written["max_seq_length"] == 6
    file.write_text(json.dumps({"max_length": 25}))
    with pytest.raises(UserError, match="max_length: 25 is not from 4 to 24, the positions"):
        saved_model.restore(tmp_path / "model")
    file.write_text(json.dumps({"normalize": False, "prompts": {"query": "a cat "}}))
    config = model_folder.config_of(tmp_path / "model")
    found = embedding_settings.read(tmp_path / "model", config)
    assert (found.pooling, found.normalize) == (("mean",), False)
    assert dataclasses.replace(found, prompts={}).prompt(None) == ""
