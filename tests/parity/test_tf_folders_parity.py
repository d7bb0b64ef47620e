"""Folders of transformers' TensorFlow classes: `tf_model.h5`, and safetensors with their names."""

import shutil

import numpy as np
import pytest

from official.conversion import huggingface
from official.saving import model_folder
from official.utils import json_files
from official.utils.errors import UserError
from tests import GOLDEN
from tests.official.conversion import systems
from tests.parity.test_heads_parity import answers

CLOSE = dict(rtol=0, atol=1e-5)
# Two tensors of these classes have one name in safetensors that were saved after `build`.
LOST = {"TFDistilBertForMaskedLM", "TFT5ForConditionalGeneration"}
_TASKS = ("SequenceClassification", "TokenClassification", "Answering", "Choice", "Simple")


@pytest.fixture(scope="module")
def base(tfm, tmp_path_factory):
    parent = tmp_path_factory.mktemp("tf")
    tfm.run("tf_folders.py", parent)
    return parent


def batch_of(inputs):
    """The inputs of transformers as a batch of ours."""
    names = {"input_ids": "token_ids", "attention_mask": "padding_mask"}
    names |= {"token_type_ids": "segment_ids", "decoder_input_ids": "decoder_ids"}
    batch = {names[key]: value for key, value in inputs.items()}
    batch.setdefault("segment_ids", np.zeros_like(batch["token_ids"]))
    batch["padding_mask"] = batch.get("padding_mask", np.ones_like(batch["token_ids"])) > 0
    return batch


def restored(converted):
    model = model_folder.build(converted.config)
    for path, variable in model.variables_by_path().items():
        variable.assign(converted.variables[path])
    return model


def check(converted, folder, name):
    model = restored(converted)
    inputs, theirs = (dict(np.load(folder / f"{kind}.npz")) for kind in ("inputs", "outputs"))
    batch = batch_of(inputs)
    real = batch["padding_mask"]
    if name.endswith(_TASKS):
        for key, value in answers(
            model, {"token_type_ids": batch["segment_ids"], **inputs}, theirs
        ).items():
            value, right = np.asarray(value), theirs[key]
            if value.shape[: real.ndim] == real.shape:
                value, right = value[real], right[real]
            np.testing.assert_allclose(value, right, err_msg=f"{name} {key}", **CLOSE)
        return
    encoded = systems.run(model.encoder, batch)
    if name.startswith("TFT5For"):
        states = np.asarray(encoded["decoder_output"])
        logits = model.objectives[0].logits(states.reshape(-1, states.shape[-1]), model.encoder)
        np.testing.assert_allclose(
            np.reshape(logits, theirs["logits"].shape), theirs["logits"], err_msg=name, **CLOSE
        )
        return
    compared = 0
    for key, ours in (("last_hidden_state", "sequence_output"), ("pooler_output", "pooled_output")):
        if key in theirs:
            actual, expected = np.asarray(encoded[ours]), theirs[key]
            if key == "last_hidden_state":
                actual, expected = actual[real], expected[real]
            np.testing.assert_allclose(actual, expected, err_msg=name, **CLOSE)
            compared += 1
    for objective in model.objectives:
        actual = np.asarray(systems.logits_of(objective, model, encoded))
        key = {
            "masked_lm": "prediction_logits",
            "next_sentence": "seq_relationship_logits",
            "sentence_order": "sop_logits",
        }.get(objective.name, "logits")
        expected = theirs[key if key in theirs else "logits"]
        if actual.ndim > expected.ndim or actual.shape[:2] == real.shape:
            actual, expected = actual[real], expected[real]
        np.testing.assert_allclose(actual, expected, err_msg=f"{name} {key}", **CLOSE)
        compared += 1
    assert compared, name


def test_models_of_tensorflow_answer_the_same_here(base):
    names = sorted(path.name for path in base.iterdir())
    assert len(names) == 46
    for name in names:
        for folder in sorted(path for path in (base / name).iterdir() if path.is_dir()):
            kind = folder.name
            model_type = json_files.read(folder / "config.json")["model_type"]
            if model_type == "t5":
                for file in ("spiece.model", "tokenizer_config.json"):
                    shutil.copy(GOLDEN / "t5" / "v1_0" / file, folder)
            else:
                systems.write_vocabulary(folder, model_type)
            if kind == "built" and name in LOST:
                with pytest.raises(UserError, match="gave both tensors the same name and kept"):
                    huggingface.read(folder)
                continue
            converted = huggingface.read(folder)
            assert list(converted.leftover) == [], (name, kind)
            check(converted, base / name, name)
