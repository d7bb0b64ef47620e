"""LoRA adapters of peft: what a model answers with one that is merged here, beside peft itself."""

import json

import numpy as np
import pytest

from official.conversion import converted_model, huggingface
from official.conversion.run import convert
from official.modeling.model import Model
from official.saving import model_folder, named_arrays
from official.utils.errors import UserError
from tests.official.conversion import systems
from tests.official.conversion.test_peft_writing import trained

CLOSE = dict(rtol=0, atol=1e-5)
# {name: objective}; None = the bare encoder.
CASES = {
    "bert": "classification",
    "bert_patterns": "classification",
    "bert_dora": "classification",
    "bert_masked_lm": "masked_lm",
    "bert_embeddings": "token_classification",
    "roberta": "classification",
    "roberta_answers": "span_answer",
    "deberta": "classification",
    "deberta_pooler": "classification",
    "modernbert": "classification",
    "modernbert_dora": "classification",
    "electra": "classification",
    "albert": None,
    "distilbert": None,
    "eurobert": "masked_lm",
    "xlnet": "classification",
    "gpt2": "causal_lm",
    "gpt2_dora": "causal_lm",
    "t5": None,
    "roberta_alike": "classification",
    "deberta_alike": "classification",
    "modernbert_alike": "classification",
}
BESIDE = ("bert", "roberta_alike", "deberta_alike", "modernbert_alike")


@pytest.fixture(scope="module")
def base(hf5, tmp_path_factory):
    """The parent of the folders that peft has made."""
    parent = tmp_path_factory.mktemp("peft")
    hf5.run("hf5_peft.py", parent)
    for folder in parent.glob("*/base"):
        config = json.loads((folder / "config.json").read_text())
        systems.write_vocabulary(folder, config["model_type"])
    assert {path.parent.name for path in parent.glob("*/base")} == {*CASES, "lost_pooler"}
    assert (parent / "albert" / "adapter" / "adapter_model.bin").exists()
    return parent


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_peft(base, name):
    folder = base / name
    read = huggingface.read(folder / "base", folder / "adapter")
    converted_model.write(read, folder / "model")
    model = model_folder.restore(folder / "model")[2]
    theirs = np.load(folder / "outputs.npz")
    zeros = np.zeros_like(theirs["ids"])
    batch = {"token_ids": theirs["ids"], "padding_mask": theirs["real"], "segment_ids": zeros}
    encoded = systems.run(model.encoder, batch)
    assert [each.type for each in read.config.objectives] == [CASES[name]] * (
        CASES[name] is not None
    )
    if not model.objectives:
        ours = encoded["sequence_output"]
    elif CASES[name] == "span_answer":
        (head,) = model.objectives
        ours = head.boundary_logits(head.states(encoded))[0]
    else:
        ours = systems.logits_of(model.objectives[0], model, encoded)
    seen = theirs["real"] if CASES[name] != "classification" else slice(None)
    ours = np.asarray(ours)[seen]
    for form in ("merged", "unmerged"):
        np.testing.assert_allclose(ours, theirs[form][seen], err_msg=form, **CLOSE)
    # without the adapter the answers are far away, so the comparison can see it
    assert np.abs(ours - theirs["before"][seen]).max() > 0.5


@pytest.mark.parametrize("name", BESIDE)
def test_an_adapter_beside_the_weights_answers_as_peft(base, name):
    """The updates are computed beside the kernels, as in training."""
    folder = base / name
    read = huggingface.read(folder / "base", folder / "adapter", keep_adapter=True)
    model = Model(read.config, lora=read.config.recipe.lora)
    named_arrays.assign(model.variables_by_path(), dict(read.variables), name)
    theirs = np.load(folder / "outputs.npz")
    zeros = np.zeros_like(theirs["ids"])
    batch = {"token_ids": theirs["ids"], "padding_mask": theirs["real"], "segment_ids": zeros}
    encoded = systems.run(model.encoder, batch)
    ours = np.asarray(systems.logits_of(model.objectives[0], model, encoded))
    np.testing.assert_allclose(ours, theirs["unmerged"], **CLOSE)
    assert np.abs(ours - theirs["before"]).max() > 0.5


def test_peft_reads_what_is_written(hf5, base):
    """Adapters of a new head on bases without one, with updates of joined matrices."""
    targets = {
        "bert": ("query", "value"),
        "roberta": ("query", "key", "value", "output", "inner", "outer"),
        "deberta": ("key", "outer"),
        "modernbert": ("query", "value", "gate", "outer"),
    }
    ours = {}
    for name, kernels in targets.items():
        folder, batch = base / name, np.load(base / name / "outputs.npz")
        read = huggingface.read(folder / "base", folder / "adapter")
        trained(folder / "trained", folder / "base", kernels, read)
        convert(
            folder / "trained", folder / "written", target="peft", base=folder / "base",
            checkpoint="last",
        )  # fmt: skip
        model = model_folder.restore(folder / "trained", "last")[2]
        zeros = np.zeros_like(batch["ids"])
        parts = {"token_ids": batch["ids"], "padding_mask": batch["real"], "segment_ids": zeros}
        encoded = systems.run(model.encoder, parts)
        ours[name] = np.asarray(systems.logits_of(model.objectives[0], model, encoded))
    hf5.run("hf5_peft.py", base, *targets)
    for name, logits in ours.items():
        theirs = np.load(base / name / "written.npz")
        for form in ("merged", "unmerged"):
            np.testing.assert_allclose(logits, theirs[form], err_msg=name, **CLOSE)
        assert np.ptp(logits, axis=0).max() > 0.05, name


def test_what_peft_has_lost_is_refused(base):
    folder = base / "lost_pooler"
    words = "neither .* nor .* has bert.pooler.dense.weight: it was random .*'bert.pooler.dense'"
    with pytest.raises(UserError, match=words):
        huggingface.read(folder / "base", folder / "adapter")
