"""Models for ONNX give what the model itself gives."""

import json

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from official import tokenizers
from official.modeling.layers import local_attention
from official.serving.export import onnx as export
from official.utils.errors import UserError
from tests import commands
from tests.official.serving.export.test_litert import CLASSIFICATION, MODELS, batch, expected
from tests.official.serving.test_predictor import BERT, XLNET, load

CRF = {"type": "token_classification", "labels": ["O", "B-X", "I-X"], "crf": True}
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("deberta", "modernbert")]
LABELED = {"type": "multi_label", "labels": ["a", "b"], "thresholds": [0.5, 0.4]}
OWN = {"crf": (CRF, BERT), "multi_label": (LABELED, BERT)}
NAMES = ("roberta", "xlnet", *OWN, "bare", *LONG)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_outputs(tmp_path, monkeypatch, name):
    """ONNX Runtime runs the files, with other shapes than the export has seen."""
    monkeypatch.setattr(local_attention, "_SMALLEST", 3)  # blocks of rows as short as these
    objective, encoder = MODELS.get(name) or OWN[name]
    loaded = load(tmp_path / "model", *[objective] * bool(objective), encoder=encoder)
    signatures, length = export.export(tmp_path / "model", tmp_path / "onnx")
    assert length == 16
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "tokens.onnx")
    assert [given.name for given in session.get_inputs()] == list(batch(2, 3))
    names = [output.name for output in session.get_outputs()]
    for rows, length in ((3, 7), (6, 16)):
        given = batch(rows, length, left=encoder is XLNET)
        wanted = expected(loaded, given, "tags" if name == "crf" else name)
        outputs = dict(zip(names, session.run(names, given), strict=True))
        assert outputs.keys() - {"label", "has_label"} == wanted.keys()
        if name == "multi_label":
            has = np.asarray(wanted["probabilities"]) >= LABELED["thresholds"]
            assert 0 < has.mean() < 1
            np.testing.assert_array_equal(outputs["has_label"], has)
        mask = given["input_mask"].astype(bool)
        for key, value in wanted.items():
            value = np.asarray(value)
            assert outputs[key].shape == value.shape and np.ptp(value) > 0.01
            if value.shape[:2] == mask.shape:  # what padding gives means nothing
                outputs[key], value = outputs[key][mask], value[mask]
            np.testing.assert_allclose(outputs[key], value, rtol=0, atol=1e-5)
    saved = tokenizers.load(tmp_path / "onnx" / "tokenizer")
    assert saved.fingerprint == loaded.tokenizer.fingerprint
    assert signatures == (["tokens", "embed_tokens"] if name == "bare" else ["tokens"])
    assert (tmp_path / "onnx" / export.CRF).exists() == (name == "crf")
    if name == "crf":
        chain = json.loads((tmp_path / "onnx" / export.CRF).read_text())
        assert chain.pop("labels") == CRF["labels"]
        for part, values in chain.items():
            actual = getattr(loaded.model.objectives[0].crf, part)
            np.testing.assert_array_equal(np.float32(values), actual)


def test_blocks_of_rows_of_any_length(monkeypatch):
    """Lengths around the edges of blocks, in a graph that knows none of them."""
    monkeypatch.setattr(local_attention, "_SMALLEST", 3)

    def attended(x):  # float32 [B, T] to the keys of all blocks, those outside of the reach 0
        rows = x[:, None, :, None]
        blocks = local_attention.Blocks.of(tf.shape(x)[1], 2)
        keys = tf.transpose(blocks.keys(rows), (0, 1, 2, 4, 3))
        return {"keys": tf.where(blocks.mask, keys, 0.0), "queries": blocks.queries(rows)}

    graph = tf.function(attended, input_signature=[tf.TensorSpec([None, None], name="x")])
    session = onnxruntime.InferenceSession(export.converted(graph))
    names = [output.name for output in session.get_outputs()]
    for length in range(1, 20):
        given = np.arange(1, 2 * length + 1, dtype=np.float32).reshape(2, length)
        found = dict(zip(names, session.run(names, {"x": given}), strict=True))
        for name, right in attended(tf.constant(given)).items():
            np.testing.assert_array_equal(found[name], right, str(length))


def test_a_file_has_the_inputs_of_its_signature():
    outside = tf.constant([0.5, 0.25])
    graph = tf.function(
        lambda x: {"y": x + outside}, input_signature=[tf.TensorSpec([2], name="x")]
    )
    with pytest.raises(UserError, match="makes the inputs x, .* whose signature has x: remove"):
        export.converted(graph)


def test_what_onnx_lacks_is_refused(tmp_path, monkeypatch):
    load(tmp_path / "bilstm", {**CLASSIFICATION, "bilstm": 3})
    with pytest.raises(UserError, match="--format=onnx: classification.bilstm: tf2onnx cannot"):
        export.export(tmp_path / "bilstm", tmp_path / "onnx")
    load(tmp_path / "model", CLASSIFICATION)
    monkeypatch.setattr(export, "_MAX_BYTES", 1000)
    with pytest.raises(
        UserError, match="GiB of weights: a file of ONNX holds at most 2 GiB: remove --format"
    ):
        export.export(tmp_path / "model", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.slow
def test_command(tmp_path):
    load(tmp_path / "model", CLASSIFICATION)
    options = [f"--model_dir={tmp_path}/model", f"--output={tmp_path}/onnx", "--format=onnx"]
    done = commands.run("official.export", *options, "--precision=int8", status=2)
    assert "--format=onnx has float32 only" in done.stderr
    done = commands.run("official.export", *options, status=0)
    assert "onnx/tokens.onnx: `tokens` takes ids of rows of up to 16 tokens" in done.stdout
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "tokens.onnx")
    names = [output.name for output in session.get_outputs()]
    given = batch(3, 9)
    outputs = dict(zip(names, session.run(names, given), strict=True))
    labels = [CLASSIFICATION["labels"][i] for i in outputs["probabilities"].argmax(axis=1)]
    assert outputs["label"].tolist() == labels
