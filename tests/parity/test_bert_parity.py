"""BERT against transformers, computed anew."""

import numpy as np

from tests.official.modeling import bert_reference
from tests.official.modeling.test_bert_golden import GOLDEN


def test_outputs_and_gradients_agree_with_transformers(hf, tmp_path):
    hf.run(GOLDEN / "make_bert_golden.py", tmp_path)
    for name in ["small", "deep", "wide"]:
        with (
            np.load(tmp_path / f"bert_{name}.npz") as made,
            np.load(GOLDEN / f"bert_{name}.npz") as stored,
        ):
            made = dict(made)
            np.testing.assert_allclose(made["loss"], stored["loss"], rtol=1e-5)
        bert_reference.compare(made)


def test_the_stored_losses_of_training_come_out_again(hf, tmp_path):
    hf.run(GOLDEN / "make_bert_golden.py", tmp_path)
    with (
        np.load(tmp_path / "bert_losses.npz") as made,
        np.load(GOLDEN / "bert_losses.npz") as stored,
    ):
        np.testing.assert_allclose(made["losses"], stored["losses"], rtol=1e-4)
