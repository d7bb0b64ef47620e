"""ELMo in Python and as a SavedModel, beside the encoder run by hand on one text at a time."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tokenizers
from official.config.encoders import BilmConfig
from official.config.heads import ClassificationConfig, Mix
from official.modeling.model import Model
from official.saving import checkpoints, named_arrays
from official.serving.export import saved_model
from official.serving.vectors import vector_files
from tests import sentences
from tests.official.commands.test_export import ask
from tests.official.serving.test_odd_strings import ODD
from tests.official.tokenizers.test_word_characters import ids_by_hand

TEXTS = ["w1 né  w2", "", " \t", "w3 " * 20, "東京 ́w4 " + "z" * 10_000, "w9"]
LENGTH = 12
SIGNATURES = {"single", "pair", "default", "tokens", "carry", "serving_default"}
ENCODER = BilmConfig(
    vocab_size=len(sentences.VOCABULARY),
    character_size=4,
    filters=((1, 4), (2, 6)),
    highway_layers=1,
    cell_size=7,
    projection_size=5,
    memory_length=0,
)
HEAD = ClassificationConfig(labels=("a", "b"), pooling="mean", mix=Mix())


def write(folder, head=None, split_punctuation=False, **encoder):
    """Writes a model with random weights."""
    config = configs.Config(
        "elmo",
        encoder=dataclasses.replace(ENCODER, **encoder),
        segments=configs.Segments(max_length=LENGTH) if head is None else None,
        objectives=() if head is None else (head,),
    )
    model = Model(config)
    rng = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(0.5 * rng.standard_normal(variable.shape))
    folder.mkdir()
    tokenizers.Characters(sentences.VOCABULARY, split_punctuation).save(folder / "tokenizer")
    configs.save(config, folder / "config.yaml")
    checkpoints.save(folder, 1, named_arrays.values(model.variables_by_path()), {})
    return folder


@pytest.fixture(scope="module", params=["characters", "words"])
def folder(request, tmp_path_factory):
    return write(tmp_path_factory.mktemp("elmo") / "model", tokens=request.param)


@pytest.fixture(scope="module")
def saved(folder):
    """The SavedModel of `folder`."""
    assert saved_model.export(folder, folder.with_name("saved")) == ("single", LENGTH)
    return folder.with_name("saved")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A model with a mix of layers and its signatures."""
    folder = write(tmp_path_factory.mktemp("classifier") / "model", HEAD)
    saved_model.export(folder, folder.with_name("saved"))
    return official.load(folder), tf.saved_model.load(folder.with_name("saved")).signatures


def by_hand(loaded, text):
    """The words of a text, and all layers of the encoder for them alone with their marks."""
    words = text.split()[: loaded.max_length - 2]
    marks = [[259, mark, 260] + [261] * 47 for mark in (257, 258)]
    rows = [marks[0], *(ids_by_hand(word.encode()) for word in words), marks[1]]
    ids = [0, *(sentences.number(word) for word in words), 1]
    batch = {
        "character_ids": np.array([rows], np.int32),
        "token_ids": np.array([ids], np.int32),
    }
    encoded = loaded.model.encode(batch, output_all=True)
    return words, np.stack([np.asarray(x)[0] for x in encoded["hidden_states"]])  # [3, T, 10]


@pytest.mark.slow
def test_vectors_in_python(folder):
    loaded = official.load(folder)
    pooled, tokens = loaded.encode(TEXTS, layer="all"), loaded.tokens(TEXTS, layer="all")
    for text, vector, own in zip(TEXTS, pooled, tokens, strict=True):
        words, states = by_hand(loaded, text)
        # The marks of the sentence are no words.
        mean = states[:, 1:-1].mean(axis=1) if words else np.zeros((3, 10))
        np.testing.assert_allclose(vector, mean, atol=1e-5)
        np.testing.assert_allclose(own.vectors, states[:, 1:-1].transpose(1, 0, 2), atol=1e-5)
        assert [text[a:b] for a, b in zip(own.starts, own.ends, strict=True)] == words
    np.testing.assert_allclose(loaded.encode(TEXTS, layer=1, batch_size=4), pooled[:, 1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_signatures_of_words(folder, saved):
    loaded, served = official.load(folder), tf.saved_model.load(saved).signatures
    assert set(served) == SIGNATURES
    outputs = served["default"](text=tf.constant(TEXTS))
    words = [text.split() for text in TEXTS]
    padded = [[*each, *[""] * (20 - len(each))] for each in words]
    given = {"tokens": tf.constant(padded), "sequence_len": tf.constant([len(w) for w in words])}
    again = served["tokens"](**given)
    vectors = served["single"](text=tf.constant(TEXTS))["sequence_output"]
    assert outputs["word_emb"].shape == (6, 10, 5) and outputs["elmo"].shape == (6, 10, 10)
    for row, text in enumerate(TEXTS):
        words, states = by_hand(loaded, text)
        own, count = states[:, 1:-1], len(words)
        expected = {
            "word_emb": own[0, :, :5],
            "lstm_outputs1": own[1],
            "lstm_outputs2": own[2],
            "elmo": own.mean(axis=0),
        }
        for name, value in expected.items():
            np.testing.assert_allclose(outputs[name][row, :count], value, atol=1e-5, err_msg=name)
            assert not outputs[name][row, count:].numpy().any()
        mean = own.mean(axis=(0, 1)) if count else np.zeros(10)
        np.testing.assert_allclose(outputs["default"][row], mean, atol=1e-5)
        np.testing.assert_allclose(vectors[row, : count + 2], states[2], atol=1e-5)
    for name, value in outputs.items():
        np.testing.assert_allclose(again[name], value, atol=1e-5, err_msg=name)
    # `encode` gives the same vectors.
    np.testing.assert_allclose(loaded.encode(TEXTS), outputs["default"], atol=1e-5)
    np.testing.assert_allclose(loaded.encode(TEXTS, layer="mix"), outputs["default"], atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_a_state_is_carried_in_python_in_files_and_by_a_signature(
    folder, saved, tmp_path, monkeypatch
):
    """Row by row in the signature; through the whole file where it is read in several chunks."""
    loaded, texts = official.load(folder), [*TEXTS, "w1 w2"]
    tokens = loaded.tokens(texts, layer="all", state="carry")
    vectors = loaded.encode(texts, state="carry")
    for own, vector, text in zip(tokens, vectors, texts, strict=True):
        mean = own.vectors.mean(axis=(0, 1)) if text.split() else np.zeros(10)
        np.testing.assert_allclose(vector, mean, atol=1e-5)
    fresh = loaded.encode(texts)
    assert np.abs(vectors[0] - fresh[0]).max() < 1e-5 < 1e-2 < np.abs(vectors[-1] - fresh[-1]).max()
    monkeypatch.setattr(vector_files, "CHUNK", 2)
    path = tmp_path / "vectors.npy"
    vector_files.write(loaded.embedder, texts, path, state="carry", report=str)
    np.testing.assert_allclose(np.load(path), vectors, atol=1e-6)
    path = tmp_path / "tokens.jsonl"
    options = {"tokens": True, "layer": "all", "state": "carry"}
    vector_files.write(loaded.embedder, texts, path, report=str, **options)
    for line, own in zip(path.read_text().splitlines(), tokens, strict=True):
        found = [token["vector"] for token in json.loads(line)["tokens"]]
        np.testing.assert_allclose(np.reshape(found, own.vectors.shape), own.vectors, atol=1e-6)
    carry = tf.saved_model.load(saved).signatures["carry"]
    state, others = tf.zeros([2, 4, 12]), loaded.tokens(texts[::-1], layer="all", state="carry")
    for row, pair in enumerate(zip(tokens, others, strict=True)):
        outputs = carry(text=tf.constant([texts[row], texts[-1 - row]]), state=state)
        state = outputs["state"]
        for b, own in enumerate(pair):
            count = len(own.pieces)
            for layer in (1, 2):
                ours = outputs[f"lstm_outputs{layer}"][b, :count]
                np.testing.assert_allclose(ours, own.vectors[:, layer], atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_a_classifier_reads_texts_of_different_lengths(classifier):
    loaded, served = classifier
    assert set(served) == SIGNATURES
    probabilities = served["serving_default"](text=tf.constant(TEXTS))["probabilities"].numpy()
    head = loaded.model.objectives[0]
    weights = np.exp(head.mix.layer_weights) / np.exp(head.mix.layer_weights).sum()
    kernel, bias = (v.numpy() for v in head.output_projection.variables)
    for row, text in enumerate(TEXTS):
        _, states = by_hand(loaded, text)
        mixed = head.mix.gamma.numpy() * np.einsum("k,ktd->d", weights, states) / states.shape[1]
        chances = np.exp(mixed @ kernel + bias)
        np.testing.assert_allclose(probabilities[row], chances / chances.sum(), atol=1e-5)
    labels = [label.label for label in loaded.classify(TEXTS)]
    assert labels == [("a", "b")[i] for i in probabilities.argmax(axis=1)]


@pytest.mark.slow
def test_a_layer_mix_is_served(classifier):
    loaded, served = classifier
    outputs = served["default"](text=tf.constant(TEXTS))
    mix = loaded.model.objectives[0].mix
    weights = np.exp(mix.layer_weights) / np.exp(mix.layer_weights).sum()
    assert np.ptp(weights) > 0.1
    for row, text in enumerate(TEXTS):
        words, states = by_hand(loaded, text)
        mixed = mix.gamma.numpy() * np.einsum("k,ktd->td", weights, states[:, 1:-1])
        count = len(words)
        np.testing.assert_allclose(outputs["elmo"][row, :count], mixed, atol=1e-5)
        assert not outputs["elmo"][row, count:].numpy().any()
        mean = mixed.mean(axis=0) if count else np.zeros(10)
        np.testing.assert_allclose(outputs["default"][row], mean, atol=1e-5)
    np.testing.assert_allclose(loaded.encode(TEXTS), outputs["default"], atol=1e-5)
    np.testing.assert_allclose(
        loaded.encode(TEXTS[:1], state="carry"), outputs["default"][:1], atol=1e-5
    )


def test_a_head_without_a_mix_has_no_vectors_of_words(tmp_path):
    folder = write(tmp_path / "model", dataclasses.replace(HEAD, mix=None))
    saved_model.export(folder, tmp_path / "saved")
    served = tf.saved_model.load(tmp_path / "saved").signatures
    assert set(served) == {"single", "pair", "serving_default"}


@pytest.mark.slow
def test_odd_strings_without_this_project(folder, saved, tmp_path):
    raw = [s if isinstance(s, bytes) else s.encode() for s in ODD]
    (served,) = ask(saved, [("default", {"text": raw})], tmp_path)
    own = official.load(folder).tokens([s.decode("utf-8", "replace") for s in raw], layer="all")
    assert max(len(tokens.pieces) for tokens in own) > 2
    for row, tokens in enumerate(own):
        count = len(tokens.pieces)
        layers = [np.tile(served["word_emb"][row], 2), served["lstm_outputs1"][row]]
        layers = np.stack([*layers, served["lstm_outputs2"][row]], axis=1)  # [T, 3, 10]
        np.testing.assert_allclose(layers[:count], tokens.vectors, atol=1e-5, err_msg=raw[row])
        assert not layers[count:].any()
        mean = tokens.vectors.mean(axis=(0, 1)) if count else np.zeros(10)
        np.testing.assert_allclose(served["default"][row], mean, atol=1e-5)


def test_no_texts(folder):
    loaded = official.load(folder)
    assert loaded.encode([]).shape == (0, 10) and loaded.tokens([]) == []
