"""Heads of tasks against transformers, computed anew: its models here, and ours there."""

import shutil

import numpy as np
import pytest
import safetensors.numpy

from official.convert import converted_model, huggingface
from official.saving import model_folder
from official.utils import json_files
from tests.official.convert import systems

CLOSE = dict(rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def base(hf, tmp_path_factory):
    """`theirs`: what transformers made; `ours`: our model folder of each; and their names."""
    parent = tmp_path_factory.mktemp("heads")
    hf.run("hf_heads.py", parent / "theirs")
    names = sorted(path.name for path in (parent / "theirs").iterdir())
    (parent / "ours").mkdir()
    for name in names:
        folder = parent / "theirs" / name
        kind = json_files.read(folder / "config.json")["model_type"]
        systems.write_vocabulary(folder, kind)
        converted = huggingface.read(folder)
        assert converted.leftover == [], name
        converted_model.write(converted, parent / "ours" / name)
    return parent, names


def batch_of(inputs, objective):
    """The inputs of transformers as a batch of ours."""
    batch = {
        "token_ids": inputs["input_ids"].astype(np.int32),
        "padding_mask": inputs["attention_mask"].astype(bool),
        "example_weights": np.ones(len(inputs["input_ids"]), np.float32),
    }
    if "token_type_ids" in inputs:
        batch["segment_ids"] = inputs["token_type_ids"].astype(np.int32)
    else:
        batch["segment_ids"] = np.zeros_like(batch["token_ids"])
    if "p_mask" in inputs:
        inside = inputs["p_mask"] == 0
        inside[:, -1] = False
        batch["context_start"] = inside.argmax(axis=1).astype(np.int32)
        batch["context_length"] = inside.sum(axis=1).astype(np.int32)
        batch["window_start"] = np.zeros_like(batch["context_start"])
    return objective.prepare(batch)


def answers(model, inputs, theirs):
    """What our model says, under the names of transformers."""
    (objective,) = model.objectives
    batch = batch_of(inputs, objective)
    encoded = model.encode(batch)
    states = encoded["sequence_output"]
    if objective.name in ("classification", "token_classification"):
        return {"logits": objective.logits(encoded)}
    if objective.name == "regression":
        return {"logits": objective.scores(encoded)[:, None]}
    if objective.name == "multiple_choice":
        return {"logits": objective.logits(batch, encoded)}
    if objective.config.form == "independent":
        return dict(
            zip(("start_logits", "end_logits"), objective.boundary_logits(states), strict=True)
        )
    # The likeliest starts and ends are those of transformers; how likely they are here:
    allowed = np.asarray(objective.allowed(batch))
    starts = np.where(allowed, objective.start_logits(states), -1e30)
    first = theirs["start_top_index"]  # [B, S]
    ends = np.where(allowed[:, None], objective.end_logits(states, first), -1e30)  # [B, S, T]
    last = theirs["end_top_index"].reshape(len(first), -1, first.shape[1])  # [B, E, S]
    chosen = np.take_along_axis(np.swapaxes(softmax(ends), 1, 2), last, axis=1)
    return {
        "cls_logits": objective.null_logits(states, starts, allowed),
        "start_top_log_probs": np.take_along_axis(softmax(starts), first, axis=1),
        "end_top_log_probs": chosen.reshape(len(first), -1),
    }


def softmax(logits):
    chances = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return chances / chances.sum(axis=-1, keepdims=True)


def close(actual, expected, real, name):
    """Asserts that answers agree; of padding, whose scores say nothing, positions may be others."""
    for key, value in actual.items():
        value, right = np.asarray(value), expected[key]
        if value.shape[: real.ndim] == real.shape:  # of each token
            value, right = value[real], right[real]
        np.testing.assert_allclose(value, right, err_msg=f"{name} {key}", **CLOSE)


def test_models_of_transformers_answer_the_same_here(base):
    parent, names = base
    assert len(names) == 24
    for name in names:
        inputs = dict(np.load(parent / "theirs" / name / "inputs.npz"))
        assert not inputs["attention_mask"].all(), name
        model = model_folder.restore(parent / "ours" / name)[2]
        theirs, real = np.load(parent / "theirs" / name / "outputs.npz"), inputs["attention_mask"]
        close(answers(model, inputs, theirs), theirs, real > 0, name)


def test_models_of_ours_answer_the_same_there(hf, base):
    parent, names = base
    written = parent / "written"
    written.mkdir()
    names = [name for name in names if not name.startswith("Distil")]
    for name in names:
        huggingface.write(parent / "ours" / name, written / name, "last")
        before, after = (
            safetensors.numpy.load_file(parent / kind / name / "model.safetensors")
            for kind in ("theirs", "written")
        )
        assert before.keys() == after.keys()
        assert all(before[key].tobytes() == after[key].tobytes() for key in before), name
        shutil.copy(parent / "theirs" / name / "inputs.npz", written / name)
    hf.run("hf_systems.py", written)
    for name in names:
        theirs = np.load(parent / "theirs" / name / "outputs.npz")
        again = np.load(written / name / "outputs.npz")
        for key in theirs:
            np.testing.assert_allclose(again[key], theirs[key], err_msg=name, **CLOSE)
