"""Heads against transformers, computed anew: its models here, and ours there.

transformers 4 saves heads of tasks with the older files of vocabularies. transformers 5 saves every
head of every system, with `tokenizer.json` alone.
"""

import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import official
from official.convert import converted_model, huggingface
from official.saving import model_folder
from official.serving import saved_model
from official.utils import json_files
from tests.official.convert import systems

CLOSE = dict(rtol=0, atol=1e-5)
TASKS = ("classification", "multi_label", "regression", "token_classification", "span_answer",
         "multiple_choice")  # fmt: skip
PREDICTED = [[name] for name in ("classification", "multi_label", "regression", "multiple_choice")]
EXPORTED = [f"{name}ForSequenceClassification" for name in ("DistilBert", "Roberta", "XLNet")]
EXPORTED.append("AlbertForSequenceClassification.regression")
# How many folders each version makes, and how many of them predict from raw texts.
FOLDERS = {"hf": (24, 0), "hf5": (97, 42)}


@pytest.fixture(scope="module", params=FOLDERS)
def base(request, tmp_path_factory):
    """The version; `theirs`: what it made; `ours`: our model folder of each; and their names."""
    parent = tmp_path_factory.mktemp("heads")
    reference = request.getfixturevalue(request.param)
    reference.run("hf_heads.py", parent / "theirs")
    names = sorted(path.parent.name for path in (parent / "theirs").glob("*/config.json"))
    assert len(names) == FOLDERS[reference.name][0]
    (parent / "ours").mkdir()
    for name in names:
        folder = parent / "theirs" / name
        kind = json_files.read(folder / "config.json")["model_type"]
        if reference.name == "hf":
            systems.write_vocabulary(folder, kind)
        converted = huggingface.read(folder)
        assert converted.leftover == [], name
        converted_model.write(converted, parent / "ours" / name)
    return reference, parent, names


def batch_of(inputs, objective=None):
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
    if "decoder_input_ids" in inputs:
        batch["decoder_ids"] = inputs["decoder_input_ids"].astype(np.int32)
    return objective.prepare(batch) if objective else batch


def answers(model, inputs, theirs):
    """What our model says, under the names of transformers."""
    if [o.name for o in model.objectives] not in [[name] for name in TASKS]:
        return states_and_language(model, inputs, theirs)
    (objective,) = model.objectives
    batch = batch_of(inputs, objective)
    encoded = model.encode(batch)
    states = encoded["sequence_output"]
    if objective.name in ("classification", "multi_label", "token_classification"):
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


def states_and_language(model, inputs, theirs):
    """What a model without the head of a task says."""
    encoded = dict(model.encode(batch_of(inputs)))
    if "decoder_input_ids" in inputs:
        encoded["encoder_last_hidden_state"] = encoded["sequence_output"]
        encoded["sequence_output"] = encoded["decoder_output"]
    ours = {name: encoded[name] for name in theirs if name in encoded}
    if not model.objectives:
        ours["last_hidden_state"] = encoded["sequence_output"]
    for objective in model.objectives:
        name = systems.LOGITS.get((objective.name, len(model.objectives)), "logits")
        ours[name] = systems.logits_of(objective, model, encoded)
    if "pooler_output" in theirs:
        ours["pooler_output"] = encoded["pooled_output"]
    assert ours.keys() == set(theirs)
    return ours


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


def predicted(model, texts):
    """The probabilities or scores that a model gives to raw texts, or None, and a name for both."""
    first, second = map(list, zip(*texts["texts"], strict=True))
    (objective,) = model.model.objectives
    if objective.name == "regression":
        return model.score(first, second)[:, None]
    if objective.name == "multiple_choice":
        contexts, questions, choices = map(list, zip(*texts["choices"], strict=True))
        return [row.probabilities for row in model.choose(contexts, questions, choices)]
    return [list(row.probabilities.values()) for row in model.classify(first, second)]


def probabilities(logits, objective):
    """What is predicted from the logits of transformers."""
    if objective.name == "regression":
        return logits
    return 1 / (1 + np.exp(-logits)) if objective.name == "multi_label" else softmax(logits)


def test_models_of_transformers_answer_the_same_here(base):
    reference, parent, names = base
    texts, count = parent / "theirs" / "texts.json", 0
    for name in names:
        inputs = dict(np.load(parent / "theirs" / name / "inputs.npz"))
        assert not inputs["attention_mask"].all(), name
        model = model_folder.restore(parent / "ours" / name)[2]
        theirs = dict(np.load(parent / "theirs" / name / "outputs.npz"))
        close(answers(model, inputs, theirs), theirs, inputs["attention_mask"] > 0, name)
        if texts.exists() and [o.name for o in model.objectives] in PREDICTED:
            (objective,) = model.objectives
            rows = predicted(official.load(parent / "ours" / name), json_files.read(texts))
            expected = probabilities(theirs["logits"], objective)
            np.testing.assert_allclose(rows, expected, err_msg=name, **CLOSE)
            count += 1
    assert count == FOLDERS[reference.name][1]


def test_exports_of_a_few_answer_raw_texts_as_transformers(base):
    """Of one head of each kind of tokenizer; exports of all heads have the same graphs."""
    reference, parent, _ = base
    for name in EXPORTED if reference.name == "hf5" else ():
        saved_model.export(parent / "ours" / name, parent / "saved" / name)
        signatures = tf.saved_model.load(str(parent / "saved" / name)).signatures
        first, second = zip(
            *json_files.read(parent / "theirs" / "texts.json")["texts"], strict=True
        )
        served = signatures["pair"](text=tf.constant(first), text_b=tf.constant(second))
        logits = np.load(parent / "theirs" / name / "outputs.npz")["logits"]
        expected = logits[:, 0] if name.endswith("regression") else softmax(logits)
        actual = served["score" if name.endswith("regression") else "probabilities"]
        np.testing.assert_allclose(actual, expected, err_msg=name, **CLOSE)


def test_models_of_ours_answer_the_same_there(base):
    reference, parent, names = base
    written = parent / "written"
    written.mkdir()
    for name in names:
        huggingface.write(parent / "ours" / name, written / name, "last")
        before, after = (
            safetensors.numpy.load_file(parent / kind / name / "model.safetensors")
            for kind in ("theirs", "written")
        )
        # Of an ERNIE, the embedding of task 0 is now a part of the positions. To transformers 4, a
        # T5 whose output is not scaled has an output layer of its own.
        changed = {key for key in before.keys() & after if not (before[key] == after[key]).all()}
        others = before.keys() ^ after | changed
        if name.startswith("Ernie") and "no_task" not in name:
            others = {key.partition("_embeddings")[0].partition("embeddings.")[2] for key in others}
            assert others == {"task_type", "position"}
        else:
            assert others == ({"lm_head.weight"} if name.endswith(".unscaled") else set()), name
        shutil.copy(parent / "theirs" / name / "inputs.npz", written / name)
    reference.run("hf_systems.py", written)
    for name in names:
        theirs = np.load(parent / "theirs" / name / "outputs.npz")
        again = np.load(written / name / "outputs.npz")
        for key in theirs:
            np.testing.assert_allclose(again[key], theirs[key], err_msg=name, **CLOSE)
