"""A model of static vectors: encoded, searched, exported and trained as any other encoder.

Shapes: D size of a vector.
"""

import numpy as np
import pytest
import tensorflow as tf

import official
from official import tokenizers
from official.config.encoders import StaticConfig
from official.config.sentence_embedding import SentenceEmbeddingConfig
from official.saving import metrics_log, model_folder, static_vectors
from official.serving.export import saved_model
from official.serving.signatures import table
from official.serving.vectors import embedder
from official.utils import strict
from tests import GOLDEN, commands, embedding_tasks

D = 6
TEXTS = ["The cat sat on a mat.", "", "猫 猫", "dog 猫 dog cat", "a cat and a dog " * 150]
CLOSE = dict(rtol=0, atol=1e-5)


def write(folder):
    """A model with random vectors."""
    tokenizer = tokenizers.load(GOLDEN / "hf_files" / "bare")
    rows = np.random.default_rng(0).normal(1, 1, (tokenizer.vocab_size, D)).astype(np.float32)
    encoder = StaticConfig(
        vocab_size=len(rows), hidden_size=D, skipped_ids=tuple(tokenizer.special_ids)
    )
    model_folder.write_new(
        static_vectors.config_of("static", encoder, normalize=True),
        tokenizer,
        {static_vectors.TABLE: rows},
        folder,
        embedding=strict.to_dict(static_vectors.settings_of(tokenizer, normalize=True)),
    )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("static") / "model")


def expected(model, texts):
    """The vectors of texts by a loop."""
    rows, unknown = model.model.encoder.table.table.numpy(), model.tokenizer.unk_id
    vectors = np.zeros((len(texts), rows.shape[1]))
    for vector, text in zip(vectors, texts, strict=True):
        ids = [i for i in model.tokenizer.encode([text])[0][:512] if i != unknown]
        if ids:
            vector += rows[ids].mean(axis=0)
            vector /= np.linalg.norm(vector)
    return vectors


def test_texts_have_the_means_of_their_pieces(folder):
    model = official.load(folder)
    wanted = expected(model, TEXTS)
    np.testing.assert_allclose(np.linalg.norm(wanted, axis=1), [1, 0, 0, 1, 1], atol=1e-9)
    for size in (1, 32):
        np.testing.assert_allclose(model.encode(TEXTS, batch_size=size), wanted, **CLOSE)
    assert model.embedder.cut == 2
    np.testing.assert_allclose(
        official.load(folder, precision="bfloat16").encode(TEXTS), wanted, atol=0.01
    )
    (tokens,) = model.tokens(TEXTS[:1])
    np.testing.assert_allclose(tokens.vectors.mean(0) / np.linalg.norm(tokens.vectors.mean(0)),
                               wanted[0], **CLOSE)  # fmt: skip
    # An empty text is no hit of a query.
    found, scores = model.search(["cat"], TEXTS, top_k=5)
    assert set(found[0, -2:]) == {1, 2} and np.all(np.isneginf(scores[0, -2:]))
    with pytest.raises(ValueError, match="pooling: mean: encoder.type: static pools texts itself"):
        SentenceEmbeddingConfig().check_encoder(model.config.encoder)


def test_a_batch_has_any_number_of_texts_up_to_its_positions(folder, monkeypatch):
    texts = ["cat " * n for n in (1, 30, 2, 9, 9, 40)]
    wanted = expected(official.load(folder), texts)
    for positions, sizes in ((300, [6]), (40, [3, 1, 1, 1])):
        monkeypatch.setattr(embedder, "STATIC_POSITIONS", positions)
        model = official.load(folder)
        ids = model.tokenizer.encode(texts)
        lengths = np.array([len(each) for each in ids])
        groups = model.embedder._groups(lengths, 2, 514)
        assert [len(rows) for rows in groups] == sizes
        np.testing.assert_allclose(model.encode(texts, batch_size=2), wanted, **CLOSE)


def test_signatures_have_the_vectors(folder):
    model = official.load(folder)
    wanted = expected(model, TEXTS)
    parts, kind, default = saved_model.restore(folder)
    found = table.make(parts, kind, default)[1]["embed"](tf.constant(TEXTS))["vectors"]
    np.testing.assert_allclose(found, wanted, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_saved_models_have_the_vectors(folder, tmp_path, precision):
    wanted = expected(official.load(folder), TEXTS)
    commands.run("official.export", f"--model_dir={folder}", f"--output={tmp_path / 'export'}",
                 f"--precision={precision}", status=0)  # fmt: skip
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["embed"]
    name = next(iter(served.structured_input_signature[1]))
    found = served(**{name: tf.constant(TEXTS)})["vectors"]
    np.testing.assert_allclose(found, wanted, atol=1e-5 if precision == "float32" else 0.02)


@pytest.mark.slow
def test_training_from_pairs(tmp_path):
    """From random vectors; the tokenizer of the data says which tokens do not count."""
    embedding_tasks.shards(tmp_path / "triples", embedding_tasks.TRIPLES, train=200, validation=24)
    config = embedding_tasks.config(
        encoder={"type": "static", "hidden_size": 16, "initializer_range": 1.0},
        objectives=[{"type": "sentence_embedding", "pooling": "pooled"}],
        recipe__steps=30, recipe__batch_size=16, recipe__distinct_texts=True,
        recipe__optimizer={"learning_rate": 0.1}, recipe__init_weights="none",
        recipe__report_every=10,
    )  # fmt: skip
    official.train(config, tmp_path / "triples", tmp_path / "run", report=lambda line: None)
    model = official.load(tmp_path / "run")
    assert model.config.encoder.skipped_ids == model.tokenizer.special_ids
    first, *_, last = (e for e in metrics_log.read(tmp_path / "run") if e.split == "train")
    assert last.metrics["loss"] < 0.7 * first.metrics["loss"]
    texts = ["", *map(str, embedding_tasks.rows(3, 1)[0])]
    np.testing.assert_allclose(model.encode(texts), expected(model, texts), **CLOSE)
