"""XLNet and Transformer-XL against transformers, computed anew."""

import numpy as np
import pytest
import tensorflow as tf

from official.conversion import converted_model, huggingface
from official.saving import model_folder
from official.tokenizers import pair_packing
from tests.official.conversion import systems, xlnets
from tests.official.conversion.test_convert_xlnet import CASES, WRITTEN

PARITY = systems.GOLDEN.parent / "parity"


@pytest.fixture(scope="module")
def base(hf, tmp_path_factory):
    """The golden files, made anew, and our model folder of each."""
    parent = tmp_path_factory.mktemp("xlnet")
    hf.run(systems.GOLDEN / "make_xlnet_golden.py", parent / "golden")
    for name in CASES:
        config, weights, _ = xlnets.load(name, parent / "golden")
        folder = xlnets.write(parent / name, config, weights)
        converted_model.write(huggingface.read(folder), parent / f"{name}-model")
    return parent


def test_states_and_memory_are_those_of_transformers(base):
    for name in CASES:
        config, _, rows = xlnets.load(name, base / "golden")
        model = model_folder.restore(base / f"{name}-model")[2]
        xlnets.compare(model.encoder, config, rows)


def test_texts_as_they_are_laid_out_here_get_the_same_logits(hf, base):
    """Two texts and two pairs of different lengths, with padding on the left."""
    parent = base / "laid_out"
    parent.mkdir()
    tokenizer, model = model_folder.restore(base / "xlnet_classification-model")[1:]
    texts = tf.ragged.constant([[7, 9, 8, 11, 6, 7], [12, 5]], tf.int32)
    expected = []
    for count in (1, 2):
        layout = model.encoder.config.layout
        batch = pair_packing.pack([texts, texts[::-1]][:count], tokenizer, 20, layout)
        folder = parent / str(count)
        huggingface.write(base / "xlnet_classification-model", folder, "last")
        np.savez(
            folder / "inputs.npz",
            input_ids=batch["token_ids"].numpy().astype(np.int64),
            token_type_ids=batch["segment_ids"].numpy().astype(np.int64),
            attention_mask=batch["padding_mask"].numpy().astype(np.float32),
            use_mems=np.array(False),
        )
        assert batch["token_ids"][0, -1] == tokenizer.cls_id
        assert batch["padding_mask"].numpy().all() == (count == 2)
        expected.append(model.objectives[0].logits(model.encode(batch)).numpy())
    hf.run(PARITY / "hf_systems.py", parent)
    for count, logits in enumerate(expected, start=1):
        theirs = np.load(parent / str(count) / "outputs.npz")["logits"]
        np.testing.assert_allclose(theirs, logits, **xlnets.CLOSE)
    assert np.ptp(expected[0], axis=0).max() > 0.01


def test_transformers_loads_what_we_write_and_answers_the_same(hf, base):
    (base / "written").mkdir()
    rng = np.random.default_rng(0)
    real = np.ones((2, 6), bool)
    real[0, :1] = real[1, :3] = False
    batch = {
        "token_ids": rng.integers(5, 61, real.shape).astype(np.int32),
        "segment_ids": rng.integers(0, 3, real.shape).astype(np.int32),
    }
    for name in WRITTEN:
        folder = base / "written" / name
        huggingface.write(base / f"{name}-model", folder, "last")
        inputs = {
            "input_ids": batch["token_ids"].astype(np.int64),
            "token_type_ids": batch["segment_ids"].astype(np.int64),
            "use_mems": np.array(False),
        }
        if name != "xlnet_one_way":  # Masks of both kinds it cannot join for several rows.
            inputs["attention_mask"] = real.astype(np.float32)
        np.savez(folder / "inputs.npz", **inputs)
    hf.run(PARITY / "hf_systems.py", base / "written")
    for name in WRITTEN:
        theirs = np.load(base / "written" / name / "outputs.npz")
        _, tokenizer, model = model_folder.restore(base / f"{name}-model")
        known = batch if name == "xlnet_one_way" else batch | {"padding_mask": real}
        encoded = model.encode(known, output_all=True)
        there = np.ones_like(real) if name == "xlnet_one_way" else real
        states = np.stack(encoded["hidden_states"])
        np.testing.assert_allclose(
            theirs["hidden_states"][:, there], states[:, there], err_msg=name, **xlnets.CLOSE
        )
        if name == "xlnet_classification":
            logits = model.objectives[0].logits(encoded)
            np.testing.assert_allclose(theirs["logits"], logits, **xlnets.CLOSE)
        ids = theirs["ids"].tolist()
        first, second = (ids.tolist() for ids in tokenizer.encode(["the cat", "the"]))
        assert [i for i in ids if i not in tokenizer.special_ids] == [*first, *second]
        assert ids[-1] == tokenizer.cls_id  # XLNet's own layout.
