"""Models for LiteRT give what the model itself gives, for every kind of head."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.modeling.layers import local_attention
from official.serving.export import litert
from official.utils import paths
from official.utils.errors import UserError
from tests import commands
from tests.official.serving.test_predictor import BERT, DEBERTA, MODERN, XLNET, load

WINDOWS = {"doc_stride": 4, "max_query_length": 5}  # of span answers
LABELS = ["bad", "good", "neither"]
CLASSIFICATION = {"type": "classification", "labels": LABELS}
ALBERT = {**BERT, "embedding_size": 8, "layer_groups": 1}
# The GELUs of ELECTRA's port.
ERF = {"activation": "gelu", "pooler_activation": "gelu"}
ROBERTA = {**BERT, **ERF, "position_offset": 2, "segment_types": 1}
CAUSAL = {**BERT, "causal": True}
MODELS = {
    "classification": (CLASSIFICATION, BERT),
    "albert": (CLASSIFICATION, ALBERT),
    "roberta": ({"type": "regression"}, ROBERTA),
    "deberta": (CLASSIFICATION, {**DEBERTA, "convolution": {}}),
    "modernbert": (CLASSIFICATION, MODERN),
    "xlnet": (CLASSIFICATION, XLNET),
    "causal": ({"type": "regression"}, CAUSAL),
    "ranking": ({"type": "ranking", "output": "sigmoid"}, BERT),
    "kernel_ranking": ({"type": "kernel_ranking"}, BERT),
    "choice": ({"type": "multiple_choice"}, BERT),
    "answer": ({"type": "span_answer"}, BERT),
    "tags": ({"type": "token_classification", "labels": ["O", "B-X", "I-X"]}, BERT),
    "bare": (None, BERT),
}


@pytest.fixture(autouse=True)
def deprecation():
    """The interpreter of TensorFlow is the one of `ai_edge_litert`, which asks to be used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*ai_edge_litert")
        yield


def runner(folder):
    return tf.lite.Interpreter(str(folder / litert.FILE)).get_signature_runner("tokens")


def batch(rows, length, left=False, seed=0):
    """Rows of different lengths, the first of which has no padding."""
    rng = np.random.default_rng(seed)
    lengths = np.append(length, rng.integers(2, length + 1, rows - 1))
    mask = np.arange(length) < lengths[:, None]
    mask = mask[:, ::-1] if left else mask
    ids = rng.integers(5, 35, (rows, length)) * mask
    types = rng.integers(0, 2, (rows, length)) * mask
    given = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    return {name: value.astype(np.int32) for name, value in given.items()}


def expected(loaded, given, name):
    """What the model gives."""
    ids, mask, types = given.values()
    fed = {"token_ids": ids, "padding_mask": mask.astype(bool), "segment_ids": types}
    model = loaded.model
    if name == "bare":
        return {n: v for n, v in model.encode(fed).items() if n.endswith("output")}
    (head,) = model.objectives
    if name == "answer":
        logits = head.boundary_logits(head.states(model.encode(fed)))
        return dict(zip(("start_logits", "end_logits"), logits, strict=True))
    if name == "tags":
        return {"logits": head.logits(model.encode(fed))}
    if "ranking" in name:
        ready = head.prepare({**fed, "text_mask": fed["padding_mask"]})
        scores = head.scores(ready, model.encode(ready), model.encoder)
        if name == "kernel_ranking":
            return {"scores": scores}
        return {"scores": tf.sigmoid(scores), "logits": scores}
    if name == "choice":
        scores = np.asarray(head.outputs(model.encode(fed))).reshape(-1, 3)
        chances = tf.nn.softmax(scores).numpy()
        return {"probabilities": chances, "index": chances.argmax(axis=1)}
    return model.predictions(fed)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_outputs(tmp_path, monkeypatch, name):
    monkeypatch.setattr(local_attention, "_SMALLEST", 3)  # blocks of rows as short as these
    objective, encoder = MODELS[name]
    loaded = load(tmp_path / "model", *[objective] * bool(objective), encoder=encoder, **WINDOWS)
    length, moved = litert.export(tmp_path / "model", tmp_path / "lite")
    assert (length, moved) == (16, None)
    run = runner(tmp_path / "lite")
    for rows, length in ((3, 7), (6, 16)):
        given = batch(rows, length, left=encoder is XLNET)
        wanted = expected(loaded, given, name)
        if name == "choice":
            given = {n: v.reshape(-1, 3, length) for n, v in given.items()}
        outputs = run(**given)
        assert outputs.keys() - {"label"} == wanted.keys()
        mask = given["input_mask"].astype(bool)
        for key, value in wanted.items():
            value = np.asarray(value)
            assert outputs[key].shape == value.shape
            assert key == "index" or np.ptp(value) > 0.01
            if value.shape[:2] == mask.shape:  # what padding gives means nothing
                outputs[key], value = outputs[key][mask], value[mask]
            np.testing.assert_allclose(outputs[key], value, rtol=0, atol=1e-5)
        if "label" in outputs:
            labels = [LABELS[i].encode() for i in np.argmax(wanted["probabilities"], axis=1)]
            assert outputs["label"].tolist() == labels
    if name == "bare":  # the mean
        vectors = tf.lite.Interpreter(str(tmp_path / "lite" / litert.FILE))
        found = vectors.get_signature_runner("embed_tokens")(**given)["vectors"]
        states = np.asarray(wanted["sequence_output"]) * mask[:, :, None]
        mean = states.sum(axis=1) / mask.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, mean, rtol=0, atol=1e-5)
    assert (
        tokenizers.load(tmp_path / "lite" / "tokenizer").fingerprint == loaded.tokenizer.fingerprint
    )


@pytest.mark.slow
def test_int8(tmp_path):
    """Large enough that the converter stores integers: it leaves small matrices as they are."""
    sizes = {"hidden_size": 96, "num_heads": 4, "intermediate_size": 192, "initializer_range": 0.08}
    loaded = load(tmp_path / "model", CLASSIFICATION, encoder={**BERT, **sizes})
    sizes = {}
    for precision in litert.PRECISIONS:
        litert.export(tmp_path / "model", tmp_path / precision, precision=precision)
        sizes[precision] = (tmp_path / precision / litert.FILE).stat().st_size
    assert sizes["int8"] < 0.4 * sizes["float32"]
    scales = {}  # by the shape of a matrix; that of an affine map is [O, I]
    interpreter = tf.lite.Interpreter(str(tmp_path / "int8" / litert.FILE))
    for tensor in interpreter.get_tensor_details():
        if tensor["dtype"] == np.int8:
            scales[tuple(tensor["shape"])] = len(tensor["quantization_parameters"]["scales"])
    assert scales[loaded.tokenizer.vocab_size, 96] == 1 and scales[192, 96] == 192
    run = runner(tmp_path / "int8")
    given = batch(5, 16)
    outputs = run(**given)["probabilities"]
    wanted = np.asarray(expected(loaded, given, "classification")["probabilities"])
    assert 1e-6 < np.abs(outputs - wanted).max() < 0.02 < np.ptp(wanted, axis=0).max()
    for row in range(5):  # a row does not depend on the others
        length = given["input_mask"][row].sum()
        alone = run(**{name: value[row : row + 1, :length] for name, value in given.items()})
        np.testing.assert_allclose(alone["probabilities"][0], outputs[row], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_command(tmp_path):
    load(tmp_path / "model", CLASSIFICATION)
    options = [f"--model_dir={tmp_path}/model", f"--output={tmp_path}/lite", "--format=litert"]
    done = commands.run("official.export", *options, "--max_length=9", status=0)
    assert f"wrote {tmp_path}/lite/model.tflite: `tokens` takes" in done.stdout
    made = sorted(p.name for p in (tmp_path / "lite").iterdir())
    assert made == ["labels.txt", "model.tflite", "tokenizer"]
    for name, value in (("data", "shards"), ("num_beams", "2")):
        other = f"--output={tmp_path}/other"
        done = commands.run("official.export", *options, other, f"--{name}={value}", status=2)
        assert f"--{name}: not supported for --format=litert; remove it" in done.stderr


@pytest.mark.slow
def test_remote_folder(tmp_path, ram):
    load(tmp_path / "model", CLASSIFICATION)
    litert.export(tmp_path / "model", ram / "lite")
    with paths.local_copy(ram / "lite" / litert.FILE) as file:
        assert file.read_bytes()[4:8] == b"TFL3"


def test_models_without_ids_and_other_precisions(tmp_path):
    load(
        tmp_path / "model", {"type": "span_answer", "form": "conditional"}, encoder=XLNET, **WINDOWS
    )
    with pytest.raises(UserError, match="which has no signature `tokens`"):
        litert.export(tmp_path / "model", tmp_path / "lite")
    with pytest.raises(UserError, match="LiteRT computes in float32 or int8"):
        litert.export(tmp_path / "model", tmp_path / "lite", precision="bfloat16")
    assert not (tmp_path / "lite").exists()
