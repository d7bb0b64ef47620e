"""RoBERTa, ALBERT, ELECTRA, DistilBERT, GPT-2 and EuroBERT against transformers, computed anew."""

import numpy as np
import pytest

from official.conversion import converted_model, huggingface
from official.saving import model_folder
from tests.official.conversion import systems
from tests.official.conversion.test_convert_electra import SHARED, both
from tests.official.conversion.test_convert_systems import CASES, WRITTEN

PARITY = systems.GOLDEN.parent / "parity"
NEWER = "eurobert"  # of transformers 5


@pytest.fixture(scope="module")
def base(hf, hf5, tmp_path_factory):
    """The golden files, made anew, and our model folder of each."""
    parent = tmp_path_factory.mktemp("systems")
    for reference in (hf, hf5):
        reference.run(systems.GOLDEN / "make_systems_golden.py", parent / "golden")
    for name in CASES:
        config, parts, _ = systems.load(name, parent / "golden")
        folder = systems.write(parent / name, config, parts["weight"])
        converted_model.write(huggingface.read(folder), parent / f"{name}-model")
    return parent


def test_outputs_are_those_of_transformers(base):
    for name in CASES:
        _, parts, hidden_states = systems.load(name, base / "golden")
        model = model_folder.restore(base / f"{name}-model")[2]
        assert systems.compare(model, parts, hidden_states) == {}


def test_transformers_loads_what_we_write_and_answers_the_same(hf, hf5, base):
    folders = {
        name: base / f"written_{5 if name.startswith(NEWER) else 4}" / name for name in WRITTEN
    }
    for name, folder in folders.items():
        folder.parent.mkdir(exist_ok=True)
        huggingface.write(base / f"{name}-model", folder, "last")
        batch = systems.load(name, base / "golden")[1]["batch"]
        inputs = {"input_ids": batch["token_ids"], "attention_mask": batch["padding_mask"]}
        # Segments are tokens, or there are none.
        if not name.startswith(("gpt2", "mpnet", "distilbert", "modernbert", NEWER)):
            inputs["token_type_ids"] = batch["segment_ids"]
        np.savez(folder / "inputs.npz", **{k: v.astype(np.int64) for k, v in inputs.items()})
    hf.run(PARITY / "hf_systems.py", base / "written_4")
    hf5.run(PARITY / "hf_systems.py", base / "written_5")
    for name, folder in folders.items():
        _, parts, hidden_states = systems.load(name, base / "golden")
        theirs = np.load(folder / "outputs.npz")
        for key, expected in {**parts["answer"], "hidden_states": hidden_states}.items():
            np.testing.assert_allclose(theirs[key], expected, rtol=0, atol=1e-6, err_msg=name)
        tokenizer = model_folder.restore(base / f"{name}-model")[1]
        ids = theirs["ids"].tolist()
        first, second = (ids.tolist() for ids in tokenizer.encode(["the cat", "the"]))
        if not name.startswith("gpt2"):  # whose tokenizer puts nothing around a text
            assert ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id
        assert [i for i in ids if i not in tokenizer.special_ids] == [*first, *second]


def test_transformers_loads_both_networks_of_one_electra(hf, tmp_path):
    """A discriminator and a generator that share embeddings, written from one model of ours."""
    both(tmp_path / "hf", SHARED)
    converted_model.write(huggingface.read(tmp_path / "hf"), tmp_path / "model")
    model = model_folder.restore(tmp_path / "model")[2]
    batch = systems.load("electra_generator")[1]["batch"]
    (tmp_path / "written").mkdir()
    written = tmp_path / "written" / "discriminator"
    huggingface.write(tmp_path / "model", written, "last")
    (written / "generator").rename(tmp_path / "written" / "generator")
    fill, question = model.objectives
    expected = {}
    for name, encoder in (("discriminator", model.encoder), ("generator", fill.generator)):
        np.savez(
            tmp_path / "written" / name / "inputs.npz",
            input_ids=batch["token_ids"].astype(np.int64),
            token_type_ids=batch["segment_ids"].astype(np.int64),
            attention_mask=batch["padding_mask"].astype(np.int64),
        )
        expected[name] = np.stack(systems.run(encoder, batch)["hidden_states"])
    rows = expected["generator"][-1].reshape(-1, expected["generator"].shape[-1])
    logits = {
        "discriminator": question.logits(expected["discriminator"][-1]),
        "generator": np.reshape(
            fill.head.logits(rows, fill.generator), (*batch["token_ids"].shape, -1)
        ),
    }
    hf.run(PARITY / "hf_systems.py", tmp_path / "written")
    for name, states in expected.items():
        theirs = np.load(tmp_path / "written" / name / "outputs.npz")
        np.testing.assert_allclose(theirs["hidden_states"], states, rtol=0, atol=1e-5)
        np.testing.assert_allclose(theirs["logits"], logits[name], rtol=0, atol=1e-5)
