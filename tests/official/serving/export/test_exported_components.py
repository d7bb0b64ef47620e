"""Exports of models whose tokenizer is of components: what the model itself gives."""

import json
import warnings

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tokenizers
from official.saving import checkpoints, model_folder, named_arrays
from official.serving.export import litert, onnx
from official.tokenizers import pair_packing
from tests.official.serving.test_predictor import BERT
from tests.official.tokenizers.test_components import GOLDEN, write

LENGTH = 16
TEXTS = [*GOLDEN["texts"][:12], "ab aab b " * 20]


def model_dir(folder, form, **settings):
    """A classifier with random weights."""
    described = GOLDEN["forms"][form]["described"]
    tokenizer = tokenizers.load(write(folder / "tokenizer", described, **settings))
    encoder = {**BERT, "vocab_size": tokenizer.vocab_size, "pooler": True, "num_layers": 1}
    objective = {"type": "classification", "labels": ["a", "b"]}
    config = configs.from_dict(
        {"name": "x", "encoder": encoder, "objectives": [objective], "recipe": {"steps": 1}}
    )
    model = folder / "model"
    model.mkdir()
    configs.save(config, model / "config.yaml")
    tokenizer.save(model / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    checkpoints.save(model, 1, variables, {})
    (model / "task.json").write_text(json.dumps({"max_length": LENGTH}))
    return model


def of_ids(folder):
    """The inputs of a model of ids, by the tokenizer that lies beside it."""
    tokenizer = tokenizers.load(folder / "tokenizer")
    rows = [
        pair_packing.pack_arrays([ids], tokenizer, LENGTH)[0] for ids in tokenizer.encode(TEXTS)
    ]
    shape = len(rows), max(map(len, rows))
    ids, mask = np.full(shape, tokenizer.pad_id, np.int32), np.zeros(shape, np.int32)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": np.zeros_like(ids)}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("form, side", [("gemma", "right"), ("llama", "left")])
def test_exports(form, side, tmp_path):
    model = model_dir(tmp_path, form, truncation_side=side)
    loaded = official.load(model)
    assert loaded.tokenizer.pairs.cut_side == side
    expected = np.array([[*each.probabilities.values()] for each in loaded.classify(TEXTS)])
    assert np.ptp(expected[:, 0]) > 1e-3
    official.export(model, tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["single"]
    found = {"SavedModel": served(text=tf.constant(TEXTS))["probabilities"].numpy()}
    litert.export(model, tmp_path / "litert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = tf.lite.Interpreter(str(tmp_path / "litert" / litert.FILE))
    outputs = interpreter.get_signature_runner("tokens")(**of_ids(tmp_path / "litert"))
    found["LiteRT"] = outputs["probabilities"]
    onnx.export(model, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / onnx.FILE.format("tokens")))
    (found["ONNX"],) = session.run(["probabilities"], of_ids(tmp_path / "onnx"))
    for name, probabilities in found.items():
        np.testing.assert_allclose(probabilities, expected, atol=1e-5, err_msg=name)
    # The last text is cut: its other side does not count.
    same = TEXTS[-1][3:] if side == "left" else TEXTS[-1][:-3]
    (again,) = loaded.classify([same])
    np.testing.assert_allclose([*again.probabilities.values()], expected[-1], atol=1e-6)
