"""Checkpoints of the TensorFlow Model Garden, made anew, against its networks."""

import json

import numpy as np
import pytest

from official.conversion import garden, tf1
from official.saving import model_folder
from official.utils.errors import UserError
from tests.official.conversion import systems

CLOSE = dict(rtol=0, atol=1e-5)
HEADS = {
    "bert_pretrainer": ["masked_lm", "sentence_pair"],
    "bert_pretrainer_items": ["masked_lm"],
    "bert_pretrainer_alone": ["masked_lm", "sentence_pair"],
    "bert_encoder": [],
    "bert_encoder_named": [],
    "albert": [],
    "electra": ["generator", "replaced_tokens"],
}


@pytest.fixture(scope="module")
def base(tfm, tmp_path_factory):
    parent = tmp_path_factory.mktemp("garden")
    tfm.run("tfm_garden.py", parent)
    for name in HEADS:
        systems.write_vocabulary(parent / name, name.partition("_")[0])
    described = {"num_hidden_layers": 3, "hidden_act": "gelu"}
    (parent / "albert" / "albert_config.json").write_text(json.dumps(described))
    return parent


@pytest.mark.parametrize("name", HEADS)
def test_networks_of_the_garden_answer_the_same_here(base, name):
    converted = garden.read(base / name)
    assert [objective.type for objective in converted.config.objectives] == HEADS[name]
    model = model_folder.build(converted.config)
    for path, variable in model.variables_by_path().items():
        variable.assign(converted.variables[path])
    theirs = np.load(base / name / "outputs.npz")
    real = theirs["input_mask"] > 0
    batch = {"token_ids": theirs["input_word_ids"], "padding_mask": real}
    batch["segment_ids"] = theirs["input_type_ids"]
    encoded = systems.run(model.encoder, batch)

    def same(actual, key):
        actual, expected = np.asarray(actual), theirs[key]
        if actual.ndim == 3:
            actual, expected = actual[real], expected[real]
        np.testing.assert_allclose(actual, expected, err_msg=key, **CLOSE)

    same(encoded["sequence_output"], "sequence_output")
    if "pooled_output" in theirs:
        same(encoded["pooled_output"], "pooled_output")
    if name == "electra":
        fill, question = model.objectives
        small = np.asarray(systems.run(fill.generator, batch)["sequence_output"])
        same(small, "generator_output")
        rows = fill.head.logits(small.reshape(-1, small.shape[-1]), fill.generator)
        same(np.reshape(rows, (*real.shape, -1)), "mlm_logits")
        same(np.asarray(question.logits(encoded["sequence_output"]))[..., None], "replaced")
        return
    for objective in model.objectives:
        key = {"masked_lm": "mlm_logits", "next_sentence": "next_sentence"}[objective.name]
        same(systems.logits_of(objective, model, encoded), key)


def test_the_other_reader_names_this_one(base):
    with pytest.raises(UserError, match="is a checkpoint of TF2's objects: use --source=garden"):
        tf1.read(base / "bert_encoder")
