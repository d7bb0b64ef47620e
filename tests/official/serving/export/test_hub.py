"""A folder in the layout of the hub gives what the model gives, under the names of transformers.

`tests/parity/test_hub_parity.py` reads such folders with the package `tokenizers`.
"""

import json

import numpy as np
import onnxruntime
import pytest

import official
from official.serving.export import hub, onnx_int8
from official.tokenizers import tokenizer_json
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError
from tests import commands
from tests.official.serving.export.test_litert import CLASSIFICATION, LABELS
from tests.official.serving.test_predictor import BERT, SECOND, TEXTS, constants, load

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
ROBERTA = {**BERT, "activation": "gelu", "position_offset": 1, "segment_types": 1}
EMBEDDING = {"type": "sentence_embedding", "pooling": "mean", "normalize": True, "weight": 0.0}
TAGS = {"type": "token_classification", "labels": ["O", "B-X", "I-X"]}
CLOSE = dict(rtol=0, atol=1e-5)


def session(folder):
    (file,) = (folder / "onnx").iterdir()
    return onnxruntime.InferenceSession(file)


def names(values):
    return [value.name for value in values]


def fed(loaded, *texts, wider=0, left=0):
    """The inputs of a batch of texts, with padding on both sides."""
    layout = loaded.config.encoder.text_layout
    batch = pack_texts(constants(*texts), loaded.tokenizer, loaded.max_length, layout)
    fields = (batch[name] for name in ("token_ids", "padding_mask", "segment_ids"))
    given = dict(zip(INPUTS, fields, strict=True))
    pads = {"input_ids": loaded.tokenizer.pad_id}
    return {
        name: np.pad(
            np.asarray(value, np.int64), [(0, 0), (left, wider)], constant_values=pads.get(name, 0)
        )
        for name, value in given.items()
    }


def outputs(folder, given):
    run = session(folder)
    read = {name: given[name] for name in names(run.get_inputs())}
    return dict(zip(names(run.get_outputs()), run.run(None, read), strict=True))


def encoded(loaded, given):
    ids, mask, types = given.values()
    batch = {"token_ids": ids, "padding_mask": mask.astype(bool), "segment_ids": types}
    return loaded.model.encode({n: np.int32(v) if n != "padding_mask" else v
                                for n, v in batch.items()})  # fmt: skip


@pytest.mark.slow
def test_vectors_of_texts(tmp_path):
    loaded = load(tmp_path / "model", EMBEDDING, max_length=12)
    exported = official.export(
        tmp_path / "model", tmp_path / "hub", format="onnx", layout="hub", max_length=12
    )
    assert exported == (str(tmp_path / "hub/onnx/model.onnx"), "last_hidden_state", 12, None)
    run = session(tmp_path / "hub")
    assert names(run.get_inputs()) == INPUTS
    assert {value.type for value in run.get_inputs()} == {"tensor(int64)"}
    assert [value.shape for value in run.get_outputs()] == [
        ["batch_size", "sequence_length", 12],
        ["batch_size", 12],
    ]
    given = fed(loaded, TEXTS, wider=3)
    found = outputs(tmp_path / "hub", given)
    assert list(found) == ["last_hidden_state", "sentence_embedding"]
    vectors = loaded.encode(TEXTS)
    assert np.ptp(vectors, axis=0).min() > 0.01
    np.testing.assert_allclose(found["sentence_embedding"], vectors, **CLOSE)
    real = given["attention_mask"].astype(bool)
    states = encoded(loaded, given)["sequence_output"].numpy()
    np.testing.assert_allclose(found["last_hidden_state"][real], states[real], **CLOSE)


@pytest.mark.slow
def test_files(tmp_path):
    load(tmp_path / "model", EMBEDDING)
    hub.export(tmp_path / "model", tmp_path / "hub", max_length=12)
    folder = tmp_path / "hub"
    read = lambda name: json.loads((folder / name).read_text("utf-8"))  # noqa: E731
    config, settings = read("config.json"), read("tokenizer_config.json")
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertModel"])
    assert settings["model_max_length"] == 12 and settings["pad_token"] == "[PAD]"
    assert settings["model_input_names"] == [INPUTS[0], INPUTS[2], INPUTS[1]]
    assert settings["tokenizer_class"] == "BertTokenizer"  # transformers.js then gives types
    special = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    special = {f"{key}_token": token for key, token in special.items()}
    assert read("special_tokens_map.json") == special
    modules = [(module["path"], module["type"].rsplit(".")[-1]) for module in read("modules.json")]
    assert modules == [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    pooling = read("1_Pooling/config.json")
    assert pooling["pooling_mode_mean_tokens"] and not pooling["pooling_mode_cls_token"]
    assert read("sentence_bert_config.json")["max_seq_length"] == 12
    assert read("tokenizer.json")["model"]["type"] == "WordPiece"
    assert not list(folder.rglob("*.safetensors"))


HEADS = {
    "classification": CLASSIFICATION,
    "multi_label": {"type": "multi_label", "labels": LABELS},
    "regression": {"type": "regression"},
    "ranking": {"type": "ranking", "output": "sigmoid"},
    "tags": TAGS,
    "answer": {"type": "span_answer"},
    "choice": {"type": "multiple_choice"},
    "masked_lm": {"type": "masked_lm"},
    "bare": None,
}
WINDOWS = {"doc_stride": 4, "max_query_length": 5}  # of span answers


def values(loaded, name, given):
    """What the model gives for a batch, by the names of transformers."""
    states = encoded(loaded, given)
    head = next(iter(loaded.model.objectives), None)
    if name == "answer":
        logits = head.boundary_logits(head.states(states))
        return dict(zip(("start_logits", "end_logits"), logits, strict=True))
    if name == "tags":
        return {"logits": head.logits(states)}
    if name == "masked_lm":
        words = states["sequence_output"]
        rows = np.reshape(words, (-1, words.shape[-1]))
        logits = np.asarray(head.logits(rows, loaded.model.encoder))
        return {"logits": logits.reshape(*given["input_ids"].shape, -1)}
    if name == "bare":
        return {"last_hidden_state": states["sequence_output"]}
    return {"logits": head.outputs(states)}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", HEADS)
def test_heads(tmp_path, name):
    objective = HEADS[name]
    extra = {"corruption": None} if name == "masked_lm" else {}
    loaded = load(tmp_path / "model", *[objective] * bool(objective), **WINDOWS, **extra)
    hub.export(tmp_path / "model", tmp_path / "hub")
    given = fed(loaded, TEXTS, SECOND)
    wanted = values(loaded, name, given)
    if name == "choice":
        given = {key: value.reshape(2, 3, -1) for key, value in given.items()}
        wanted = {"logits": np.reshape(wanted["logits"], (2, 3))}
    found = outputs(tmp_path / "hub", given)
    assert list(found) == list(wanted)
    real = given["attention_mask"].astype(bool)
    for key, value in wanted.items():
        value = np.asarray(value)
        assert found[key].shape == value.shape and np.ptp(value) > 0.01
        if value.shape[:2] == real.shape:  # what padding gives means nothing
            found[key], value = found[key][real], value[real]
        np.testing.assert_allclose(found[key], value, **CLOSE)
    if name == "classification":
        chances = [list(label.probabilities.values()) for label in loaded.classify(TEXTS, SECOND)]
        odds = np.exp(found["logits"])
        np.testing.assert_allclose(odds / odds.sum(1, keepdims=True), chances, **CLOSE)
    if name == "ranking":
        scores = [score[0] for score in found["logits"]]
        np.testing.assert_allclose(loaded.rank(TEXTS, SECOND, raw=True), scores, **CLOSE)


@pytest.mark.slow
def test_positions_are_made_from_the_padding(tmp_path):
    """A RoBERTa takes rows that are wider than its table of positions, padded on either side."""
    loaded = load(tmp_path / "model", EMBEDDING, encoder=ROBERTA)
    hub.export(tmp_path / "model", tmp_path / "hub")
    assert names(session(tmp_path / "hub").get_inputs()) == INPUTS[:2]
    assert json.loads((tmp_path / "hub" / "config.json").read_text())["model_type"] == "roberta"
    vectors = loaded.encode(TEXTS)
    assert np.ptp(vectors, axis=0).min() > 0.01
    for wider, left in ((0, 0), (30, 0), (2, 5)):
        found = outputs(tmp_path / "hub", fed(loaded, TEXTS, wider=wider, left=left))
        np.testing.assert_allclose(found["sentence_embedding"], vectors, **CLOSE)


@pytest.mark.slow
def test_int8(tmp_path, monkeypatch):
    """Near float32, and for a row the same in any batch."""
    monkeypatch.setattr(onnx_int8, "SMALLEST", 100)
    loaded = load(tmp_path / "model", EMBEDDING)
    file, *_ = hub.export(tmp_path / "model", tmp_path / "hub", precision="int8")
    assert file == "onnx/model_quantized.onnx"
    found = outputs(tmp_path / "hub", fed(loaded, TEXTS))["sentence_embedding"]
    vectors = loaded.encode(TEXTS)
    assert 1e-3 < np.abs(found - vectors).max() < 0.1
    for row, text in enumerate(TEXTS):
        alone = outputs(tmp_path / "hub", fed(loaded, [text]))["sentence_embedding"]
        np.testing.assert_allclose(alone[0], found[row], **CLOSE)
    with pytest.raises(UserError, match="--precision=bfloat16: --layout=hub has float32 and int8"):
        hub.export(tmp_path / "model", tmp_path / "other", precision="bfloat16")


@pytest.mark.slow
def test_command(tmp_path):
    load(tmp_path / "model", CLASSIFICATION)
    options = [f"--model_dir={tmp_path}/model", f"--output={tmp_path}/hub", "--layout=hub"]
    done = commands.run("official.export", *options, status=2)
    assert "--layout=hub: not supported for --format=saved_model: give --format=onnx" in done.stderr
    done = commands.run("official.export", *options, "--format=onnx", status=0)
    assert "hub/onnx/model.onnx: logits of rows of up to 16 tokens" in done.stdout
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert list(config["id2label"].values()) == LABELS


@pytest.mark.slow
def test_what_has_no_form_there_is_refused(tmp_path):
    for number, (objective, message) in enumerate((
        ({**TAGS, "crf": True}, "token_classification.crf: .* does not have it; remove --layout"),
        ({"type": "kernel_ranking"}, "no output for the head kernel_ranking; remove --layout"),
        ({"type": "span_answer", "form": "conditional"}, "span_answer; remove --layout"),
        ({"type": "late_interaction"}, "no model with late_interaction .*; remove --layout"),
            ({"type": "causal_lm"}, "a model that generates text .*; remove --layout"),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        encoder = {**BERT, "causal": True} if objective["type"] == "causal_lm" else BERT
        load(folder, objective, encoder=encoder, **WINDOWS)
        with pytest.raises(UserError, match=f"^--layout=hub: .*{message}"):
            hub.export(folder, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


@pytest.mark.slow
def test_a_tokenizer_that_has_no_file_there_is_refused(tmp_path, monkeypatch):
    load(tmp_path / "model", CLASSIFICATION)
    monkeypatch.setattr(tokenizer_json, "described", lambda *given: None)
    with pytest.raises(UserError, match="the tokenizer WordPiece of this model has no form in"):
        hub.export(tmp_path / "model", tmp_path / "hub")
    assert not (tmp_path / "hub").exists()
