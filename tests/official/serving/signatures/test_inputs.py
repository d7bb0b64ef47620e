import contextlib

import numpy as np
import pytest
import tensorflow as tf

from official.serving.export import saved_model
from official.serving.signatures import table
from official.utils import paths
from official.utils.errors import UserError
from tests.official.commands import test_export

IDS = [[2, 7, 9, 3], [2, 8, 3, 0]]
MASK = [[1, 1, 1, 1], [1, 1, 1, 0]]
TYPES = [[0, 0, 1, 1], [0, 0, 0, 0]]
GIVEN = {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": TYPES}


def examples(**columns):
    """Serialized examples of int64 lists or of texts."""
    result = []
    for row in zip(*columns.values(), strict=True):
        features = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
            if isinstance(value, list)
            else tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
            for name, value in zip(columns, row, strict=True)
        }
        features = tf.train.Features(feature=features)
        result.append(tf.train.Example(features=features).SerializeToString())
    return tf.constant(result)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_what_the_model_garden_calls_them_gives_logits(tmp_path, kind):
    test_export.make(tmp_path / "model", kind)
    saved_model.export(tmp_path / "model", tmp_path / "saved")
    signatures = tf.saved_model.load(str(tmp_path / "saved")).signatures
    ours = signatures["tokens"](**{name: tf.constant(value) for name, value in GIVEN.items()})
    actual = signatures["serve"](**{name: tf.constant(value) for name, value in GIVEN.items()})
    assert actual.keys() == {"outputs"}

    def same(outputs, answers):
        if kind == "regression":
            np.testing.assert_allclose(outputs[:, 0], answers["score"], atol=1e-6)
        else:
            np.testing.assert_allclose(tf.nn.softmax(outputs), answers["probabilities"], atol=1e-6)
            assert abs(outputs.numpy().sum(axis=1) - 1).max() > 1e-3  # no probabilities

    same(actual["outputs"], ours)
    same(signatures["serve_examples"](examples=examples(**GIVEN))["outputs"], ours)
    # Of ids alone: padding is what has its id, and all is one segment.
    plain = signatures["tokens"](
        **{name: tf.constant(GIVEN[name]) for name in ("input_word_ids", "input_mask")},
        input_type_ids=tf.zeros([2, 4], tf.int32),
    )
    same(signatures["serve_examples"](examples=examples(input_word_ids=IDS))["outputs"], plain)
    texts = ["The cat sat.", "", b"a \xff mat"]
    raw = [t if isinstance(t, bytes) else t.encode() for t in texts]
    same(
        signatures["serve_text_examples"](examples=examples(text=raw))["outputs"],
        signatures["single"](text=tf.constant(raw)),
    )


@pytest.mark.slow
@pytest.mark.long
def test_pairs_are_examples_with_two_texts(tmp_path):
    test_export.make(tmp_path / "model", "regression", pair=True)
    saved_model.export(tmp_path / "model", tmp_path / "saved")
    signatures = tf.saved_model.load(str(tmp_path / "saved")).signatures
    first, second = [b"The cat sat.", b"a"], [b"on the mat", b"dog " * 30]
    actual = signatures["serve_text_examples"](examples=examples(text=first, text_b=second))
    expected = signatures["pair"](text=tf.constant(first), text_b=tf.constant(second))
    np.testing.assert_allclose(actual["outputs"][:, 0], expected["score"], atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="text_b"):
        signatures["serve_text_examples"](examples=examples(text=first))


def test_an_encoder_alone_has_none_of_them(tmp_path):
    test_export.make(tmp_path / "model", "bare")
    saved_model.export(tmp_path / "model", tmp_path / "saved")
    signatures = tf.saved_model.load(str(tmp_path / "saved")).signatures
    encoders = {"single", "pair", "tokens", "embed", "embed_tokens"}
    assert set(signatures) == {"serving_default", *encoders}


@pytest.mark.slow
def test_texts_of_a_request_have_a_largest_size(tmp_path):
    test_export.make(tmp_path / "model", "classification")
    saved_model.export(tmp_path / "model", tmp_path / "saved", max_bytes=20)
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures
    fits, longer = tf.constant(["a" * 20, "b"]), tf.constant(["b", "é" * 10 + "a"])
    both = served["pair"](text=fits, text_b=fits)
    served["single"](text=fits)
    served["single"](text=tf.constant([], tf.string))
    for inputs in ({"text": longer, "text_b": fits}, {"text": fits, "text_b": longer}):
        with pytest.raises(tf.errors.InvalidArgumentError, match="has more than 20 bytes: shorten"):
            served["pair"](**inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match="larger --max_bytes"):
        served["serve_text_examples"](examples=examples(text=[b"a", b"a" * 20]))
    _, signatures = table.make(*saved_model.restore(tmp_path / "model"))
    expected = signatures["pair"](fits, fits)
    np.testing.assert_allclose(both["probabilities"], expected["probabilities"], atol=1e-6)


@pytest.mark.parametrize(("most", "refused"), [(None, True), (0, False), (2_000_000, False)])
def test_the_largest_size_of_a_text_by_default(tmp_path, monkeypatch, most, refused):
    given = {}

    def save(server, folder, signatures):
        del server
        (paths.path(folder) / "saved_model.pb").touch()
        given.update(signatures)

    test_export.make(tmp_path / "model", "classification")
    monkeypatch.setattr(tf.saved_model, "save", save)
    monkeypatch.setattr(saved_model.graph_size, "shrink", lambda folder: None)
    saved_model.export(tmp_path / "model", tmp_path / "saved", max_bytes=most)
    assert given["serving_default"] is given["single"]
    text = tf.constant([" " * 1_000_001])
    with pytest.raises(tf.errors.InvalidArgumentError) if refused else contextlib.nullcontext():
        given["single"](text)


def test_a_negative_size_is_refused(tmp_path):
    test_export.make(tmp_path / "model", "classification")
    with pytest.raises(UserError, match="--max_bytes=-1: must be at least 0"):
        saved_model.export(tmp_path / "model", tmp_path / "saved", max_bytes=-1)
    assert not (tmp_path / "saved").exists()
